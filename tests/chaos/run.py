#!/usr/bin/env python3
"""Disasters for a training over several machines, which are network namespaces here.

Each trial starts three workers, each in a namespace of its own, does one thing to them at a random moment, and wants of
what follows: every survivor ends within the limit and names the culprit, no process is left, and the run, started again
by the same command, goes on and ends with the same bits as one that was left alone.

Usage (as root): run.py COHORT [--trials 20] [--only NAME,...] [--seed 1] [--report FILE.json]
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from machines import BridgedMachines  # noqa: E402

WORKERS = 3
LIMIT_S = 10  # for the survivors to say who it was, and to end
PORT = 5000
FLAGS = ["train", "--experiment=mnist_mlp", "--mode=train", "--batch_size=96", "--seed=3", "--epochs=3", "--save_freq=25",
         "--distribution_strategy=multi_worker_mirrored", "--params_override=trainer.max_to_keep=2"]


class Group:
    """The workers of one start."""

    def __init__(self, cohort, network, folder, attempt):
        secret = folder / "secret"
        secret.write_text("the secret of a trial", encoding="utf-8")
        hosts = ",".join(f"{network.address(i)}:{PORT}" for i in range(WORKERS))
        self.logs = [folder / f"{attempt}_{i}.log" for i in range(WORKERS)]
        self.workers = []
        for i, path in enumerate(self.logs):
            with path.open("w", encoding="utf-8") as log:
                self.workers.append(network.inside(
                    i, [cohort, *FLAGS, f"--model_dir={folder / 'run'}", f"--worker_hosts={hosts}",
                     f"--secret_file={secret}", f"--task_index={i}"], stdout=log, stderr=log))

    def said(self, i):
        return self.logs[i].read_text(encoding="utf-8")

    def send(self, i, number):
        self.workers[i].send_signal(number)

    def end(self):
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()

    def wait(self, who, seconds):
        """How long they took; None when one of them is still there."""
        begin = time.monotonic()
        for i in who:
            try:
                self.workers[i].wait(max(0.0, begin + seconds - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
        return time.monotonic() - begin


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


class Trial:
    def __init__(self, cohort, network, folder, rng):
        self.cohort, self.network, self.folder, self.rng = cohort, network, folder, rng
        self.group = None
        self.seconds = 0.0
        self.goes_on_after = ["goes on with the run that was interrupted"]  # what the chief says, started again

    def backups(self):
        return sorted((self.folder / "run").glob("ckpt-*"), key=lambda path: int(path.name.split("-")[1]))

    def start(self, attempt):
        self.group = Group(self.cohort, self.network, self.folder, attempt)

    def wait_for_backup(self, count=1):
        end = time.monotonic() + 60
        while not [path for path in self.backups() if (path / "manifest.json").exists()][count - 1:]:
            require(self.group.workers[0].poll() is None, "no training: " + self.group.said(0))
            require(time.monotonic() < end, "no backup in 60 s")
            time.sleep(0.01)

    def random_moment(self, longest):
        self.wait_for_backup()
        time.sleep(self.rng.uniform(0.0, longest))
        require(self.group.workers[0].poll() is None, "it had ended already; the moments are too late")

    def survivors_name(self, lost, pattern):
        survivors = [i for i in range(WORKERS) if i != lost]
        took = self.group.wait(survivors, LIMIT_S)
        require(took is not None, f"a survivor is still there after {LIMIT_S} s: " + "".join(map(self.said_last, survivors)))
        self.seconds = took
        for i in survivors:
            require(self.group.workers[i].returncode == 1, f"worker {i} ended with {self.group.workers[i].returncode}: {self.group.said(i)}")
            require(re.search(pattern, self.group.said(i)), f"worker {i} does not name it: {self.group.said(i)}")

    def said_last(self, i):
        return self.group.said(i)[-1000:]

    def no_process_left(self):
        end = time.monotonic() + 5
        while self.network.processes():
            require(time.monotonic() < end, f"left: {self.network.processes()}")
            time.sleep(0.05)

    def goes_on(self, expected):
        self.start("again")
        took = self.group.wait(range(WORKERS), 120)
        require(took is not None, "the restarted run does not end: " + self.group.said(0))
        codes = [worker.returncode for worker in self.group.workers]
        require(codes == [0] * WORKERS, f"the restarted run ended with {codes}: {self.group.said(0)}")
        for text in self.goes_on_after:
            require(text in self.group.said(0), f"the chief does not say '{text}': {self.group.said(0)}")
        require((self.folder / "run/model.safetensors").read_bytes() == expected, "its weights have other bits")
        self.no_process_left()


def kill_worker(trial, moment):
    trial.random_moment(moment)
    lost = trial.rng.choice([1, 2])
    trial.group.send(lost, signal.SIGKILL)
    trial.survivors_name(lost, rf"worker {lost} .*is lost")


def kill_chief(trial, moment):
    trial.random_moment(moment)
    trial.group.send(0, signal.SIGKILL)
    trial.survivors_name(0, r"worker 0 .*is lost")


def stop_worker(trial, moment):
    trial.random_moment(moment)
    lost = trial.rng.choice([1, 2])
    trial.group.send(lost, signal.SIGSTOP)
    try:
        trial.survivors_name(lost, rf"worker {lost} .*is lost")
    finally:
        trial.group.send(lost, signal.SIGCONT)
    require(trial.group.wait([lost], LIMIT_S) is not None, "the stopped one goes on alone: " + trial.group.said(lost))


def cut_link(trial, moment):
    trial.random_moment(moment)
    lost = trial.rng.choice([0, 1, 2])
    trial.network.connect(False, lost)
    try:
        trial.survivors_name(lost, rf"worker {lost} .*is lost")
        require(trial.group.wait([lost], LIMIT_S) is not None, "the lonely one goes on alone: " + trial.group.said(lost))
    finally:
        trial.network.connect(True, lost)


def interrupt_link(trial, moment):
    """Shorter than the heartbeats' limit of 5 s, and longer than TCP waits between its attempts."""
    trial.random_moment(moment)
    away = trial.rng.choice([0, 1, 2])
    trial.network.connect(False, away)
    time.sleep(trial.rng.uniform(3.0, 3.8))
    trial.network.connect(True, away)
    trial.seconds = trial.group.wait(range(WORKERS), 120)
    require(trial.seconds is not None, "the run does not end: " + "".join(map(trial.said_last, range(WORKERS))))
    codes = [worker.returncode for worker in trial.group.workers]
    require(codes == [0] * WORKERS, f"it ended with {codes}: " + "".join(map(trial.said_last, range(WORKERS))))
    trial.goes_on_after = []  # there is nothing to go on with


def fill_disk(trial, moment):
    trial.random_moment(moment)
    filler = trial.folder / "run/filler"
    try:
        with filler.open("wb", buffering=0) as out:
            end = time.monotonic() + LIMIT_S
            while trial.group.workers[0].poll() is None:  # what an old checkpoint leaves is filled too
                require(time.monotonic() < end, "the chief goes on: " + trial.group.said(0))
                try:
                    out.write(b"x" * 65536)
                except OSError:
                    time.sleep(0.001)
        require("No space left on device" in trial.group.said(0), "the chief does not say it: " + trial.group.said(0))
        trial.survivors_name(0, r"a checkpoint failed on worker 0|worker 0 has ended its program")  # the latter: its logs did
    finally:
        filler.unlink()


def corrupt_newest(trial, moment):
    trial.wait_for_backup(2)
    time.sleep(trial.rng.uniform(0.0, moment))
    trial.group.end()
    newest = trial.backups()[-1]
    victim = trial.rng.choice(sorted(newest.iterdir()))
    content = bytearray(victim.read_bytes())
    place = trial.rng.randrange(len(content))
    content[place] ^= 1 << trial.rng.randrange(8)
    victim.write_bytes(content if trial.rng.random() < 0.5 else content[:place])
    trial.goes_on_after.append(f"{newest.name} is damaged and left out")


def kill_during_save(trial, moment):
    trial.random_moment(moment)
    backup = trial.folder / "run"
    end = time.monotonic() + 20
    while not any(backup.glob(".writer-*/*/*")):
        require(time.monotonic() < end, "no save in 20 s")
    time.sleep(trial.rng.uniform(0.0, 0.003))
    trial.group.send(0, signal.SIGKILL)
    trial.survivors_name(0, r"worker 0 .*is lost")


DISASTERS = {"SIGKILL a worker": kill_worker, "SIGKILL the chief": kill_chief, "SIGSTOP a worker": stop_worker, "cut the link": cut_link, "interrupt the link": interrupt_link,
             "fill the disk": fill_disk, "corrupt the newest checkpoint": corrupt_newest, "SIGKILL during a save": kill_during_save}


def run_trial(disaster, cohort, network, folder, rng, moment, expected):
    (folder / "run").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder / "run"], check=True)
    trial = Trial(cohort, network, folder, rng)
    try:
        trial.start("first")
        disaster(trial, moment)
        trial.group.end()
        trial.no_process_left()
        trial.goes_on(expected)
        return trial.seconds
    finally:
        trial.group.end()
        subprocess.run(["umount", folder / "run"], check=False)
        shutil.rmtree(folder)


def undisturbed(cohort, network, folder):
    """The bits of its weights, and how long it goes on after its first backup."""
    folder.mkdir()
    group = Group(cohort, network, folder, "alone")
    try:
        begin = None
        while group.workers[0].poll() is None:
            if begin is None and list((folder / "run").glob("ckpt-*")):
                begin = time.monotonic()
            time.sleep(0.01)
        require(group.wait(range(WORKERS), 30) is not None and group.workers[0].returncode == 0, group.said(0))
        return (folder / "run/model.safetensors").read_bytes(), time.monotonic() - begin
    finally:
        group.end()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=pathlib.Path)
    flags = parser.parse_args()
    chosen = {name: fn for name, fn in DISASTERS.items() if not flags.only or any(part in name for part in flags.only.split(","))}
    rng = random.Random(flags.seed)
    results = {}
    with contextlib.closing(BridgedMachines(WORKERS, "10.77.0")) as network, tempfile.TemporaryDirectory() as folder:
        bits = set()
        for name, disaster in chosen.items():
            # Measured before each: how fast the machine is changes in the course of an hour.
            expected, length = undisturbed(os.path.abspath(flags.cohort), network, pathlib.Path(folder, "undisturbed"))
            print(f"undisturbed: {length:.1f} s from the first backup to the end", flush=True)
            bits.add(expected)
            require(len(bits) == 1, "two runs that were left alone have other bits")
            result = results[name] = {"trials": 0, "failures": [], "longest_s": 0.0}
            for number in range(flags.trials):
                result["trials"] += 1
                try:
                    seconds = run_trial(disaster, os.path.abspath(flags.cohort), network, pathlib.Path(folder, f"trial_{number}"), rng,
                                        length * 0.7, expected)
                    result["longest_s"] = max(result["longest_s"], seconds)
                except Failure as failure:
                    result["failures"].append(str(failure))
                    print(f"{name}, trial {number}: {failure}", flush=True)
            print(f"{name}: {result['trials']} trials, {len(result['failures'])} failures, survivors ended within "
                  f"{result['longest_s']:.1f} s", flush=True)
    if flags.report:
        flags.report.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 1 if any(result["failures"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
