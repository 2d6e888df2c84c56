#!/usr/bin/env python3
"""What it costs that tasks speak to nobody but their job: calls between two tasks without protection, by TLS, and within a machine by a local socket,
in turn. As root also between two machines, which are network namespaces joined by a link without a limit.

usage: trust.py --bench BINARY [--rounds N] [--seconds S]
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile

from network import HOSTS, Link


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def measure(bench, seconds, address, trust, before=((), ())):
    """GB/s and microseconds a small call; `before` stands before the server's and the client's command."""
    environment = {**os.environ, **trust}
    server = subprocess.Popen([*before[0], bench, "calls", address, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        server.stdout.readline()
        done = subprocess.run([*before[1], bench, "--seconds", str(seconds), "calls", address], capture_output=True, text=True, check=True, env=environment, timeout=300)
    finally:
        server.communicate()
    line = json.loads(done.stdout.splitlines()[-1])
    return line["calls_gb_per_second"], line["us_a_small_call"]


def show(where, ways, rounds, call):
    """The medians of each way, and its speed over that of the first in the same round."""
    values = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            values[name].append(call(ways[name]))
    first = next(iter(values.values()))
    for name, all_of in values.items():
        ratio = statistics.median(mine[0] / other[0] for mine, other in zip(all_of, first))
        print(f"| {where}, {name} | {statistics.median(v[0] for v in all_of):.2f} | {ratio:.2f} | {statistics.median(v[1] for v in all_of):.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="cohort_bench")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print("| calls | 4 MiB there and back, GB/s | speed over that without protection | a small call, us |\n|---|---|---|---|")
    with tempfile.NamedTemporaryFile("w") as secret, tempfile.TemporaryDirectory() as folder:
        secret.write("a secret of the benchmark's")
        secret.flush()
        plain = {"COHORT_INSECURE": "1", "COHORT_SECRET_FILE": ""}
        tls = {"COHORT_SECRET_FILE": secret.name, "XDG_RUNTIME_DIR": "/nowhere"}  # so that there is no local socket
        local = {"COHORT_SECRET_FILE": secret.name, "XDG_RUNTIME_DIR": folder}
        show("one machine", {"without protection": plain, "TLS": tls, "local socket": local}, arguments.rounds,
             lambda trust: measure(arguments.bench, arguments.seconds, f"127.0.0.1:{free_port()}", trust))
        if os.geteuid() != 0:
            return
        with Link("") as link:
            before = [["ip", "netns", "exec", name] for name in link.names]
            show("two machines", {"without protection": plain, "TLS": tls}, arguments.rounds,
                 lambda trust: measure(arguments.bench, arguments.seconds, f"{HOSTS[0]}:4000", trust, before))


if __name__ == "__main__":
    main()
