"""PyTorch's collectives of CPU tensors, by its ProcessGroupGloo: one line of JSON for each call and size.

usage: pytorch_collectives.py WORKERS
"""
import json
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

SIZES = ((4 << 10, 100), (64 << 10, 100), (1 << 20, 40), (16 << 20, 10), (64 << 20, 5))


def time_of(rounds, call):
    times = []
    for _ in range(rounds + 2):  # two to warm up
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def worker(rank, workers, rendezvous):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=workers)
    for size, rounds in SIZES:
        tensor = torch.ones(size // 4)
        share = tensor[: tensor.numel() // workers].clone()
        parts = [torch.empty_like(share) for _ in range(workers)]
        for call, make in (("all_reduce", lambda: torch.distributed.all_reduce(tensor)),
                           ("all_gather", lambda: torch.distributed.all_gather(parts, share))):
            seconds = time_of(rounds, make)
            if rank == 0:
                print(json.dumps({"call": call, "bytes": size, "us": seconds * 1e6}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (int(sys.argv[1]), folder + "/rendezvous"), nprocs=int(sys.argv[1]))
