#!/usr/bin/env python3
"""Two workers on two machines, which are network namespaces joined by a link of a given rate: what a step takes, with
gradients that leave during backward and after it, and how much of the communication backward hides.

The workers encrypt what they send if COHORT_SECRET_FILE names a secret.

usage (as root): network.py --bench BINARY [--rate 2gbit] [--rounds N] [--seconds S]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

MODELS = ("mlp", "cnn", "resnet50")
HOSTS = ("10.78.0.1", "10.78.0.2")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Link:
    def __init__(self, rate):
        self.rate = rate
        self.names = [f"cohort{os.getpid()}{side}" for side in "ab"]

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        first, second = self.names
        ip("-n", first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second)
        for name, host in zip(self.names, HOSTS):
            ip("-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            if self.rate:
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "512kb", "latency", "50ms"],
                               check=True)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def workers_of(link, bench, words):
    """What the two workers said that were started with these words."""
    workers = []
    for index, name in enumerate(link.names):
        config = {"cluster": {"worker": [f"{host}:4000" for host in HOSTS]}, "task": {"type": "worker", "index": index}}
        insecure = "" if "COHORT_SECRET_FILE" in os.environ else "1"
        environment = {**os.environ, "COHORT_INSECURE": insecure, "TF_CONFIG": json.dumps(config), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        workers.append(subprocess.Popen(["ip", "netns", "exec", name, "taskset", "-c", str(index), bench, *words], stdout=subprocess.PIPE, text=True,
                                        env=environment))
    said = [worker.communicate(timeout=600)[0] for worker in workers]
    if any(worker.returncode != 0 for worker in workers):
        sys.exit("a worker failed")
    return said


def step(link, bench, model, seconds, overlap):
    out = workers_of(link, bench, ["--seconds", str(seconds), "worker_step", "--model", model, "--overlap", overlap])[0]
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))


def picture(line, columns=72):
    """The timeline of a step: backward, and below it each message from its beginning to its end."""
    end = max([line["backward_ms"], *(message[3] for message in line["messages"])])

    def bar(begin, finish, sign):
        first = round(begin / end * columns)
        return " " * first + sign * max(1, round(finish / end * columns) - first)
    rows = [f"{'backward':>9} |{bar(0, line['backward_ms'], '='):<{columns}}| {line['backward_ms']:.0f} ms"]
    for size, _, begin, finish in line["messages"]:
        rows.append(f"{size / 2**20:6.1f} MB |{bar(begin, finish, '#'):<{columns}}| {begin:.0f} to {finish:.0f} ms")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rate", default="2gbit", help="of the link; empty: as fast as the kernel copies")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    print(f"Two workers, one core each, joined by {arguments.rate or 'a link without a limit'}.\n")
    print("| model | gradients leave after backward, ms a step | during backward | ratio | communication under backward |\n|---|---|---|---|---|")
    pictures = []
    with Link(arguments.rate) as link:
        for model in MODELS:
            lines = {overlap: [step(link, arguments.bench, model, arguments.seconds, overlap) for _ in range(arguments.rounds)]
                     for overlap in ("false", "true")}
            off, on = (statistics.median(line["us"] for line in lines[overlap]) / 1e3 for overlap in ("false", "true"))
            shown = lines["true"][-1]
            hidden = f"{statistics.median(line['hidden'] for line in lines['true']) * 100:.0f}%" if "hidden" in shown else "one message only"
            print(f"| {model} | {off:.1f} | {on:.1f} | {off / on:.2f} | {hidden} |", flush=True)
            if "messages" in shown:
                pictures.append(f"{model}:\n\n```\n{picture(shown)}\n```")
    print("\n" + "\n\n".join(pictures))


if __name__ == "__main__":
    main()
