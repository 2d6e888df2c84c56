"""Starts the workers of a program on a Ray cluster, one on each place that has the CPUs and GPUs.

    python train.py --workers=2 -- cohort train --experiment=mnist_mlp --distribution_strategy=multi_worker_mirrored --model_dir=/shared/run

Or as a job: ray job submit --working-dir=. -- python train.py --workers=2 -- cohort train ...
The program has the same path on all nodes. Ends with the status of the first worker that failed.
"""
import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(max_restarts=0)
class Worker:
    def address(self):
        """An address that the others reach, with a port that is free now."""
        host = ray.util.get_node_ip_address()
        with socket.socket() as listener:
            listener.bind((host, 0))
            return host, listener.getsockname()[1]

    def run(self, command, variables, secret):
        # The workers know each other by the secret, in a file that this user alone can read.
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(secret)
            file.flush()
            return subprocess.run(command, env={**os.environ, **variables, "COHORT_SECRET_FILE": file.name}, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of a worker")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of a worker")
    parser.add_argument("command", nargs="+", help="the program and its arguments, behind --")
    flags = parser.parse_args()
    ray.init()
    group = placement_group([{"CPU": flags.cpus, "GPU": flags.gpus} if flags.gpus else {"CPU": flags.cpus}] * flags.workers, strategy="SPREAD")
    ray.get(group.ready())
    workers = [Worker.options(num_cpus=flags.cpus, num_gpus=flags.gpus, scheduling_strategy=PlacementGroupSchedulingStrategy(group, i)).remote()
               for i in range(flags.workers)]
    host, port = ray.get(workers[0].address.remote())
    secret = secrets.token_urlsafe(32)
    running = [worker.run.remote(flags.command, {"RANK": str(rank), "WORLD_SIZE": str(flags.workers), "MASTER_ADDR": host, "MASTER_PORT": str(port)}, secret)
               for rank, worker in enumerate(workers)]
    status = 0
    while running and status == 0:
        ended, running = ray.wait(running)
        status = ray.get(ended[0])
    sys.exit(status)


main()
