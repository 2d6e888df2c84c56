#!/usr/bin/env python3
"""Prints where the microseconds of a training step on CPUs go:

    python3 benchmarks/profile_step.py --bench build/release/bin/cohort_bench [--models mlp cnn] [--replicas 1 2]

`cohort_bench profile` takes the times and looks at the stacks of the replicas' threads (sampler.h); here each sample gets the kind
of work of the innermost function that tells it. Loops in libraries without symbols have no name, but what called them has.
"""
import argparse
import bisect
import collections
import json
import os
import re
import subprocess

# In this order, a pattern of the library or of the function; the first that fits a function tells its kind.
KINDS = [
    ("products", r"libopenblas|libblas|libmkl|libblis|gemm|gemv"),
    ("convolution", r"libdnnl|dnnl|onvolution|slow_conv|max_pool|avg_pool"),
    ("waiting", r"^(sched_yield|nanosleep|clock_nanosleep|pthread_cond_\w+|pthread_mutex_lock|syscall|poll|futex)\b|"
                r"cohort::.*(\bwait|Rendezvous::|meet|spin|ReplicaThreads::)"),
    ("exchange", r"cohort::.*(all_reduce|reduce_scatter|all_gather|add_up|shared_sum|Exchange|exchange)"),
    ("update", r"cohort::(?!kernels::.*(bias|entropy)).*(kernels?::|update_|Update|apply_rule|step_part)"),
    ("allocation", r"^(malloc|free|calloc|realloc|posix_memalign|aligned_alloc|cfree|operator new|operator delete)\b|"
                   r"c10::(alloc_cpu|free_cpu|StorageImpl)|DefaultCPUAllocator|at::detail::empty_|at::native::empty"),
    ("elementwise", r"at::native::|at::TensorIteratorBase::(for_each|serial_for_each)|libsleef|at::cpu::|structured_|cohort::kernels::.*(bias|entropy)"),
    ("dispatch", r"c10::Dispatcher|at::_ops::|c10::impl::|at::redispatch|at::TensorIterator|at::(functionalization|meta)::"),
    ("autograd", r"torch::autograd::|torch::jit::"),
    ("modules", r"torch::nn::|cohort::.*(Layer|Dense|forward|models::)"),
    ("strategy", r"cohort::"),
]
KINDS = [(kind, re.compile(pattern)) for kind, pattern in KINDS]
ORDER = [kind for kind, _ in KINDS] + ["other"]


class Names:
    """The functions of a library by their address, from its symbols."""

    def __init__(self, file):
        self.library = os.path.basename(file)
        found = {}
        for table in (["-D"], []):
            listing = subprocess.run(["nm", "-C", "--defined-only", "-S", *table, file], capture_output=True, text=True)
            for line in listing.stdout.splitlines():
                parts = line.split(" ", 3)
                if len(parts) == 4 and parts[2] in "tTwWiV":
                    found[int(parts[0], 16)] = (int(parts[1], 16), parts[3])
        self.begins = sorted(found)
        self.functions = [found[begin] for begin in self.begins]

    def of(self, address):
        at = bisect.bisect_right(self.begins, address) - 1
        if at < 0:
            return ""
        size, name = self.functions[at]
        return name if address < self.begins[at] + size else ""


def kind_of(stack, names):
    # No signal comes to a thread while oneDNN multiplies (src/ops/matrix_product.cpp): it comes when that is done.
    if any("multiplied_by_onednn" in names[library].of(address - 1) for library, address in stack[:4] if library >= 0):
        return "products"
    for library, address in stack:
        if library < 0:
            return "convolution"  # oneDNN generates its loops, which no library has
        known = names[library]
        for text in (known.of(address - 1), known.library):
            for kind, pattern in KINDS:
                if text and pattern.search(text):
                    return kind
    return "other"


def place_of(stack, names):
    """The innermost operators of LibTorch and functions of Cohort."""
    found = []
    for library, address in stack:
        name = names[library].of(address - 1) if library >= 0 else ""
        function = re.search(r"at::_ops::(\w+)::|(\w+Backward0)::apply|(cohort::[^(<]*)", name)
        if function:
            found.append(next(filter(None, function.groups())))
    return " in ".join(dict.fromkeys(found[:6]))


def profile(bench, model, replicas, seconds):
    command = [bench, "--seconds", str(seconds), "profile", "--model", model, "--replicas", str(replicas)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60 + 60 * seconds,
                         env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    times, sampled = (json.loads(line) for line in run.stdout.splitlines())
    names = [Names(bench if file == "/proc/self/exe" else file) for file in sampled["libraries"]]
    counts = collections.Counter(kind_of(stack, names) for stack in sampled["stacks"])
    return times, counts, [(stack, names) for stack in sampled["stacks"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="cohort_bench")
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn"])
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--kind", choices=ORDER, help="prints where the time of this kind goes, too")
    options = parser.parse_args()
    columns = [(model, replicas) for model in options.models for replicas in options.replicas]
    results = {column: profile(options.bench, *column, options.seconds) for column in columns}
    print("| us of a step | " + " | ".join(f"{model}, {replicas} replica{'s'[:replicas > 1]}" for model, replicas in columns) + " |")
    print("|---|" + "---|" * len(columns))

    def row(title, value):
        print(f"| {title} | " + " | ".join(value(*results[column]) for column in columns) + " |")

    row("**the whole step**", lambda times, counts, _: f"**{times['step_us']:,.0f}**")
    for kind in ORDER:
        row(kind, lambda times, counts, _: f"{times['step_us'] * counts[kind] / max(1, counts.total()):,.0f}")
    row("forward and backward of LibTorch alone", lambda times, counts, _: f"{times['passes_us']:,.0f}")
    for name, key in (("by LibTorch", "products_us"), ("by what multiplies in the step", "own_products_us")):
        row(f"its products alone, {name}", lambda times, counts, _: f"{times[key]:,.0f}")
        row("the step over these", lambda times, counts, _: f"{times['step_us'] / times[key]:.2f}")
    row("samples", lambda times, counts, _: f"{counts.total():,}")
    if options.kind:
        for column, (times, counts, stacks) in results.items():
            print(f"\n{options.kind} of {column[0]}, {column[1]} replicas, us a step, by the function of LibTorch or Cohort around it:")
            seen = collections.Counter(place_of(stack, names) for stack, names in stacks
                                       if kind_of(stack, names) == options.kind)
            for place, count in seen.most_common(12):
                print(f"{times['step_us'] * count / max(1, counts.total()):9,.0f}  {place}")


if __name__ == "__main__":
    main()
