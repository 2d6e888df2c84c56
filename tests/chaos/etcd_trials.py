#!/usr/bin/env python3
"""Many runs of two workers whose membership etcd keeps: each kills, at random moments, the chief, the other worker or both, and one
member of etcd of three, which is started again later. Every run has to end with the step and the bits of one that was left alone.

Usage: etcd_trials.py COHORT [--trials 20] [--seed 1]
"""
import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import etcd  # noqa: E402
from etcd_runs import Run  # noqa: E402

CHECKPOINTS = range(50, 550, 50)  # of a run; the last ones leave time for what follows


def trial(cohort, rng, wanted):
    servers = etcd.EtcdServers(3)
    victims = rng.choice([[0], [1], [0, 1], [1, 0]])
    member = rng.randrange(3)
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(cohort, servers.coordination, folder)
            try:
                run.wait_for_checkpoint(rng.choice(CHECKPOINTS[:3]))
                time.sleep(rng.uniform(0.0, 0.5))
                servers.kill(member)
                for victim in victims:
                    time.sleep(rng.uniform(0.0, 0.5))
                    run.kill(victim)
                time.sleep(rng.uniform(0.0, 5.0))
                servers.start(member)
                result = run.end()
                if (result[0]["step"], result[1]) != wanted:
                    raise RuntimeError(f"other weights or step {result[0]['step']}, wanted {wanted[0]}: {run.said()}")
                starts = [worker.starts for worker in run.workers]
            finally:
                run.close()
    finally:
        servers.close()
    return f"killed workers {victims} and member {member}; starts {starts}; {time.monotonic() - begin:.1f} s"


def undisturbed(cohort):
    servers = etcd.EtcdServers(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(cohort, servers.coordination, folder)
            try:
                record, weights = run.end()
                return record["step"], weights
            finally:
                run.close()
    finally:
        servers.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cohort")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if etcd.MISSING:
        print(f"skipped: {etcd.MISSING}")
        return 0
    wanted = undisturbed(options.cohort)
    failed = 0
    for number in range(options.seed, options.seed + options.trials):
        try:
            print(f"trial {number}: {trial(options.cohort, random.Random(number), wanted)}", flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"trial {number} FAILED: {error}", flush=True)
    print(f"{options.trials - failed} of {options.trials} trials ended with the same step and bits")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
