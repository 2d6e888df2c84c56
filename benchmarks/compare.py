#!/usr/bin/env python3
"""Runs the benchmarks of two builds in turn and prints how fast this one is beside the one before: `make bench BEFORE=BINARY`.

A row is the median of the ratios of its rounds, in which both builds run one after the other, in changing order. A row that seems slower
than the limit is measured again with three times the rounds before it counts. The exit status is 1 if a row is slower by more than that.

usage: compare.py --before BINARY --bench BINARY [--rounds N] [--seconds S] [--limit PERCENT] [--only TEXT]
"""
import argparse
import pathlib
import statistics
import sys
import time

from run import LARGE, MODELS, PHOTOGRAPHS, lines_of


def cohort(bench):
    """The command line that was built beside the benchmarks."""
    return str(pathlib.Path(bench).with_name("cohort"))


def value(key, lines, where=None):
    """The greatest value of a key in the lines that a measurement printed."""
    return max(line[key] for line in lines if key in line and (where is None or line.get(where[0]) == where[1]))


def rows(seconds):
    """(name, unit, whether more is better, function of a binary that measures once)."""
    def row(name, unit, more, call, key, where=None):
        return name, unit, more, lambda bench: value(key, lines_of(call(bench)), where)

    def step(model, replicas):
        length = str(seconds * (3 if model in LARGE else 1))
        return row(f"{model}, {replicas} replica{'s' if replicas > 1 else ''} of one thread", "samples/s", True,
                   lambda bench: [bench, "--seconds", length, "step", "--model", model, "--replicas", str(replicas)], "samples_per_second")

    def worker(model, name, launch):
        return row(f"{model}, 2 workers over {name}", "samples/s", True,
                   lambda bench: [*launch(bench), bench, "--seconds", str(seconds), "worker_step", "--model", model], "samples_per_second")

    def servers(what, name, unit, key, tasks):
        return row(f"parameter servers: {name}", unit, True,
                   lambda bench: [cohort(bench), "launch", *tasks, "--", bench, "--seconds", str(seconds), "parameter_server", what], key)

    def start(bench):
        begin = time.monotonic()
        lines_of([cohort(bench), "launch", "--nproc=8", "--", bench, "worker_start"])
        return time.monotonic() - begin

    table = [step(model, replicas) for model in MODELS for replicas in (2, 1)]
    table += [row(f"all-reduce of {size >> 10} kB, 2 replicas", "us", False, lambda bench: [bench, "--seconds", "0.1", "all_reduce"], "us", ("all_reduce", size))
              for size in (4 << 10, 1 << 20, 64 << 20)]
    table += [row("an empty run, 2 replicas", "us", False, lambda bench: [bench, "empty", "--replicas", "2"], "us"),
              row("a batch of the input pipeline", "us", False, lambda bench: [bench, "input"], "us")]
    for model in ("mlp", "cnn"):
        table += [worker(model, "TCP", lambda bench: [cohort(bench), "launch", "--nproc=2", "--"]),
                  worker(model, "MPI", lambda bench: ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"])]
    table += [("8 workers start and end", "s", False, start),
              row("a checkpoint of 1 GB stalls training for", "ms", False, lambda bench: [bench, "checkpoint"], "stall_ms"),
              row("TFRecords from the page cache", "GB/s", True, lambda bench: [bench, "tfrecord"], "tfrecord_gb_per_second"),
              servers("dense", "100 MB there and back", "GB/s", "ps_dense_gb_per_second", ("--ps=2", "--workers=1")),
              servers("rows", "rows of 64", "rows/s", "ps_rows_per_second", ("--ps=2", "--workers=1")),
              servers("recommender", "recommender, 2 workers", "steps/s", "ps_steps_per_second", ("--ps=2", "--workers=2"))]
    if PHOTOGRAPHS.is_dir():
        table.append(row("photographs", "images/s", True, lambda bench: [bench, "images", str(PHOTOGRAPHS)], "images_per_second"))
    return table


def measure(call, more, before, now, rounds):
    """The values of each side, and this build's speed over the other's in each round."""
    sides, ratios = ([], []), []
    for turn in range(rounds):
        pair = {side: call((before, now)[side]) for side in ((0, 1) if turn % 2 == 0 else (1, 0))}
        for side, values in enumerate(sides):
            values.append(pair[side])
        ratios.append(pair[1] / pair[0] if more else pair[0] / pair[1])
    return sides, ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True, help="cohort_bench of the other build, with its cohort beside it")
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=3.0, help="how much slower a row may be, in percent")
    parser.add_argument("--only", default="", help="the rows whose name has this text")
    arguments = parser.parse_args()
    slower = []
    print("| | before | now | speed now / before |\n|---|---|---|---|")
    for name, unit, more, call in rows(arguments.seconds):
        if arguments.only not in name:
            continue
        sides, ratios = measure(call, more, arguments.before, arguments.bench, arguments.rounds)
        if statistics.median(ratios) < 1 - arguments.limit / 100:
            sides, ratios = measure(call, more, arguments.before, arguments.bench, 3 * arguments.rounds)
        ratio = statistics.median(ratios)
        if ratio < 1 - arguments.limit / 100:
            slower.append(name)
        print(f"| {name}, {unit} | {statistics.median(sides[0]):,.4g} | {statistics.median(sides[1]):,.4g} | {ratio:.3f} |", flush=True)
    if slower:
        print(f"\nSlower by more than {arguments.limit:g} %: {'; '.join(slower)}.")
        return 1
    print(f"\nNo row is slower by more than {arguments.limit:g} %.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
