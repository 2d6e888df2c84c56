#!/usr/bin/env python3
"""The collectives of CPU tensors between workers of this machine, by each back end, as one table of ratios to our own (ring).
PyTorch's Gloo stands beside them; Debian's has no reduce-scatter.

usage: engines.py --bench BINARY [--rounds N] [--workers 2,4]
"""
import argparse
import statistics

from run import HERE, PYTHON, lines_of

CALLS = ("all_reduce", "reduce_scatter", "all_gather")
SIDES = ("ring", "gloo", "mpi", "PyTorch")


def command_of(side, bench, workers):
    if side == "PyTorch":
        return [PYTHON, HERE / "pytorch_collectives.py", str(workers)]
    ours = [bench, "worker_collectives", f"--implementation={side}"]
    if side == "mpi":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(workers), *ours]
    # Without a secret, with which Gloo is refused; on one machine ring does not encrypt with one either.
    return [bench.replace("cohort_bench", "cohort"), "launch", f"--nproc={workers}", "--insecure", "--", *ours]


def name_of(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="2,4")
    arguments = parser.parse_args()
    times = {}  # {(workers, call, bytes): {side: [us of each round]}}
    for workers in map(int, arguments.workers.split(",")):
        for _ in range(arguments.rounds):
            for side in SIDES:
                for line in lines_of(command_of(side, arguments.bench, workers)):
                    times.setdefault((workers, line["call"], line["bytes"]), {}).setdefault(side, []).append(line["us"])
    print("| workers | call | bytes of a worker | ring, us | gloo / ring | mpi / ring | PyTorch's Gloo / ring |\n|---|---|---|---|---|---|---|")
    for (workers, call, size), sides in sorted(times.items(), key=lambda item: (item[0][0], CALLS.index(item[0][1]), item[0][2])):
        ratios = []
        for side in SIDES[1:]:
            of_rounds = [theirs / ours for theirs, ours in zip(sides.get(side, []), sides["ring"])]
            ratios.append(f"{statistics.median(of_rounds):.2f}" if of_rounds else "-")
        print(f"| {workers} | {call} | {name_of(size)} | {statistics.median(sides['ring']):,.0f} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    main()
