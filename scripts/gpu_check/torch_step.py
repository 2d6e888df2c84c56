#!/usr/bin/env python3
"""PyTorch's side of gpu-check: training steps of the models of benchmarks/models.cpp, on one card. Needs torch alone.

usage: torch_step.py MODEL fp32|tf32|bf16 BATCH eager|graphs|compile|ddp cuda|cpu SECONDS
prints a JSON line, and a second one with the calls of CUDA; with 0 seconds no step is made, and it has only the number of parameters
"""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000
IMAGE = 224
TOKENS = 1024
VOCABULARY = 16384
PROFILED = 4
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


class Bottleneck(nn.Module):
    """As torchvision's, whose 3 x 3 convolution has the stride."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return functional.relu(self.main(x) + (x if self.shortcut is None else self.shortcut(x)))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class Attention(nn.Module):
    """Attention by heads in one fused operation."""

    def __init__(self, size, heads, bias, rotations=None):
        super().__init__()
        self.heads = heads
        self.rotations = rotations
        # A vision transformer's three are one matrix, as torchvision's; a Llama's are three.
        self.into = nn.ModuleList([nn.Linear(size, 3 * size, bias=bias)] if rotations is None else
                                  [nn.Linear(size, size, bias=bias) for _ in range(3)])
        self.out = nn.Linear(size, size, bias=bias)

    def forward(self, x):
        parts = self.into[0](x).chunk(3, -1) if len(self.into) == 1 else [each(x) for each in self.into]
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        if self.rotations is not None:
            query, key = self.rotations(query), self.rotations(key)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.rotations is not None)
        return self.out(y.transpose(1, 2).flatten(-2))


class VisionBlock(nn.Module):
    def __init__(self, size, hidden, heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(size, eps=1e-6), nn.LayerNorm(size, eps=1e-6)
        self.attention = Attention(size, heads, bias=True)
        self.dense = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.dense(self.norm_2(x))


class VisionTransformer(nn.Module):
    """ViT-B/16."""

    def __init__(self, size=768, hidden=3072, heads=12, layers=12, patch=16):
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.places = nn.Parameter(torch.randn(1, (IMAGE // patch) ** 2 + 1, size) * 0.02)
        self.blocks = nn.Sequential(*(VisionBlock(size, hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.head = nn.Linear(size, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Rotations(nn.Module):
    def __init__(self, size):
        super().__init__()
        speeds = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(TOKENS), torch.cat([speeds, speeds]))
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cosines.to(x.dtype) + turned * self.sines.to(x.dtype)


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))


class DecoderBlock(nn.Module):
    def __init__(self, size, hidden, heads, rotations):
        super().__init__()
        self.norm_1, self.norm_2 = RmsNorm(size), RmsNorm(size)
        self.attention = Attention(size, heads, bias=False, rotations=rotations)
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        y = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A Llama whose embeddings give the logits, too."""

    def __init__(self, size=768, hidden=2048, heads=12, layers=12):
        super().__init__()
        self.embeddings = nn.Embedding(VOCABULARY, size)
        nn.init.normal_(self.embeddings.weight, std=0.02)
        rotations = Rotations(size // heads)
        self.blocks = nn.Sequential(*(DecoderBlock(size, hidden, heads, rotations) for _ in range(layers)))
        self.norm = RmsNorm(size)

    def forward(self, tokens):
        return functional.linear(self.norm(self.blocks(self.embeddings(tokens))), self.embeddings.weight).transpose(1, 2)


def make(name):
    """The model."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    if name.startswith("resnet50_224"):
        return resnet50()
    if name == "vit_b":
        return VisionTransformer()
    if name == "decoder_100m":
        return Decoder()
    sys.exit(f"torch_step: unknown model {name}")


def batch_of(name, size):
    """A batch that stays the same, and its labels."""
    if name == "decoder_100m":
        return torch.randint(VOCABULARY, (size, TOKENS)), torch.randint(VOCABULARY, (size, TOKENS))
    if name == "mlp":
        return torch.randn(size, 784), torch.randint(10, (size,))
    return torch.randn(size, 3, IMAGE, IMAGE), torch.randint(CLASSES, (size,))


class Step:
    def __init__(self, name, precision, size, mode, device):
        torch.manual_seed(1)
        self.device, self.half = device, precision == "bf16"
        layout = torch.channels_last if name.endswith("_last") else torch.contiguous_format
        net = make(name).to(device).to(memory_format=layout)
        self.parameters = sum(parameter.numel() for parameter in net.parameters())
        self.x, self.y = (part.to(device) for part in batch_of(name, size))
        if self.x.dim() == 4:
            self.x = self.x.contiguous(memory_format=layout)
        if mode == "compile":
            net = torch.compile(net)
        if mode == "ddp":
            net = nn.parallel.DistributedDataParallel(net, device_ids=[0] if device == "cuda" else None, gradient_as_bucket_view=True)
        self.net = net
        self.adam = torch.optim.Adam(net.parameters(), 1e-3, fused=True, capturable=mode == "graphs")
        self.loss = None

    def __call__(self):
        self.adam.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half, cache_enabled=True):
            logits = self.net(self.x)
        loss = functional.cross_entropy(logits.float(), self.y)
        loss.backward()
        self.loss = loss.detach()
        self.adam.step()


def in_a_graph(step):
    """Returns what replays the step, as PyTorch's documentation captures a whole one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    step.adam.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(call, wait, seconds, between):
    """(seconds of a step, seconds until its call returns): medians."""
    steps, hosts = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(steps) < 3:
        wait()
        begin = time.perf_counter()
        for _ in range(between):
            call()
        returned = time.perf_counter()
        wait()
        steps.append((time.perf_counter() - begin) / between)
        hosts.append((returned - begin) / between)
    return statistics.median(steps), statistics.median(hosts)


def calls_of(call):
    """(launches, waits) of a step, as benchmarks/card_step.cpp counts them."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            call()
        torch.cuda.synchronize()
    names = [event.name() for event in found.profiler.kineto_results.events()]
    launches = sum(name.startswith(LAUNCHES) for name in names)
    return launches / PROFILED, (sum(name.startswith(WAITS) for name in names) - 1) / PROFILED


def times(step, call, on_card, seconds):
    """The figures of steps."""
    wait = torch.cuda.synchronize if on_card else lambda: None
    for _ in range(10 if on_card else 1):
        call()
    took, host = measure(call, wait, seconds, 10 if on_card else 1)
    figures = {"us": took * 1e6, "host_us": host * 1e6, "loss": step.loss.item()}
    if on_card:
        figures["peak_bytes"] = torch.cuda.max_memory_allocated()
    return figures


def main():
    name, precision, size, mode, device, seconds = sys.argv[1:7]
    on_card = device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if mode == "ddp":
        torch.distributed.init_process_group("nccl" if on_card else "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    step = Step(name, precision, int(size), mode, device)
    figures = {"step": name, "mode": mode, "batch": int(size), "parameters": step.parameters}
    if float(seconds) > 0:
        call = in_a_graph(step) if mode == "graphs" else step
        figures.update(times(step, call, on_card, float(seconds)))
    print(json.dumps(figures), flush=True)
    if on_card and float(seconds) > 0:  # what fails here leaves the line above
        figures["launches"], figures["waits"] = calls_of(call)
        print(json.dumps(figures), flush=True)
    if mode == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
