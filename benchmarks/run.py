#!/usr/bin/env python3
"""Runs our benchmarks and PyTorch's in turn and prints ratios, each the median of those of the rounds.

usage: run.py --bench BINARY [--rounds N] [--seconds S] [--write-docs FILE] [--only-xla | --only-sharded | --only-pipeline | --only-shared-cores]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import environments
import shared_cores
from environments import JAX

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # Debian's, which has python3-torch
WITH_BLAS = "PyTorch, 2 threads, 2 of BLAS"  # OpenBLAS's pool is apart from LibTorch's; it mostly loses
MODELS = ("mlp", "cnn", "resnet50", "vit_tiny")
CONVOLUTIONAL = ("cnn", "resnet50")
DDP_LAST = "DDP, 2 processes, channels last"  # the better of both layouts counts
LARGE = ("resnet50", "vit_tiny")  # steps of a tenth of a second and more
ROOT = HERE.parent
XLA_PLUGIN = ROOT / "build/plugins/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"
PHOTOGRAPHS = HERE.parent.parent / "shared/data/cats_vs_dogs"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def blas_environment():
    """The same for both sides, whatever it is outside: the kernels of the CPU's instruction set, where OpenBLAS 0.3.21 takes a CPU that it
    does not know for an older one."""
    environment = {name: value for name, value in os.environ.items() if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    flags = set(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
    return environment


def lines_of(command, blas_threads=1):
    environment = {**blas_environment(), "OPENBLAS_NUM_THREADS": str(blas_threads), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if '{"' in line]  # behind "[worker 0] " perhaps


def steps(arguments):
    """Samples a second of each side, {model: {side: [of each round]}}; the sides take turns."""
    results = {model: {} for model in MODELS}
    for model in MODELS:
        seconds = str(arguments.seconds * (3 if model in LARGE else 1))
        sides = {
            "ours, 2 replicas": [arguments.bench, "--seconds", seconds, "step", "--model", model, "--replicas", "2"],
            "DDP, 2 processes": [PYTHON, HERE / "pytorch_step.py", model, "ddp", seconds],
            "ours, 1 replica": [arguments.bench, "--seconds", seconds, "step", "--model", model, "--replicas", "1", "--threads", "0"],
            "ours, 1 thread": [arguments.bench, "--seconds", seconds, "step", "--model", model, "--replicas", "1"],
            "PyTorch, 1 thread": [PYTHON, HERE / "pytorch_step.py", model, "eager", seconds, "1"],
            "PyTorch, 2 threads": [PYTHON, HERE / "pytorch_step.py", model, "eager", seconds, "2"],
            WITH_BLAS: [PYTHON, HERE / "pytorch_step.py", model, "eager", seconds, "2"],
        }
        if model in CONVOLUTIONAL:
            sides[DDP_LAST] = [PYTHON, HERE / "pytorch_step.py", model, "ddp_last", seconds]
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                line = lines_of(command, blas_threads=2 if side == WITH_BLAS else 1)[0]
                results[model].setdefault(side, []).append(line["samples_per_second"])
        results[model]["DDP, 2 processes"] = best(results[model], "DDP, 2 processes", DDP_LAST)
        results[model]["PyTorch, 1 process"] = best(results[model], "PyTorch, 1 thread", "PyTorch, 2 threads", WITH_BLAS)
    return results


def best(sides, *names):
    return max((sides[name] for name in names if name in sides), key=statistics.median)


def ratio_of(ours, theirs):
    """Of the same rounds: the machine's speed drifts between them."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def against(ours, theirs, form=",.0f"):
    return f"{statistics.median(ours):{form}} / {statistics.median(theirs):{form}} = {ratio_of(ours, theirs):.2f}"


def worker_steps(arguments):
    """The same of two workers, each a process with one replica."""
    results = {model: {} for model in MODELS[:3]}
    for model in MODELS[:3]:
        seconds = str(arguments.seconds * (3 if model in LARGE else 1))
        call = [arguments.bench, "--seconds", seconds, "worker_step", "--model", model]
        sides = {
            "ours, 2 workers, TCP": [arguments.bench.replace("cohort_bench", "cohort"), "launch", "--nproc=2", "--", *call],
            "ours, 2 workers, MPI": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *call],
            "DDP, 2 processes": [PYTHON, HERE / "pytorch_step.py", model, "ddp", seconds],
        }
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                results[model].setdefault(side, []).append(lines_of(command)[0]["samples_per_second"])
    return results


def worker_report(table):
    out = ["", "| model | ours, 2 workers over TCP | ours, 2 workers over MPI | PyTorch DDP over Gloo | TCP / DDP (wanted) | MPI / DDP (wanted) |",
           "|---|---|---|---|---|---|"]
    for model, side in table.items():
        tcp, mpi, ddp = side["ours, 2 workers, TCP"], side["ours, 2 workers, MPI"], side["DDP, 2 processes"]
        wanted = {"mlp": ("1.3", "4"), "cnn": ("1.3", "-")}.get(model, ("-", "-"))
        medians = " | ".join(f"{statistics.median(values):,.0f}" for values in (tcp, mpi, ddp))
        out.append(f"| {model} | {medians} | {ratio_of(tcp, ddp):.2f} ({wanted[0]}) | {ratio_of(mpi, ddp):.2f} ({wanted[1]}) |")
    return "\n".join(out)


def sharded_report(arguments):
    """States that two workers share, beside PyTorch's data parallelism whose optimizer is divided."""
    seconds = str(3 * arguments.seconds)
    ours = [arguments.bench.replace("cohort_bench", "cohort"), "launch", "--nproc=2", "--", arguments.bench, "--seconds", seconds, "worker_step"]
    out = ["", "| 2 workers that share states | ours, ms | PyTorch's, ms | PyTorch's / ours | wanted |", "|---|---|---|---|---|"]
    for model in ("transformer", "vit_tiny", "mlp"):
        times = {side: [] for side in (1, 2, "ddp_zero")}
        for _ in range(arguments.rounds):
            for side, found in times.items():
                command = [PYTHON, HERE / "pytorch_step.py", model, side, seconds] if side == "ddp_zero" else [*ours, "--model", model, "--sharding_stage", str(side)]
                found.append(lines_of(command)[0]["us"] / 1e3)
        for stage in (1, 2):
            wanted = "1.3" if (model, stage) == ("transformer", 1) else "-"
            out.append(f"| {model}, stage {stage} beside DDP with ZeroRedundancyOptimizer | {statistics.median(times[stage]):,.2f} | "
                       f"{statistics.median(times['ddp_zero']):,.2f} | {ratio_of(times['ddp_zero'], times[stage]):.2f} | {wanted} |")
    return "\n".join(out)


def stages_report(arguments):
    """The transformer on two stages of a thread each, 8 microbatches of a batch of 16, beside one replica of one thread, with the whole batch and with one
    microbatch after the other, and of two."""
    formulas = {"1f1b": 1 / 9, "gpipe": 1 / 9, "interleaved": 1 / 17, "zero_bubble_h1": 1 / 25}
    lines = {side: [] for side in ("1", "accumulated", "2", *formulas)}
    for _ in range(arguments.rounds):
        for side, found in lines.items():
            found.append(lines_of([arguments.bench, "--seconds", str(3 * arguments.seconds), "pipeline", side])[0])
    times = {side: [line["us"] / 1e3 for line in found] for side, found in lines.items()}
    out = ["", f"| transformer on 2 stages, 8 microbatches | ms | one replica of one thread ({statistics.median(times['1']):,.0f} ms) / this | "
           f"the same, a microbatch after the other ({statistics.median(times['accumulated']):,.0f} ms) / this | of two threads "
           f"({statistics.median(times['2']):,.0f} ms) / this | wanted | stages without work | formula |", "|---|---|---|---|---|---|---|---|"]
    for side, formula in formulas.items():
        wanted = f"{0.9 * 1.78:.2f}, {0.9 * 1.78:.2f}, 1" if side == "1f1b" else "-"
        out.append(f"| {side} | {statistics.median(times[side]):,.0f} | {ratio_of(times['1'], times[side]):.2f} | "
                   f"{ratio_of(times['accumulated'], times[side]):.2f} | {ratio_of(times['2'], times[side]):.2f} | {wanted} | "
                   f"{statistics.median(line['idle'] for line in lines[side]):.1%} | {formula:.1%} |")
    return "\n".join(out)


def xla_report(arguments):
    """A step as a function on XLA's plugin for CPUs beside JAX's of the same model, each on one core; what is not here is said."""
    if not XLA_PLUGIN.is_file():
        return f"\nRecorded steps beside JAX: not run, {XLA_PLUGIN.relative_to(ROOT)} is absent (`scripts/install-deps.sh xla`)."
    python = environments.python_of(f"jax-{JAX}")
    if python is None:
        return f"\nRecorded steps beside JAX: not run, JAX {JAX} cannot be installed from PyPI."
    core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    out = ["", f"| recorded step, XLA on one core | ours, ms | JAX {JAX}, ms | ours / JAX | wanted, at most |", "|---|---|---|---|---|"]
    for model in MODELS[:3]:
        seconds = str(arguments.seconds * (5 if model in LARGE else 1))
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            ours.append(lines_of([*core, arguments.bench, "--seconds", seconds, "step", "--model", model, "--replicas", "1",
                                  "--xla_plugin", str(XLA_PLUGIN)])[0]["us"] / 1e3)
            theirs.append(lines_of([*core, python, HERE / "jax_step.py", model, seconds])[0]["us"] / 1e3)
        out.append(f"| {model} | {statistics.median(ours):,.2f} | {statistics.median(theirs):,.2f} | {ratio_of(ours, theirs):.2f} | 1.1 |")
    launch = lines_of([arguments.bench, "launch", "--plugin", str(XLA_PLUGIN)])[0]
    recording = lines_of([arguments.bench, "recording"])[0]
    return "\n".join([*out, "", f"Beginning a small program there takes {launch['us']:.1f} us (wanted: at most 60), recording ResNet-50 forward and backward "
                      f"{recording['us'] / 1e3:.1f} ms (wanted: at most 50)."])


def shared_cores_report(arguments):
    ddp = [PYTHON, HERE / "pytorch_step.py", "mlp", "ddp", str(arguments.seconds)]
    return shared_cores.report(arguments, lambda command: lines_of(command)[0]["samples_per_second"], ddp)


def start_report(arguments):
    """From the launch to the end of workers that only meet."""
    call = [arguments.bench.replace("cohort_bench", "cohort"), "launch"]
    times = []
    for workers in (2, 8):
        rounds = []
        for _ in range(arguments.rounds):
            begin = time.monotonic()
            lines_of([*call, f"--nproc={workers}", "--", arguments.bench, "worker_start"])
            rounds.append(time.monotonic() - begin)
        times.append(f"{workers} workers {statistics.median(rounds):.1f} s")
    return f"\nStart-up, from the launch to the end of processes that only meet: {', '.join(times)} (wanted: 8 under 5)."


def checkpoint_report(line):
    return (f"\nA checkpoint of {line['checkpoint'] / 1e9:.1f} GB stalls training for {line['stall_ms']:.0f} ms (a copy of its tensors takes "
            f"{line['copy_ms']:.0f} ms) and is on the disk after {line['write_ms']:.0f} ms.")


def server_report(arguments):
    """Parameter servers: two of them, beside a plain TCP copy and PyTorch's RPC."""
    def launch(what, *tasks):
        return lines_of([arguments.bench.replace("cohort_bench", "cohort"), "launch", *tasks, "--", arguments.bench,
                         "--seconds", str(arguments.seconds), "parameter_server", what])

    def value(lines, key):
        return max(line[key] for line in lines if key in line)

    dense, tcp, rows, memory, ours, theirs, alone = [], [], [], [], [], [], []
    for _ in range(arguments.rounds):
        lines = launch("dense", "--ps=2", "--workers=1")
        dense.append(value(lines, "ps_dense_gb_per_second"))
        tcp.append(value(lines, "tcp_gb_per_second"))
        lines = launch("rows", "--ps=2", "--workers=1")
        rows.append(value(lines, "ps_rows_per_second"))
        memory.append(value(lines, "ps_memory_ratio"))
        ours.append(value(launch("recommender", "--ps=2", "--workers=2"), "ps_steps_per_second"))
        theirs.append(lines_of([PYTHON, HERE / "torch_rpc.py", "2", "2", "1000", "4000000", "64", "512"])[0]["steps_per_second"])
        alone.append(sum(line["arithmetic_steps_per_second"] for line in launch("arithmetic", "--nproc=2")))
    return "\n".join(["", "| parameter servers (2) | measured | wanted |", "|---|---|---|",
                      f"| 100 MB of gradients there and values back, GB/s, over a plain TCP copy | {against(dense, tcp, '.1f')} | 0.5 |",
                      f"| rows of 64 looked up and updated by one worker, a second | {statistics.median(rows):,.0f} | 400,000 |",
                      f"| recommender, 2 workers, steps a second, over PyTorch's RPC | {against(ours, theirs)} | 5 |",
                      f"| its arithmetic in two processes by LibTorch with nothing between, over the same | {against(alone, theirs)} | - |",
                      f"| a server's memory over parameters and slots | {statistics.median(memory):.2f} | 1.1 |"])


def files_report(arguments):
    """Reading photographs and TFRecords, and bfloat16."""
    out = ["", "| files and precision | measured | wanted |", "|---|---|---|"]
    if PHOTOGRAPHS.is_dir():
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            ours.append(lines_of([arguments.bench, "images", str(PHOTOGRAPHS)])[0])
            theirs.append(lines_of([PYTHON, HERE / "torch_images.py", str(PHOTOGRAPHS)])[0])
        pairs = list(zip(ours[0]["probe"], theirs[0]["probe"], strict=True))
        if not pairs or max(abs(a - b) for a, b in pairs) > 2 / 255 / 0.224:
            sys.exit("the images differ by more than two levels of 255 from torchvision's")
        ours, theirs = ([line["images_per_second"] for line in side] for side in (ours, theirs))
        out.append(f"| photographs decoded, resized to 224, normalised, in batches, a second, over torchvision's DataLoader with 2 workers | "
                   f"{against(ours, theirs)} | 2 |")
    records = lines_of([arguments.bench, "tfrecord"])[0]["tfrecord_gb_per_second"]
    out.append(f"| TFRecords from the page cache with their checksums, GB/s | {records:.1f} | 1.5 |")
    line = lines_of([arguments.bench, "--seconds", str(3 * arguments.seconds), "precision"])[0]
    out.append(f"| ResNet-50, 2 replicas, a step in float32 over one in bfloat16 | {line['float32_ms']:.0f} / {line['bfloat16_ms']:.0f} ms = "
               f"{line['float32_ms'] / line['bfloat16_ms']:.2f} | - |")
    return "\n".join(out)


def report(results, empty, reduce, pipeline):
    out = ["| model | ours, 2 replicas | ours, 1 replica | ours, 1 replica of 1 thread | PyTorch, 1 process (its best threads) "
           "| PyTorch DDP, 2 processes |", "|---|---|---|---|---|---|"]
    for model, sides in results.items():
        shown = ("ours, 2 replicas", "ours, 1 replica", "ours, 1 thread", "PyTorch, 1 process", "DDP, 2 processes")
        out.append(f"| {model} | " + " | ".join(f"{statistics.median(sides[side]):,.0f}" for side in shown) + " |")
    out += ["", "Samples a second; medians of alternating runs. Ratios are medians of those of the same round.", "", "| ratio | measured | wanted |", "|---|---|---|"]

    def ratio(name, ours, theirs, wanted):
        out.append(f"| {name} | {ratio_of(ours, theirs):.2f} | {wanted} |")

    mlp = results["mlp"]
    ratio("MLP: ours with 2 replicas / DDP", mlp["ours, 2 replicas"], mlp["DDP, 2 processes"], 7)
    ratio("MLP: ours with 2 replicas / PyTorch in one process", mlp["ours, 2 replicas"], mlp["PyTorch, 1 process"], 2.7)
    ratio("MLP: ours with 1 replica (its best threads) / PyTorch in one process", best(mlp, "ours, 1 replica", "ours, 1 thread"),
          mlp["PyTorch, 1 process"], 1.5)
    for model, wanted in (("cnn", 1.1), ("resnet50", 1.15), ("vit_tiny", 1.15)):
        sides = results[model]
        ratio(f"{model}: ours with 2 replicas / DDP", sides["ours, 2 replicas"], sides["DDP, 2 processes"], wanted)
        ratio(f"{model}: ours with 2 replicas / with 1 of 1 thread", sides["ours, 2 replicas"], sides["ours, 1 thread"], 1.8)
    large = next(line for line in reduce if line["all_reduce"] == 64 << 20)
    ratio("all-reduce of 64 MB / plain copy, bytes a second", [large["gb_per_second"]], [large["copy_gb_per_second"]], 0.5)
    out += ["", f"An empty `strategy.run` on 2 replicas takes {empty['us']:.1f} us (wanted: under 10). The input pipeline takes "
            f"{pipeline['us']:.0f} us a batch of {pipeline['input']} ({pipeline['examples_per_second']:,.0f} examples a second).", "",
            "| all-reduce, 2 replicas | us | GB/s moved | plain copy, GB/s |", "|---|---|---|---|"]
    for line in reduce:
        size = line["all_reduce"]
        name = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} kB"
        out.append(f"| {name} | {line['us']:.1f} | {line['gb_per_second']:.1f} | {line['copy_gb_per_second']:.1f} |")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--write-docs", type=pathlib.Path)
    parser.add_argument("--only-xla", action="store_true", help="the recorded steps alone")
    parser.add_argument("--only-sharded", action="store_true", help="the workers that share states alone")
    parser.add_argument("--only-pipeline", action="store_true", help="the model that is divided among stages alone")
    parser.add_argument("--only-shared-cores", action="store_true", help="the steps on cores that others use too alone")
    arguments = parser.parse_args()
    if arguments.only_shared_cores:
        print(shared_cores_report(arguments))
        return
    if arguments.only_xla:
        print(xla_report(arguments))
        return
    if arguments.only_pipeline:
        print(stages_report(arguments))
        return
    if arguments.only_sharded:
        print(sharded_report(arguments))
        return
    results = steps(arguments)
    empty = lines_of([arguments.bench, "empty", "--replicas", "2"])[0]
    reduce = lines_of([arguments.bench, "--seconds", "0.5", "all_reduce"])
    pipeline = lines_of([arguments.bench, "input"])[0]
    text = "\n".join((report(results, empty, reduce, pipeline), worker_report(worker_steps(arguments)), sharded_report(arguments), stages_report(arguments), shared_cores_report(arguments),
                      start_report(arguments), checkpoint_report(lines_of([arguments.bench, "checkpoint"])[0]), files_report(arguments), server_report(arguments), xla_report(arguments)))
    print(text)
    if arguments.write_docs:
        page = arguments.write_docs.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        arguments.write_docs.write_text(head + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
