"""PyTorch's side: training steps of the same models, one process (eager, or compiled by torch.compile) or two with DistributedDataParallel
over Gloo. Adam is fused where the version has that for CPUs, else foreach.

usage: pytorch_step.py MODEL eager|eager_last|compiled|compiled_last|ddp|ddp_last|ddp_zero SECONDS [THREADS]
prints one JSON line; _last: with channels_last, _zero: with ZeroRedundancyOptimizer
"""
import json
import os
import statistics
import sys
import tempfile

import torch
import torch.distributed.optim
from torch import nn
from torchvision import models

from step_clock import clock

CLASSES = 10
FASTEST = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {"foreach": True}


def make(name):
    """The model, its batch a replica and the shape of an example."""
    if name == "mlp":
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        return net, 64, (784,)
    if name == "cnn":
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(9216, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        return net, 64, (1, 28, 28)
    if name == "vit_tiny":
        net = models.VisionTransformer(image_size=64, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768,
                                       num_classes=CLASSES)
        return net, 8, (3, 64, 64)
    if name == "transformer":
        net = models.VisionTransformer(image_size=176, patch_size=16, num_layers=4, num_heads=4, hidden_dim=256, mlp_dim=1024, num_classes=CLASSES)
        return net, 8, (3, 176, 176)
    return models.resnet50(num_classes=CLASSES), 8, (3, 64, 64)


def times_of(step, seconds):
    """The seconds of each step; the same number of steps in all processes."""
    for _ in range(5):
        step()
    start = clock()
    for _ in range(5):
        step()
    count = torch.tensor(max(5, int(seconds * 5 / (clock() - start))))
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(count, 0)
    times = []
    for _ in range(int(count)):
        start = clock()
        step()
        times.append(clock() - start)
    return times


def step_times(name, seconds, wrap=lambda net: net, layout=torch.contiguous_format, zero=False):
    torch.manual_seed(1)
    net, size, shape = make(name)
    net = wrap(net.to(memory_format=layout))
    if zero:
        adam = torch.distributed.optim.ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3, **FASTEST)
    else:
        adam = torch.optim.Adam(net.parameters(), 1e-3, **FASTEST)
    x = torch.randn(size, *shape).contiguous(memory_format=layout)
    y = torch.randint(CLASSES, (size,))

    def step():
        adam.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()

    return times_of(step, seconds), size


def ddp_worker(rank, name, mode, seconds, rendezvous):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
    layout = torch.channels_last if mode == "ddp_last" else torch.contiguous_format
    times, size = step_times(name, seconds, lambda net: nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True), layout,
                             zero=mode == "ddp_zero")
    if rank == 0:
        report(name, mode, times, 2 * size)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def report(name, mode, times, samples, **more):
    took = statistics.median(times)
    print(json.dumps({"step": name, "mode": mode, "us": took * 1e6, "least_us": min(times) * 1e6, "samples_per_second": samples / took, **more}), flush=True)


def main():
    name, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if mode.startswith("ddp"):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(ddp_worker, (name, mode, seconds, os.path.join(folder, "rendezvous")), nprocs=2)
        return
    threads = int(sys.argv[4])
    torch.set_num_threads(threads)
    layout = torch.channels_last if mode.endswith("_last") else torch.contiguous_format
    times, size = step_times(name, seconds, torch.compile if mode.startswith("compiled") else lambda net: net, layout)
    report(name, mode, times, size, threads=threads)


if __name__ == "__main__":
    main()
