#!/usr/bin/env python3
"""Checks that a layer includes only itself and the layers above it in the list, and that public headers include little.

usage: check_layers.py REPOSITORY
"""
import pathlib
import re
import sys

LAYERS = ["base", "config", "device", "rpc", "cluster", "collective", "topology", "strategy", "optimizer", "step", "data", "checkpoint", "parameter_server", "train", "models"]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
# Public headers: those of the core know none of a folder, those of a folder the core and the folders that are named.
PUBLIC_FOLDERS = {"data": [], "cluster": [], "train": ["data", "cluster"], "models": ["train", "data", "cluster"]}
PUBLIC_TORCH = {"torch/types.h", "torch/nn/module.h"}
STANDARD = re.compile(r"^[a-z_0-9]+$|^bits/")


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def check_source(path, layer, problems):
    for kind, name in includes(path):
        top = name.split("/")[0]
        if kind == '"' and top in LAYERS and LAYERS.index(top) > LAYERS.index(layer):
            problems.append(f"{path}: layer {layer} includes {name}, of the lower layer {top}")
        if top in ("grpc", "grpcpp") and layer != "rpc":
            problems.append(f"{path}: includes {name}; only the layer rpc knows gRPC")
        if kind == '"' and top in ("tools", "tests", "examples", "benchmarks"):
            problems.append(f"{path}: the library includes {name}")


def may_include(header, name):
    """Whether a public header, by its path under cohort/, may include another one. Those that have a folder in them are for programs."""
    folder, whose = (part.parts[0] if len(part.parts) > 1 else "" for part in (header, pathlib.PurePath(name).relative_to("cohort")))
    every = {"cohort"} | set(PUBLIC_FOLDERS)
    if not folder and header.stem in every:
        return header.stem == "cohort" or whose == header.stem
    return not (not whose and pathlib.PurePath(name).stem in every) and whose in ("", folder, *PUBLIC_FOLDERS.get(folder, []))


def check_public(path, root, problems):
    for kind, name in includes(path):
        if kind == '"' and name.startswith("cohort/") and not may_include(path.relative_to(root), name):
            problems.append(f"{path}: a public header includes {name}, which is not of the core or a folder above its own")
        own = kind == '"' and name.startswith("cohort/")
        allowed = kind == "<" and (name in PUBLIC_TORCH or STANDARD.match(name))
        if not own and not allowed:
            problems.append(f"{path}: a public header includes {name}; only the standard library, {', '.join(sorted(PUBLIC_TORCH))} "
                            "and cohort/ are allowed")


def main(root):
    problems = []
    for layer in LAYERS:
        for path in sorted((root / "src" / layer).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu"):
                check_source(path, layer, problems)
    for folder in (root / "src").iterdir() if (root / "src").is_dir() else []:
        if folder.is_dir() and folder.name not in LAYERS:
            problems.append(f"{folder}: is no layer of the list")
    for path in sorted((root / "include" / "cohort").rglob("*.h")):
        check_public(path, root / "include" / "cohort", problems)
    print("\n".join(problems) if problems else "layers: in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
