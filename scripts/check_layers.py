#!/usr/bin/env python3
"""Checks that a layer includes only itself and the layers above it in the list, its public headers included, and that public headers
include little. A folder of a wing (src/wings/mesh/strategy) belongs to the layer that it is named after, and a wing's other files to
the layer that the wing is named after.

Two kinds of arrows run back to a lower layer: an include of a public header that belongs to one, and a method that is declared in a
public header and defined in a lower layer than the header's. Those in BACKWARD are known, and are printed with their number; any other
one is a breach.

No file of the core includes one of a wing, no file of the library an umbrella, and at most MOST_BETWEEN_WINGS includes run between wings.

Questions about what the topology is (one replica or several, one worker or several, CPUs that share memory) stand in src/strategy, and
at most MOST_QUESTIONS of them.

Only src/device knows kinds of devices (src/wings/xla/record is one of LibTorch's), and a file that takes a tensor's pointer says so in its first lines.

usage: check_layers.py REPOSITORY
"""
import pathlib
import re
import sys

from wings import includes_of_umbrellas, includes_of_wings, sources, wings_of

LAYERS = ["base", "ops", "config", "record", "device", "rpc", "cluster", "collective", "topology", "strategy", "optimizer", "step", "function", "data", "checkpoint", "parameter_server", "train", "models"]
# The layer that each public header belongs to: that of its folder, if these lists do not name it. Umbrellas, which only include others,
# belong to none.
HEADERS = {
    "base": "error example preemption trace version",
    "config": "models/config models/setting",
    "device": "compute device",
    "rpc": "cluster/security",
    "cluster": "cluster/cluster_spec cluster/cluster_resolver cluster/mpi_resolver cluster/scheduler_resolvers cluster/tpu_resolver",
    "collective": "communicator",
    "topology": "device_mesh parallel/pipeline_schedule topology cluster/tpu_topology",
    "strategy": "strategy exchange_options strategy_inl parallel/axes parallel/mesh_strategy parallel/stages parallel/pipeline_strategy mirrored train/script_module replica values variable cluster/multi_worker_mesh cluster/multi_worker_pipeline cluster/multi_worker_strategy cluster/xla_strategy",
    "optimizer": "more_update_rules optimizer schedule update_rules",
    "function": "function",
    "data": "dataset distributed_dataset",
    "checkpoint": "checkpoint weights",
}
LAYER_OF = {f"cohort/{name}.h": layer for layer, names in HEADERS.items() for name in names.split()}
UMBRELLAS = {f"cohort/{name}.h" for name in ("cluster", "cohort", "data", "models", "parallel", "train")}
LAYER_OF_FOLDER = {"cluster": "parameter_server", "parallel": "strategy", "data": "data", "train": "train", "models": "models"}
# Arrows that run back, as (from, to): what for.
BACKWARD = {
    ("strategy", "step"): "Strategy::optimizer",
    ("strategy", "data"): "Strategy::distribute",
    ("strategy", "optimizer"): "RemoteVariables has the rule of each variable",
    ("optimizer", "step"): "MirroredOptimizer is a handle to a Step",
}
# Numbers of replicas, workers and processes, and sizes of their groups, compared with a number or with the size of the topology; and
# whether all devices are CPUs. A collective that begins with "if (communicator().size() == 1) return" asks only its own group; the
# groups themselves (src/collective) and the topology's arithmetic are not asked about.
COUNT = (r"\b(?:num_workers|num_local_replicas|num_replicas_in_sync|num_processes|worker_count)\([^()]*\)|"
         r"\b(?:axis\.size|colors\.size\(\)|group_?\.workers)|\b(?:group|world_?|world\(\)|workers(?:\(\)|_)?|communicator\([^()]*\))(?:\.|->)size\(\)")
QUESTION = re.compile(rf"(?:{COUNT})\s*(?:[=!<>]=|[<>])\s*(?:\d|(?:\w+(?:\.|->))*topology\(\)\.size)|(?<!bool )\ball_on_cpu\(")
COLLECTIVE = re.compile(r"^\s*if \((?:\w+->)?communicator\([^()]*\)\.size\(\) == 1\) return \w")
UNASKED = ("topology", "collective")
MOST_QUESTIONS = 10
MOST_BETWEEN_WINGS = 12
CLASS = re.compile(r"^(?:class|struct)\s+(?:\[\[nodiscard\]\]\s+)?(\w+)[^;{]*\{", re.M)
METHOD = re.compile(r"^[^\s#/].*?\b(\w+)::(~?\w+)\(", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
# Public headers: those of the core know none of a folder, those of a folder the core and the folders that are named.
PUBLIC_FOLDERS = {"data": [], "parallel": [], "cluster": ["parallel"], "train": ["data", "cluster"], "models": ["train", "data", "cluster", "parallel"]}
PUBLIC_TORCH = {"torch/types.h", "torch/nn/module.h"}
STANDARD = re.compile(r"^[a-z_0-9]+$|^bits/")
# What only src/device names, and what calls NCCL.
DEVICE_NAMES = re.compile(r"\b(torch::cuda|c10::cuda|at::cuda|is_cuda|kCUDA|createCPUGenerator|defaultGenerator|is_pinned|pin_memory|unsafeGetTensorImpl)\b")
HEAD_LINES = 8


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def layer_of(name):
    """Returns the layer of a public header, by its name as it is included."""
    return None if name in UMBRELLAS else LAYER_OF.get(name) or LAYER_OF_FOLDER.get(pathlib.PurePath(name).parts[1])


def place_of(name):
    """Returns the layer of a source file, by its path under src/, or None."""
    parts = pathlib.PurePath(name).parts
    if parts[0] == "wings":
        if parts[-1] == "install.cpp":  # includes all of its wing
            return LAYERS[-1]
        parts = [part for part in reversed(parts[1:3]) if part in LAYERS] or [None]
    return parts[0] if parts[0] in LAYERS else None


def lower(layer, other):
    return layer in LAYERS and other in LAYERS and LAYERS.index(other) > LAYERS.index(layer)


def note_arrow(arrows, path, source, target, what):
    if lower(source, target):
        arrows.setdefault((source, target), []).append(f"{path}: {what}")


def check_source(path, layer, classes, arrows, problems):
    for name in re.findall(METHOD, path.read_text(encoding="utf-8")):
        note_arrow(arrows, path, classes.get(name[0]), layer, f"defines {'::'.join(name)} of the layer {classes.get(name[0])}")
    for kind, name in includes(path):
        if name.startswith("cohort/"):
            note_arrow(arrows, path, layer, layer_of(name), f"includes {name}")
        top = name.split("/")[0]
        if kind == '"' and lower(layer, place_of(name)):
            problems.append(f"{path}: layer {layer} includes {name}, of the lower layer {place_of(name)}")
        if top in ("grpc", "grpcpp") and layer != "rpc":
            problems.append(f"{path}: includes {name}; only the layer rpc knows gRPC")
        if kind == '"' and top in ("tools", "tests", "examples", "benchmarks"):
            problems.append(f"{path}: the library includes {name}")


def check_device(path, layer, problems):
    """Kinds of devices, and tensors told apart by their addresses, are src/device's; a file that takes a tensor's pointer says so at its head."""
    if layer in ("device", "record") or (layer == "collective" and "nccl" in path.as_posix()):
        return
    text = path.read_text(encoding="utf-8")
    for name in sorted(set(DEVICE_NAMES.findall(text))):
        problems.append(f"{path}: names {name}; only src/device does (backend.h, host_random.h, identity.h)")
    if "data_ptr" in text and not any(line.startswith("//") and "pointer" in line for line in text.splitlines()[:HEAD_LINES]):
        problems.append(f"{path}: takes a tensor's pointer (data_ptr), which its first lines have to say and why; see also device/host_memory.h and identity.h")


def may_include(header, name):
    """Whether a public header, by its path under cohort/, may include another one. Those that have a folder in them are for programs."""
    folder, whose = (part.parts[0] if len(part.parts) > 1 else "" for part in (header, pathlib.PurePath(name).relative_to("cohort")))
    every = {"cohort"} | set(PUBLIC_FOLDERS)
    if not folder and header.stem in every:
        return header.stem == "cohort" or whose == header.stem
    return not (not whose and pathlib.PurePath(name).stem in every) and whose in ("", folder, *PUBLIC_FOLDERS.get(folder, []))


def check_public(path, root, arrows, problems):
    own_name = f"cohort/{path.relative_to(root).as_posix()}"
    if own_name not in UMBRELLAS and layer_of(own_name) is None:
        problems.append(f"{path}: belongs to no layer; name it in HEADERS of check_layers.py")
    for kind, name in includes(path):
        if name.startswith("cohort/"):
            note_arrow(arrows, path, layer_of(own_name), layer_of(name), f"includes {name}")
        if kind == '"' and name.startswith("cohort/") and not may_include(path.relative_to(root), name):
            problems.append(f"{path}: a public header includes {name}, which is not of the core or a folder above its own")
        own = kind == '"' and name.startswith("cohort/")
        allowed = kind == "<" and (name in PUBLIC_TORCH or STANDARD.match(name))
        if not own and not allowed:
            problems.append(f"{path}: a public header includes {name}; only the standard library, {', '.join(sorted(PUBLIC_TORCH))} "
                            "and cohort/ are allowed")


def check_arrows(arrows, problems):
    for (source, target), places in sorted(arrows.items()):
        if (source, target) not in BACKWARD:
            problems.extend(f"{place}, which is of the lower layer {target} than {source}" for place in places)


def check_wings(root, problems):
    """Returns how many includes run between wings."""
    files = sources(root, "src", "include", "tools")
    problems.extend(f"{path}: includes the umbrella {name}, which has headers of wings; include what is used" for path, name in includes_of_umbrellas(files))
    found = includes_of_wings(files, wings_of(root))
    problems.extend(f"{path}: the core includes {included} of the wing {wing}" for path, own, included, wing in found if own is None)
    between = [f"{path} ({own}) includes {included} ({wing})" for path, own, included, wing in found if own is not None]
    if len(between) > MOST_BETWEEN_WINGS:
        problems.append(f"{len(between)} includes run between wings, at most {MOST_BETWEEN_WINGS} may: {', '.join(between)}")
    return len(between)


def check_questions(root, problems):
    """Returns how many places of src/ ask what the topology is."""
    places = []
    for path in sorted((root / "src").rglob("*")):
        folder = place_of(path.relative_to(root / "src"))
        if path.suffix not in (".h", ".cpp") or folder in UNASKED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not QUESTION.search(line) or (folder == "strategy" and COLLECTIVE.match(line)):
                continue
            places.append(f"{path}:{number}")
            if folder != "strategy":
                problems.append(f"{path}:{number}: asks what the topology is: {line.strip()}; only src/strategy may")
    if len(places) > MOST_QUESTIONS:
        problems.append(f"{len(places)} places ask what the topology is, at most {MOST_QUESTIONS} may: {', '.join(places)}")
    return len(places)


def main(root):
    problems = []
    arrows = {}
    public = root / "include" / "cohort"
    classes = {}  # each class of a public header: the header's layer
    for path in sorted(public.rglob("*.h")):
        layer = layer_of(f"cohort/{path.relative_to(public).as_posix()}")
        classes.update({name: layer for name in CLASS.findall(path.read_text(encoding="utf-8")) if layer})
        check_public(path, public, arrows, problems)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu"):
            continue
        layer = place_of(path.relative_to(root / "src"))
        if layer is None:
            problems.append(f"{path}: is in no layer of the list")
            continue
        check_source(path, layer, classes, arrows, problems)
        check_device(path, layer, problems)
    check_arrows(arrows, problems)
    questions = check_questions(root, problems)
    between = check_wings(root, problems)
    known = [f"{source} -> {target} ({BACKWARD[source, target]})" for source, target in sorted(arrows) if (source, target) in BACKWARD]
    print("\n".join(problems) if problems else f"layers: in order; {questions} places ask what the topology is; {between} includes run between wings; {len(known)} arrows run back: {', '.join(known)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
