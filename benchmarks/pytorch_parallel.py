"""PyTorch's side of models that are divided: two processes of one thread over Gloo, or one process of THREADS.

usage: pytorch_parallel.py WHAT SECONDS [THREADS]
  1f1b, gpipe, interleaved     the transformer in stages, a batch of 16 in 8 microbatches (torch.distributed.pipelining)
  fsdp2, fsdp2_kept            the transformer with its parameters shared, 8 examples each; kept after forward
  tensor                       the block of d = 512 by DTensor, 8 examples
  transformer, block, unet     one process with the whole batch; the U-Net has an image of 512 x 512
prints one JSON line
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from pytorch_step import CLASSES, FASTEST, make, report, times_of

MICROBATCHES, PIPELINE_BATCH, TENSOR_BATCH = 8, 16, 8
D, HEADS, IMAGE, PATCH = 512, 8, 176, 16


class Stage(nn.Module):
    """A part of torchvision's vision transformer: some of its layers, with what comes before the first one and after the last one."""

    def __init__(self, net, begin, end):
        super().__init__()
        layers = list(net.encoder.layers)
        self.first, self.last = begin == 0, end == len(layers)
        self.layers = nn.Sequential(*layers[begin:end])
        if self.first:
            self.projection, self.token, self.places = net.conv_proj, net.class_token, net.encoder.pos_embedding
        if self.last:
            self.norm, self.heads = net.encoder.ln, net.heads

    def forward(self, x):
        if self.first:
            x = self.projection(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        x = self.layers(x)
        return self.heads(self.norm(x)[:, 0]) if self.last else x.contiguous()  # what is sent has to be


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x):
        # -1: each process has its share of the heads.
        query, key, value = (part(x).unflatten(2, (-1, D // HEADS)).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.output(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A vision transformer of one layer, whose attention has matrices that DTensor can divide."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Conv2d(3, D, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, D))
        self.places = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2 + 1, D) * 0.02)
        self.norm1, self.attention, self.norm2, self.norm = nn.LayerNorm(D), Attention(), nn.LayerNorm(D), nn.LayerNorm(D)
        self.up, self.down, self.head = nn.Linear(D, 4 * D), nn.Linear(4 * D, D), nn.Linear(D, CLASSES)

    def forward(self, x):
        x = self.projection(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        x = x + self.attention(self.norm1(x))
        x = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return self.head(self.norm(x)[:, 0])


class UNet(nn.Module):
    """As Cohort's models::unet: four levels, 16 filters at first."""

    def __init__(self, filters=16, levels=4, classes=2):
        super().__init__()
        widths = [filters << i for i in range(levels + 1)]
        self.start = self.double(3, filters)
        self.downs = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), self.double(a, b)) for a, b in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.joins = nn.ModuleList(self.double(b, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.end = nn.Conv2d(filters, classes, 1)

    @staticmethod
    def double(inputs, outputs):
        def one(channels):
            return nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)

        return nn.Sequential(*one(inputs), *one(outputs))

    def forward(self, x):
        seen = [self.start(x)]
        for down in self.downs:
            seen.append(down(seen[-1]))
        x = seen.pop()
        for up, join in zip(self.ups, self.joins):
            x = join(torch.cat([seen.pop(), up(x)], 1))
        return self.end(x)


def adam_of(parameters):
    return torch.optim.Adam(parameters, 1e-3, **FASTEST)


def images(count, edge=IMAGE):
    return torch.randn(count, 3, edge, edge), torch.randint(CLASSES, (count,))


def trained(net, x, y, seconds):
    adam = adam_of(net.parameters())

    def step():
        adam.zero_grad(set_to_none=True)
        functional.cross_entropy(net(x), y).backward()
        adam.step()

    return times_of(step, seconds)


def pipeline(rank, schedule, seconds):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    net = make("transformer")[0]
    count = 4 if schedule == "interleaved" else 2
    layers = 4 // count
    cuts = [PipelineStage(Stage(net, i * layers, (i + 1) * layers), i, count, torch.device("cpu")) for i in range(rank, count, 2)]
    options = {"n_microbatches": MICROBATCHES, "loss_fn": functional.cross_entropy}
    if schedule == "interleaved":
        runner = ScheduleInterleaved1F1B(cuts, **options)
    else:
        runner = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[schedule](cuts[0], **options)
    adam = adam_of([parameter for cut in cuts for parameter in cut.submod.parameters()])
    x, y = images(PIPELINE_BATCH)

    def step():
        adam.zero_grad(set_to_none=True)
        if rank == 0:
            runner.step(x)
        else:
            runner.step(target=y, losses=[])
        adam.step()

    return times_of(step, seconds), PIPELINE_BATCH


def sharded(_, what, seconds):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net, size, _ = make("transformer")
    options = {"mesh": init_device_mesh("cpu", (2,)), "reshard_after_forward": what == "fsdp2"}
    for layer in net.encoder.layers:
        fully_shard(layer, **options)
    fully_shard(net, **options)
    return trained(net, *images(size), seconds), 2 * size


def tensor(_, __, seconds):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns, rows = ("attention.query", "attention.key", "attention.value", "up"), ("attention.output", "down")
    plan = {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}
    net = parallelize_module(Block(), init_device_mesh("cpu", (2,)), plan)
    x, y = images(TENSOR_BATCH)
    # A fused update takes no mix of tensors and DTensors.
    whole, cut = [], []
    for parameter in net.parameters():
        (cut if hasattr(parameter, "to_local") else whole).append(parameter)
    adam = adam_of([{"params": whole}, {"params": cut}])

    def step():
        adam.zero_grad(set_to_none=True)
        functional.cross_entropy(net(x), y).backward()
        adam.step()

    return times_of(step, seconds), TENSOR_BATCH


DIVIDED = {"1f1b": pipeline, "gpipe": pipeline, "interleaved": pipeline, "fsdp2": sharded, "fsdp2_kept": sharded, "tensor": tensor}


def worker(rank, what, seconds, rendezvous):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
    times, size = DIVIDED[what](rank, what, seconds)
    if rank == 0:
        report(what, "divided", times, size)
    dist.barrier()
    dist.destroy_process_group()


def alone(what, seconds):
    if what == "unet":
        x, y = torch.randn(1, 3, 512, 512), torch.randint(2, (1, 512, 512))
        return trained(UNet(), x, y, seconds), 1
    if what == "block":
        return trained(Block(), *images(TENSOR_BATCH), seconds), TENSOR_BATCH
    return trained(make("transformer")[0], *images(PIPELINE_BATCH), seconds), PIPELINE_BATCH


def main():
    what, seconds = sys.argv[1], float(sys.argv[2])
    if what in DIVIDED:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(worker, (what, seconds, os.path.join(folder, "rendezvous")), nprocs=2)
        return
    torch.set_num_threads(int(sys.argv[3]))
    torch.manual_seed(1)
    report(what, "one process", *alone(what, seconds), threads=int(sys.argv[3]))


if __name__ == "__main__":
    main()
