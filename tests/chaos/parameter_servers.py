#!/usr/bin/env python3
"""Disasters for a training with parameter servers: processes of one machine, killed and stopped for real.

Starts examples/parameter_server.cpp under `cohort launch`, kills (SIGKILL) or stops (SIGSTOP, later SIGCONT) tasks at
random moments, and wants of what follows: the run ends well, every example of every epoch was counted exactly once, and
no process is left.

Usage: parameter_servers.py COHORT EXAMPLE [--kills 50] [--stops 10] [--replicas 2] [--seed 1] [--report FILE.json]
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

SERVERS = 2
WORKERS = 3
EXAMPLES = 20_000  # of the drawn digits


def tasks(launcher):
    """The tasks' processes by name, of the launcher's children."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            environment = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent != launcher:
            continue
        for variable in environment:
            if variable.startswith(b"TF_CONFIG="):
                task = json.loads(variable[len(b"TF_CONFIG="):])["task"]
                found[f"{task['type']} {task['index']}"] = int(entry.name)
    return found


def send(pid, name):
    try:
        os.kill(pid, name)
        return True
    except ProcessLookupError:
        return False


class Run:
    def __init__(self, cohort, example, folder, replicas, epochs, restarts):
        self.output = []
        self.process = subprocess.Popen(
            [cohort, "launch", f"--ps={SERVERS}", f"--workers={WORKERS}", f"--max_restarts={restarts}", "--", example,
             f"--directory={folder}", f"--replicas={replicas}", f"--epochs={epochs}", "--save_every=50"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))

    def epochs_done(self):
        return sum(": loss " in line for line in self.output)


def disasters(run, random_numbers, kills, stops):
    """Does them; the list of what was done."""
    done = []
    plan = ["kill"] * kills + ["stop"] * stops
    random_numbers.shuffle(plan)
    jobs = ["worker", "worker", "worker", "ps", "ps", "chief"]
    for what in plan:
        time.sleep(random_numbers.uniform(0.3, 2.5))
        if run.process.poll() is not None:
            raise SystemExit(f"the run ended early, with {run.process.returncode}:\n" + "\n".join(run.output[-40:]))
        alive = tasks(run.process.pid)
        job = random_numbers.choice(jobs)
        candidates = sorted(name for name in alive if name.startswith(job))
        if not candidates:
            continue
        name = random_numbers.choice(candidates)
        if what == "kill":
            if send(alive[name], signal.SIGKILL):
                done.append(f"kill {name}")
        elif send(alive[name], signal.SIGSTOP):
            done.append(f"stop {name}")
            time.sleep(random_numbers.uniform(0.5, 8.0))
            send(alive[name], signal.SIGCONT)
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cohort")
    parser.add_argument("example")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1500)
    parser.add_argument("--report")
    flags = parser.parse_args()
    epochs = flags.epochs or max(5, 2 * (flags.kills + flags.stops))
    random_numbers = random.Random(flags.seed)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(flags.cohort, flags.example, folder, flags.replicas, epochs, restarts=10 * (flags.kills + 1))
        done = disasters(run, random_numbers, flags.kills, flags.stops)
        at_end = run.epochs_done()
        print(f"{len(done)} disasters in {time.monotonic() - begin:.0f} s, during epochs 1 to {at_end + 1} of {epochs}", flush=True)
        try:
            code = run.process.wait(flags.limit - (time.monotonic() - begin))
        except subprocess.TimeoutExpired:
            run.process.kill()
            code = "none: it hangs"
        run.reader.join(60)
    wanted = epochs * EXAMPLES
    counted = next((int(found[1]) for line in run.output if (found := re.search(r"examples: (\d+)", line))), None)
    left = subprocess.run(["pgrep", "-f", flags.example + " --directory=" + folder], capture_output=True, text=True, check=False).stdout.split()
    report = {"kills": sum(each.startswith("kill") for each in done), "stops": sum(each.startswith("stop") for each in done),
              "replicas": flags.replicas, "epochs": epochs, "examples": counted, "wanted": wanted, "exit": code,
              "processes_left": len(left), "seconds": round(time.monotonic() - begin, 1),
              "by_job": collections.Counter(each.rsplit(" ", 1)[0] for each in done), "done": done}
    print(json.dumps({name: value for name, value in report.items() if name != "done"}))
    if flags.report:
        pathlib.Path(flags.report).write_text(json.dumps(report, indent=1), encoding="utf-8")
    if code != 0 or counted != wanted or left:
        print("\n".join(run.output[-60:]))
        print("\n".join(done))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
