#!/usr/bin/env python3
"""Runs what a chapter of the tutorial says to type, and compares what it prints with what the chapter shows.

usage: tutorial.py CHAPTER.md FOLDER_OF_THE_PROGRAMS

The lines of a ```console block that begin with "$ " are one script, the others its output. Times, rates and process
numbers are anybody's; other numbers may differ as much as LibTorch's versions let them. Chapter 6 kills a worker.
"""
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```console\n(.*?)^```", re.S | re.M)
FREE = re.compile(r"\b\d+(?:\.\d+)?(?:us|ms|s)\b|\d+(?= examples/s)|(?<=process )\d+|(?<=pid )\d+")
NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")
# What newer versions of Gloo say of every connection (pytorch/gloo#462), and what is said on a machine that is busy with other
# things: that somebody waits for another one, and how far an epoch is that takes 10 seconds.
NOISE = re.compile(r"(\[worker \d+\] )?(\[\S*gloo/\S*\] INFO |\[[-0-9]+ [.:0-9]+\] \[warning\] .* waits in |Epoch \d+/\d+ - (\d+)/(?!\3 ))")
TOLERANCE = 0.1  # of a loss or an accuracy after a short training; whole numbers are exact
LIMIT = 300  # seconds for a block


def free_port_pair():
    """A port that is free together with the next one; none of those that the system gives to others."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    while True:
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", random.randrange(10_000, first_given - 1) if first_given > 12_000 else 0))
                port = first.getsockname()[1]
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def run(script, folder, environment):
    port = free_port_pair()
    script = script.replace(":5000", f":{port}").replace(":5001", f":{port + 1}") + "\nwait\n"
    done = subprocess.run(["bash", "-ec", script], cwd=folder, env=environment, timeout=LIMIT, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"this ended with status {done.returncode}:\n{script}{done.stdout}")
    return [line for line in done.stdout.splitlines() if not NOISE.match(line)]


def comparable(lines, processes):
    """Lines of several processes come in any order; their own order does not matter here."""
    lines = [FREE.sub("*", line) for line in lines]
    return sorted(lines) if processes > 1 else lines


def same(shown, printed):
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (shown, printed)]
    texts = [NUMBER.sub("#", line) for line in (shown, printed)]
    return texts[0] == texts[1] and len(numbers[0]) == len(numbers[1]) and all(
        abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in zip(*numbers))


def check_block(text, folder, environment):
    """Runs a block and returns what it printed."""
    lines = text.splitlines()
    script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    shown = [line for line in lines if not line.startswith("$ ")]
    printed = run(script, folder, environment)
    processes = 2 if "launch" in script or "&" in script else 1
    pairs = list(zip(comparable(shown, processes), comparable(printed, processes)))
    if len(shown) != len(printed) or not all(same(a, b) for a, b in pairs):
        raise SystemExit("\n".join(["the chapter shows", *shown, "and the program printed", *printed]))
    return printed


def result(printed):
    """The line with the result of the training, without the name of the worker."""
    return next(re.sub(r"^\[.*?\] ", "", line) for line in printed if re.search(r"(^|\] )loss ", line))


def killed(folder, environment):
    """Runs chapter 6's program, kills worker 1 after step 40, and returns what was printed."""
    command = ["cohort", "launch", "--nproc=2", "--max_restarts=3", "--", "tutorial_when_something_dies", "disturbed", "20"]
    printed, victim = [], None
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        for line in run.stdout:
            printed.append(line.rstrip("\n"))
            found = re.match(r"\[worker 1\] this is process (\d+)", line)
            if found and victim is None:
                victim = int(found.group(1))
            if line.startswith("[worker 1] step 40") and victim:
                os.kill(victim, signal.SIGKILL)
                victim = 0
    text = "\n".join(printed)
    if run.returncode != 0 or "was killed by signal 9" not in text or "restart 1 of 3" not in text:
        raise SystemExit(f"a run whose worker was killed ended with status {run.returncode}:\n{text}")
    again = text.split("restart 1 of 3")[1]
    if "step 20\n" in again:
        raise SystemExit(f"the run began again instead of going on from its backup:\n{text}")
    return printed


def main(chapter, programs):
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    environment["PATH"] = f"{pathlib.Path(programs).resolve()}:{environment['PATH']}"
    blocks = BLOCK.findall(chapter.read_text(encoding="utf-8"))
    if not blocks:
        raise SystemExit(f"{chapter} has no ```console block")
    with tempfile.TemporaryDirectory() as folder:
        outputs = [check_block(block, folder, environment) for block in blocks]
        if chapter.name.startswith("6"):
            outputs.append(killed(folder, environment))
        if len(outputs) > 1 and len({result(printed) for printed in outputs}) > 1:
            raise SystemExit(f"the results differ: {[result(printed) for printed in outputs]}")
    print(f"{chapter.name}: {len(outputs)} runs print what it shows")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
