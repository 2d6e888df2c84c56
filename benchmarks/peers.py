#!/usr/bin/env python3
"""Runs our training steps and those of TensorFlow, PyTorch and JAX in turn and prints how many times as fast ours are: `make bench PEERS=all`.

usage: peers.py --bench BINARY [--peers all|tensorflow torch jax] [--rows mlp cnn resnet50 vit_tiny servers divided] [--only TEXT] [--rounds N]
                [--seconds S] [--least | --one-core]

Every side runs once a round, one after the other; a ratio is the median of those of the rounds, with the least and the greatest. Threads:
ours has one a replica, a side of one process has the better of one and of all cores where the peer lets one choose. The peers come from
PyPI into build/peers (environments.py); what cannot be had or fails is said to be so. --least takes each side's shortest step, of all
rounds, in place of the medians: on a machine that others use a step of which no turn of theirs is a part. --one-core runs the sides of
one process alone, each on the same core, and counts their processor time, which others do not lengthen.
"""
import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import environments
from run import HERE, LARGE, MODELS, XLA_PLUGIN, blas_environment

LIMIT = 900  # seconds for one measurement, a compilation of ResNet-50 included
# The least ratios that are wanted, of the side that is compared with: (row, start of the side's name): (ours, ratio).
OURS_2, OURS_1 = "ours, 2 replicas", "ours, 1 replica"
WANTED = {
    ("mlp", "PyTorch, eager"): (OURS_2, 3.2), ("mlp", "PyTorch, DDP"): (OURS_2, 7), ("mlp", "TensorFlow, XLA, loop"): (OURS_1, 1.3),
    ("cnn", "PyTorch, DDP"): (OURS_2, 1.3), ("cnn", "TensorFlow"): (OURS_2, 1.3),
    ("resnet50", "PyTorch, DDP"): (OURS_2, 1.6), ("vit_tiny", "PyTorch, DDP"): (OURS_2, 1.6),
}
# Divided models, with the least ratios that are wanted.
DIVIDED = {
    "transformer in 2 stages, 8 microbatches": {
        "ours": ("pipeline", "1f1b"), "PyTorch, 1F1B": (["1f1b"], 1.4), "PyTorch, GPipe": (["gpipe"], None), "PyTorch, interleaved": (["interleaved"], None),
        "PyTorch, one process of 2 threads": (["transformer", "2"], 1), "ours, one thread": (("pipeline", "1"), round(0.9 * 1.78, 2)),
        "ours, one thread, a microbatch after the other": (("pipeline", "accumulated"), round(0.9 * 1.78, 2))},
    "transformer, 2 workers that share parameters": {
        "ours": ("worker_step", "--model", "transformer", "--sharding_stage", "3"), "PyTorch, FSDP2": (["fsdp2"], 1.4),
        "PyTorch, FSDP2, kept after forward": (["fsdp2_kept"], None), "PyTorch, one process of 2 threads": (["transformer", "2"], 1)},
    "transformer, 2 workers that share slots": {
        "ours": ("worker_step", "--model", "transformer", "--sharding_stage", "1"), "PyTorch, DDP with ZeroRedundancyOptimizer": (["ddp_zero"], 1.3),
        "PyTorch, one process of 2 threads": (["transformer", "2"], 1)},
    "block of d = 512, its parameters on 2 devices": {
        "ours": ("step", "--model", "block", "--replicas", "1", "--model_parallel", "2"), "PyTorch, DTensor": (["tensor"], 2),
        "PyTorch, one process of 2 threads": (["block", "2"], 1), "ours, one thread": (("step", "--model", "block", "--replicas", "1"), None)},
    "U-Net, an image of 512 x 512 in 2 parts": {
        "ours": ("space", "--parts", "2"), "PyTorch, one process of 2 threads": (["unet", "2"], 1), "ours, one thread": (("space", "--parts", "1"), 1.7)},
}
SERVERS = {"mlp": "asynchronous MLP, 64 examples", "bag": "bag of embeddings, 1,000,000 x 64, 512 examples of 8"}


@dataclasses.dataclass
class Side:
    name: str
    commands: list  # the best of them counts
    least: bool = False  # the shortest step counts, not the median one
    one_core: bool = False  # on one core, by processor time
    key: str = "samples_per_second"
    rates: list = dataclasses.field(default_factory=list)
    failure: str = ""


def rate_of(command, side):
    """What the command's JSON says; RuntimeError with its last line of error if it fails."""
    environment = {**blas_environment(), "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if side.one_core:
        environment["COHORT_BENCH_CLOCK"] = "processor"
        command = ["taskset", "--cpu-list", min(os.sched_getaffinity(0)), *command]
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {LIMIT} s") from None
    lines = [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if '{"' in line]
    found = [line[side.key] * (line["us"] / line["least_us"] if side.least else 1) for line in lines if side.key in line]
    if done.returncode != 0 or not found:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:120])
    return max(found)


def our_sides(arguments, model, seconds):
    step = [arguments.bench, "--seconds", seconds, "step", "--model", model, "--replicas"]
    one = [[*step, "1"], [*step, "1", "--threads", "0"]]
    sides = [Side(OURS_2, [[*step, "2"]]), Side(OURS_1, one)]
    if XLA_PLUGIN.is_file() and model != "vit_tiny":
        sides.append(Side("ours, 1 device of XLA's plugin for CPUs, a function", [[*step, "1", "--xla_plugin", XLA_PLUGIN]]))
    return sides


def torch_sides(python, model, seconds):
    def each(*modes, threads=("1", str(os.cpu_count()))):
        return [[python, HERE / "pytorch_step.py", model, mode, seconds, number] for mode in modes for number in threads]

    last = ("_last",) if model in ("cnn", "resnet50") else ()
    return [Side("PyTorch, eager", each("eager", *("eager" + end for end in last))),
            Side("PyTorch, compiled", each("compiled", *("compiled" + end for end in last))),
            Side("PyTorch, DDP, 2 processes", each("ddp", *("ddp" + end for end in last), threads=("1",)))]


def tensorflow_sides(python, model, seconds):
    if model == "vit_tiny":
        return []
    step = [python, HERE / "tensorflow_step.py", model]
    cluster = [python, HERE / "tensorflow_cluster.py", "worker=2", "--", *step, "multi_worker"]
    return [Side("TensorFlow, called", [[*step, "one", "call", seconds]]),
            Side("TensorFlow, loop inside", [[*step, "one", "loop", seconds]]),
            Side("TensorFlow, XLA, called", [[*step, "one", "call", seconds, "--xla"]]),
            Side("TensorFlow, XLA, loop inside", [[*step, "one", "loop", seconds, "--xla"]]),
            Side("TensorFlow, MirroredStrategy, 2 devices, called", [[*step, "mirrored", "call", seconds]]),
            Side("TensorFlow, MirroredStrategy, 2 devices, loop inside", [[*step, "mirrored", "loop", seconds]]),
            Side("TensorFlow, MultiWorkerMirroredStrategy, 2 workers, called", [[*cluster, "call", seconds]]),
            Side("TensorFlow, MultiWorkerMirroredStrategy, 2 workers, loop inside", [[*cluster, "loop", seconds]])]


def jax_sides(python, model, seconds):
    return [] if model == "vit_tiny" else [Side("JAX, jit", [[python, HERE / "jax_step.py", model, seconds]])]


def server_sides(arguments, python, what):
    tasks = ["chief=1", "worker=2", "ps=2"]
    ours = [arguments.bench.replace("cohort_bench", "cohort"), "launch", "--ps=2", "--workers=2", "--", arguments.bench,
            "--seconds", str(2 * arguments.seconds), "parameter_server", what]
    theirs = [python, HERE / "tensorflow_cluster.py", *tasks, "--", python, HERE / "tensorflow_servers.py", what, str(2 * arguments.seconds)]
    return [Side("ours", [ours], key="ps_steps_per_second"), Side("TensorFlow, Keras 2", [theirs], key="ps_steps_per_second")]


def measure(sides, rounds):
    for _ in range(rounds):
        for side in (side for side in sides if not side.failure):
            rates = []
            for command in list(side.commands):
                try:
                    rates.append(rate_of(command, side))
                except RuntimeError as error:  # a way that is not there; the side's other ways count
                    side.commands.remove(command)
                    side.failure = "" if side.commands or rates else str(error)
            side.rates += [max(rates)] if rates else []
    for side in (side for side in sides if side.least and not side.failure):
        side.rates = [max(side.rates)] * rounds  # a step that nobody disturbed


def ratio(ours, side):
    """The median of those of the rounds, the least and the greatest."""
    if ours.failure or side.failure or not ours.rates:
        return "-", None
    each = [a / b for a, b in zip(ours.rates, side.rates)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})", statistics.median(each)


def wanted_of(model, name, ratios):
    for (row, start), (ours, least) in WANTED.items():
        if row == model and name.startswith(start):
            got = ratios[ours]
            return f"{ours.removeprefix('ours, ')}: {least}, {'-' if got is None else 'holds' if got >= least else 'fails'}"
    return ""


def model_rows(model, sides):
    ours = {side.name: side for side in sides if side.name in (OURS_2, OURS_1)}
    for side in sides:
        if side.failure:
            yield f"| {model} | {side.name} | fails: {side.failure} | - | - | |"
            continue
        texts, values = zip(*(ratio(ours[name], side) if name in ours else ("-", None) for name in (OURS_2, OURS_1)))
        ratios = dict(zip((OURS_2, OURS_1), values))
        shown = ("-", "-") if side.name in ours else texts
        yield (f"| {model} | {side.name} | {statistics.median(side.rates):,.0f} (best {max(side.rates):,.0f}) | {shown[0]} | {shown[1]} | "
               f"{wanted_of(model, side.name, ratios)} |")


def ceiling(arguments, model):
    """Where nothing but the matrix products and convolutions took time; and how far the step is from it."""
    done = subprocess.run([arguments.bench, "--seconds", str(arguments.seconds), "profile", "--model", model, "--replicas", "2"], capture_output=True, text=True,
                          env={**blas_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}, check=True, timeout=LIMIT)
    return json.loads(done.stdout.splitlines()[0])


def models_report(arguments, pythons):
    makers = {"torch": torch_sides, "tensorflow": tensorflow_sides, "jax": jax_sides}
    rate = f"samples a second{', of the shortest step' * arguments.least}"
    models = [model for model in MODELS if model in arguments.rows]
    if models:
        yield f"| model | side | {rate} | ours with 2 replicas over it | ours with 1 replica over it | wanted |\n|---|---|---|---|---|---|"
    for model in models:
        seconds = str(arguments.seconds * (3 if model in LARGE else 1))
        peers = [side for peer, python in pythons.items() if python for side in makers[peer](python, model, seconds)]
        sides = our_sides(arguments, model, seconds) + [side for side in peers if arguments.only in side.name]
        if arguments.one_core:
            sides = [side for side in sides if not re.search(r"2 (replicas|processes|devices|workers)", side.name)]
        for side in sides:
            side.least, side.one_core = arguments.least, arguments.one_core
        measure(sides, arguments.rounds)
        yield from model_rows(model, sides)
        if arguments.one_core:
            continue
        alone = [ceiling(arguments, model) for _ in range(arguments.rounds)]
        size = 128 if model in ("mlp", "cnn") else 16
        for key, name in (("products_us", "by LibTorch"), ("own_products_us", "by what multiplies in the step")):
            over = statistics.median(each["step_us"] / each[key] for each in alone)
            products = statistics.median(each[key] for each in alone)
            wanted = f"2 replicas: at most 1.2, {'holds' if over <= 1.2 else 'fails'}" if model == "mlp" and key == "products_us" else ""
            yield (f"| {model} | ours, 2 replicas, the products of a step alone, {name} | {size / products * 1e6:,.0f} | "
                   f"the step takes {over:.2f} times as long | - | {wanted} |")


def servers_report(arguments, python):
    if "servers" not in arguments.rows or "tensorflow" not in arguments.peers or arguments.one_core:
        return
    if python is None:
        yield "\nParameter servers beside TensorFlow's: not run, it is absent."
        return
    yield "\n| 2 parameter servers, 2 workers | ours, steps a second | TensorFlow, Keras 2 | ratio | wanted |\n|---|---|---|---|---|"
    for what, name in SERVERS.items():
        sides = server_sides(arguments, python, what)
        measure(sides, arguments.rounds)
        text, value = ratio(*sides)
        shown = [f"fails: {side.failure}" if side.failure else f"{statistics.median(side.rates):,.0f}" for side in sides]
        yield f"| {name} | {shown[0]} | {shown[1]} | {text} | 3, {'-' if value is None else 'holds' if value >= 3 else 'fails'} |"


def divided_side(arguments, python, name, how):
    """Ours where `how` is what cohort_bench is told, else PyTorch's."""
    seconds = str(3 * arguments.seconds)
    if isinstance(how, list):
        what, *threads = how
        program = [HERE / "pytorch_step.py", "transformer"] if what == "ddp_zero" else [HERE / "pytorch_parallel.py"]
        return Side(name, [[python, *program, what, seconds, *threads]])
    launch = [arguments.bench.replace("cohort_bench", "cohort"), "launch", "--nproc=2", "--"] if how[0] == "worker_step" else []
    return Side(name, [[*launch, arguments.bench, "--seconds", seconds, *how]])


def divided_report(arguments, python):
    if "divided" not in arguments.rows or "torch" not in arguments.peers or arguments.one_core:
        return
    if python is None:
        yield "\nModels that are divided beside PyTorch's: not run, it is absent."
        return
    yield "\n| model, on 2 cores | beside | ours, samples a second | its own | ratio | wanted |\n|---|---|---|---|---|---|"
    for model, row in DIVIDED.items():
        ours = divided_side(arguments, python, "ours", row["ours"])
        others = [(divided_side(arguments, python, name, how), least) for name, (how, least) in list(row.items())[1:] if arguments.only in name]
        measure([ours, *(side for side, _ in others)], arguments.rounds)
        for side, least in others:
            text, value = ratio(ours, side)
            shown = [f"fails: {each.failure}" if each.failure else f"{statistics.median(each.rates):,.1f}" for each in (ours, side)]
            wanted = "" if least is None else f"{least}, {'-' if value is None else 'holds' if value >= least else 'fails'}"
            yield f"| {model} | {side.name} | {shown[0]} | {shown[1]} | {text} | {wanted} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--peers", nargs="+", default=["all"], choices=["all", "tensorflow", "torch", "jax"])
    parser.add_argument("--rows", nargs="+", default=[*MODELS, "servers", "divided"], choices=[*MODELS, "servers", "divided"])
    parser.add_argument("--only", default="", metavar="TEXT", help="the peers' sides whose names contain this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--least", action="store_true", help="the shortest step of each side in place of the median one")
    way.add_argument("--one-core", action="store_true", help="the sides of one process, each on one core, by processor time")
    arguments = parser.parse_args()
    if "all" in arguments.peers:
        arguments.peers = ["torch", "tensorflow", "jax"]
    homes = {"tensorflow": "tensorflow", "torch": "torch", "jax": f"jax-{environments.JAX}"}
    pythons = {peer: environments.python_of(homes[peer]) for peer in arguments.peers}
    packages = {"tensorflow": "tensorflow-cpu", "torch": "torch", "jax": "jax"}
    names = [f"{peer} {environments.version_of(python, packages[peer])}" if python else f"{peer}: absent (PyPI cannot be reached or has no wheel for this machine)"
             for peer, python in pythons.items()]
    load = pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    print(f"Peers: {', '.join(names)}. Load average of the {os.cpu_count()} cores at the beginning: {load}.\n")
    for line in itertools.chain(models_report(arguments, pythons), servers_report(arguments, pythons.get("tensorflow")),
                                divided_report(arguments, pythons.get("torch"))):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
