#!/usr/bin/env python3
"""Computes what exported models give, by the programs that others use, and compares it with what Cohort has computed.

usage: reference.py torch|onnxruntime|jax FOLDER

FOLDER/cases.json has the cases: name, tolerance, the names of inputs and outputs, the batches; FOLDER/NAME.SIZE.json the batches with their
tensors. Prints what is wrong, a line each; the status is 1 then.
"""
import json
import os
import pathlib
import sys

import numpy as np


def tensor(entry):
    return np.array(entry["values"], dtype=entry["dtype"]).reshape(entry["shape"])


def by_torch(folder, case):
    import torch
    torch.set_grad_enabled(False)
    module = torch.jit.load(str(folder / f"{case['name']}.pt"))
    module.eval()

    def run(inputs):
        outputs = module(*[torch.from_numpy(inputs[name]) for name in case["inputs"]])
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        return {name: output.numpy() for name, output in zip(case["outputs"], outputs)}
    return run


def by_onnxruntime(folder, case):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / f"{case['name']}.onnx"), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
    if names != (case["inputs"], case["outputs"]):
        raise ValueError(f"inputs and outputs are {names}")
    if case["any_batch"] and any(each.shape[0] != "batch" for each in session.get_inputs()):
        raise ValueError("the batch has a fixed size")
    return lambda inputs: dict(zip(case["outputs"], session.run(None, inputs)))


def by_jax(folder, case):
    import dataclasses
    # Each program runs once: what makes it fast costs more than it gains.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
    import jax
    import jax.export
    from jax.extend import mlir
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")

    def run(inputs):
        batch = len(next(iter(inputs.values())))
        wanted = json.loads((folder / f"{case['name']}.{batch}.json").read_text())["outputs"]
        given = [inputs[name] for name in case["inputs"]]
        blank = jax.export.export(jax.jit(lambda *given: [jax.numpy.zeros(wanted[name]["shape"], wanted[name]["dtype"]) for name in case["outputs"]]))(*given)
        module = mlir.serialize_portable_artifact((folder / f"{case['name']}.{batch}.mlir").read_text(), "1.0.0")
        model = dataclasses.replace(blank, mlir_module_serialized=module, module_kept_var_idx=tuple(range(len(given))))
        return dict(zip(case["outputs"], map(np.asarray, jax.jit(model.call)(*given))))
    return run


def check(run, folder, case):
    for size in case["batches"]:
        batch = json.loads((folder / f"{case['name']}.{size}.json").read_text())
        outputs = run({name: tensor(entry) for name, entry in batch["inputs"].items()})
        for name, entry in batch["outputs"].items():
            wanted = tensor(entry)
            got = outputs[name]
            if got.shape != wanted.shape or got.dtype != wanted.dtype:
                yield f"batch {size}: {name} is {got.dtype} {got.shape}, wanted {wanted.dtype} {wanted.shape}"
                continue
            off = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
            most = case["tolerance"] * max(1.0, np.abs(wanted.astype(np.float64)).max(initial=0.0))
            if not off <= most:
                yield f"batch {size}: {name} is off by {off}, at most {most} wanted"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    load = {"torch": by_torch, "onnxruntime": by_onnxruntime, "jax": by_jax}[program]
    wrong = 0
    for case in json.loads((folder / "cases.json").read_text()):
        try:
            problems = list(check(load(folder, case), folder, case))
        except Exception as error:  # whatever the program says
            problems = [str(error)[:600]]
        for problem in problems:
            print(f"{case['name']}: {problem}")
        wrong += len(problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
