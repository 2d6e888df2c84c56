#!/usr/bin/env python3
"""Nemeses for a cluster with parameter servers, whose tasks run on machines of their own (network namespaces).

Each trial starts a chief, servers and workers that count (counting.cpp), lets one nemesis do its worst for a while, and
wants of what follows: the run ends, each update counts exactly once on every shard, and no process is left. Whoever
ends without success is started again, as its launcher would do. The seed of a trial decides what its nemesis does and
when; the machine decides the rest.

Usage (as root): nemesis.py BUILD [--nemesis NAME,...] [--trials 10] [--seed 1] [--beside 1] [--minutes M]
                                  [--report FILE.json] [--keep FOLDER]
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

from faults import NEMESES
from clusters import Failure, programs_in

LIMIT_S = 150  # from the last fault to the end; a task may wait for 3 minutes, and would be seen


def bound(trials, failures):
    """The failure rate that is not exceeded at a confidence of 95 %: Clopper and Pearson's, one-sided."""
    if failures >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        seen = sum(math.comb(trials, k) * share ** k * (1 - share) ** (trials - k) for k in range(failures + 1))
        low, high = (share, high) if seen > 0.05 else (low, share)
    return high


def disturb(cluster, nemesis, rng):
    cluster.wait_for_work()
    time.sleep(rng.uniform(0.0, 2.0))
    nemesis.act(cluster, rng)
    if cluster.ended():
        cluster.remarks.append("the run had ended before the nemesis")
    cluster.expect_the_result(LIMIT_S)
    cluster.remarks.append(f"{sum(task.started for task in cluster.everybody)} starts")


def trial(name, seed, programs, keep):
    """What was wrong, if anything was, and what else is to be said."""
    rng = random.Random(f"{name} {seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    wrong, told, remarks = None, "", []
    try:
        cluster = NEMESES[name].run(programs, folder, seed, **{"replicas": rng.choice([1, 2]), **NEMESES[name].options})
        remarks = cluster.remarks
        try:
            disturb(cluster, NEMESES[name], rng)
        finally:
            cluster.close()
            told = cluster.told()
    except Failure as failure:
        wrong = str(failure)
    except Exception:  # a fault of the nemesis itself has to be seen, too, and the other trials go on
        wrong = traceback.format_exc()
    shutil.rmtree(folder, ignore_errors=True)
    if keep:
        pathlib.Path(keep).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(keep) / f"{name.replace(' ', '_')}-{seed}.txt").write_text(f"{wrong or 'well'}\n{told}", encoding="utf-8")
    return wrong, ", ".join(remarks)


def chosen(wanted):
    names = [name for name in NEMESES if wanted in ("", "all") or any(part.strip() in name for part in wanted.split(","))]
    if not names:
        raise SystemExit(f"nemesis: got \"{wanted}\", wanted all or some of {', '.join(NEMESES)}")
    return names


def table(results):
    lines = ["| nemesis | trials | failures | failure rate, at most (95 %) |", "|---|---|---|---|"]
    rows = {name: (result["trials"], len(result["failures"])) for name, result in results.items()}
    rows["all"] = tuple(map(sum, zip(*rows.values())))
    return "\n".join([*lines, *(f"| {name} | {trials} | {failures} | {100 * bound(trials, failures):.0f} % |"
                                for name, (trials, failures) in rows.items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--nemesis", default="", help="names, or parts of them, separated by commas; empty: all")
    parser.add_argument("--trials", type=int, default=10, help="of each")
    parser.add_argument("--seed", type=int, default=1, help="of the first trial of each; the next ones follow")
    parser.add_argument("--beside", type=int, default=1, help="trials that run beside each other")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no more trials begin")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--keep", help="folder for what the tasks of each trial said")
    flags = parser.parse_args()
    programs, names = programs_in(flags.build), chosen(flags.nemesis)
    results = {name: {"trials": 0, "failures": []} for name in names}
    end = time.monotonic() + 60 * flags.minutes

    def one(name, seed):
        begin = time.monotonic()
        if begin > end:
            return
        wrong, remark = trial(name, seed, programs, flags.keep)
        results[name]["trials"] += 1
        if wrong:
            results[name]["failures"].append({"seed": seed, "wrong": wrong})
        print(f"{name}, seed {seed}: {f'FAILED: {wrong}' if wrong else 'well'}, {time.monotonic() - begin:.0f} s, {remark}", flush=True)
        if flags.report:
            flags.report.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    # By seed, then by nemesis: a run that is interrupted has tried all of them about as often.
    with concurrent.futures.ThreadPoolExecutor(flags.beside) as pool:
        for done in [pool.submit(one, name, seed) for seed in range(flags.seed, flags.seed + flags.trials) for name in names]:
            done.result()
    print(table(results))
    return 1 if any(result["failures"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
