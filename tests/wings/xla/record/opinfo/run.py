#!/usr/bin/env python3
"""Runs the samples of PyTorch's operator database through the recorder, StableHLO and XLA's plugin for CPUs, and compares the results
with LibTorch's.

usage: run.py LIBRARY PLUGIN [OPERATION ...]

Needs Debian's python3-torch (1.13) and expecttest. Prints the samples that fail and why, grouped, and the share that passes; the status is 0 if
at least 99 % do and what fails is known. Gradients of the samples that have them are compared, too.
"""
import collections
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db

WANTED = set("""add sub mul div addmm mm bmm matmul linear nn.functional.linear relu nn.functional.relu nn.functional.conv2d
nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.batch_norm nn.functional.layer_norm
nn.functional.gelu nn.functional.embedding nn.functional.cross_entropy nn.functional.nll_loss log_softmax softmax sum mean amax var
exp log sqrt rsqrt tanh sigmoid pow neg abs sign cat stack split chunk narrow select index_select gather scatter scatter_add index_put
expand reshape view permute transpose t flatten squeeze unsqueeze where masked_fill clamp maximum minimum eq lt gt le ge ne logical_not
cumsum topk sort argmax fill zero_like ones_like zeros_like full_like native_layer_norm addcmul addcdiv lerp nn.functional.pad flip roll""".split())
TOLERANCE = 1e-5
# Operations of which some samples fail, and why. A failure of any other operation is news.
KNOWN = {
    "index_put": "indices that are booleans: how many elements they name is known only when their values are",
    "masked_fill": "the gradient of a value that is a tensor reads masked_select, whose size depends on values",
    "native_layer_norm": "one element alone has no variance: its gradient is what rounding leaves, over the square root of epsilon",
}


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device) for v in value)
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    if isinstance(value, torch.device):
        return torch.device(device)
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return []


def distance(got, wanted):
    """Returns the largest difference, relative to 1 + |wanted|; infinite if the types differ."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return float("inf")
    if wanted.numel() == 0:
        return 0.0
    if not wanted.dtype.is_floating_point:
        return 0.0 if torch.equal(got, wanted) else float("inf")
    a, b = got.detach().double(), wanted.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, torch.zeros_like(a), (a - b).abs() / (1 + b.abs())).nan_to_num(nan=float("inf")).max())


def outcome(op, sample, device):
    input, args, kwargs = moved(sample.input, device), moved(sample.args, device), moved(sample.kwargs, device)
    results = [t for t in tensors(op(input, *args, **kwargs))]
    leaves = [t for t in tensors([input, args, kwargs]) if t.requires_grad and t.is_leaf]
    slopes = [r for r in results if r.requires_grad]
    if leaves and slopes:
        total = sum((r * torch.arange(r.numel(), dtype=torch.float32).sin().reshape(r.shape).to(device)).sum() for r in slopes)
        total.backward()
    return [r.cpu() for r in results] + [t.grad.cpu() for t in leaves if t.grad is not None]


def try_sample(op, sample):
    wanted = outcome(op, sample, "cpu")
    got = outcome(op, sample, "xla:0")
    if len(got) != len(wanted):
        return f"{len(got)} results instead of {len(wanted)}"
    worst = max((distance(g, w) for g, w in zip(got, wanted)), default=0.0)
    return None if worst <= TOLERANCE else f"differs by {worst:.1e}"


def main(library, plugin, only):
    torch.ops.load_library(library)
    torch.ops.cohort_opinfo.open(plugin)
    total = passed = 0
    failures = collections.Counter()
    for op in op_db:
        if op.name not in (only or WANTED):
            continue
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
            total += 1
            try:
                why = try_sample(op, sample)
            except Exception as error:  # whatever it is, the sample fails
                why = str(error).split("\n")[0][:150]
            passed += why is None
            if why:
                failures[op.name, why] += 1
    for (name, why), count in sorted(failures.items()):
        print(f"{count:4} {name}: {why} ({KNOWN.get(name, 'NOT KNOWN')})")
    print(f"{passed} of {total} samples pass, {100.0 * passed / max(total, 1):.2f} %")
    return 0 if passed >= 0.99 * total and all(name in KNOWN for name, _ in failures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], set(sys.argv[3:])))
