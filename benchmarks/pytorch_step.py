"""PyTorch's side: training steps of the same models, one process (eager) or two with DistributedDataParallel over Gloo.

usage: pytorch_step.py MODEL eager|ddp SECONDS [THREADS]      prints one JSON line
"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

CLASSES = 10


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(), conv(width, width, 3, stride),
                                  nn.BatchNorm2d(width), nn.ReLU(), conv(width, outputs, 1), nn.BatchNorm2d(outputs))
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


def resnet50():
    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if i == 0 and stage > 0 else 1))
            inputs = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def make(name):
    """The model, its batch a replica and the shape of an example."""
    if name == "mlp":
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        return net, 64, (784,)
    if name == "cnn":
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(9216, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        return net, 64, (1, 28, 28)
    return resnet50(), 8, (3, 64, 64)


def median_step(name, seconds, wrap=lambda net: net):
    torch.manual_seed(1)
    net, size, shape = make(name)
    net = wrap(net)
    adam = torch.optim.Adam(net.parameters(), 1e-3, foreach=True)
    x = torch.randn(size, *shape)
    y = torch.randint(CLASSES, (size,))

    def step():
        adam.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()

    for _ in range(5):
        step()
    # A fixed number of steps, so that two processes do the same.
    start = time.perf_counter()
    for _ in range(5):
        step()
    count = torch.tensor(max(5, int(seconds * 5 / (time.perf_counter() - start))))
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(count, 0)
    times = []
    for _ in range(int(count)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times), size


def ddp_worker(rank, name, seconds, rendezvous):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
    took, size = median_step(name, seconds, lambda net: nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True))
    if rank == 0:
        report(name, "ddp", took, 2 * size)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def report(name, mode, took, samples, **more):
    print(json.dumps({"step": name, "mode": mode, "us": took * 1e6, "samples_per_second": samples / took, **more}), flush=True)


def main():
    name, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if mode == "ddp":
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(ddp_worker, (name, seconds, os.path.join(folder, "rendezvous")), nprocs=2)
        return
    threads = int(sys.argv[4])
    torch.set_num_threads(threads)
    took, size = median_step(name, seconds)
    report(name, mode, took, size, threads=threads)


if __name__ == "__main__":
    main()
