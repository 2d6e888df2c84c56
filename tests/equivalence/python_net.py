#!/usr/bin/python3
"""The module of python_net.pt, which script_file_test.cpp trains, and what PyTorch itself makes of it.

usage: python_net.py write FOLDER           writes python_net.pt and python_net.json, with PyTorch 1.13, so that any LibTorch reads the file
       python_net.py check FILE OUTPUTS     loads a script that was saved elsewhere, runs it on inputs(6) in evaluation mode, and compares
                                            with the outputs of a file of JSON

python_net.json has the parameters and buffers after STEPS steps of SGD over batches of 12: "alone", and "two", where every batch is cut in
two, each half has a batch norm of its own, and the statistics are averaged at the end.
"""
import copy
import io
import json
import pathlib
import sys
import zipfile

import torch

FEATURES, HIDDEN, CLASSES, STEPS, BATCH, RATE = 4, 6, 3, 15, 12, 0.2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(FEATURES, HIDDEN)
        self.norm = torch.nn.BatchNorm1d(HIDDEN)
        self.dropout = torch.nn.Dropout(0.25)
        self.head = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))
        self.temperature = torch.nn.Parameter(torch.ones(()))
        self.prior = torch.nn.Parameter(torch.tensor([0.1, -0.2, 0.3]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        if x.size(0) > 1 or not self.norm.training:
            y = self.norm(y)
        return self.head(self.dropout(torch.tanh(y))) * self.temperature + self.prior

    @torch.jit.export
    def probabilities(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.forward(x), 1)


def inputs(rows, first=0):
    return torch.sin(torch.arange(first * FEATURES, (first + rows) * FEATURES, dtype=torch.double)).view(rows, FEATURES)


def labels(rows, first=0):
    return torch.arange(first, first + rows) * 7 % 5 % CLASSES


def made():
    torch.manual_seed(3)
    net = Net().double()
    net.train()
    net.dropout.eval()  # so that the numbers are those of any generator; the file keeps the mode of each part
    return net


def trained(net, parts):
    """Trains on each batch cut in `parts`; each part has a copy of the net, whose gradients are added up."""
    copies = [net] + [copy.deepcopy(net) for _ in range(parts - 1)]
    for step in range(STEPS):
        x, y = inputs(BATCH, step * BATCH), labels(BATCH, step * BATCH)
        for part, (xs, ys) in zip(copies, zip(x.chunk(parts), y.chunk(parts))):
            (torch.nn.functional.cross_entropy(part(xs), ys, reduction="sum") / BATCH).backward()
        with torch.no_grad():
            for same in zip(*(part.parameters() for part in copies)):
                if not same[0].requires_grad:
                    continue
                gradient = sum(parameter.grad for parameter in same)
                for parameter in same:
                    parameter -= RATE * gradient
                    parameter.grad = None
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for name, tensor in state.items():
        if "running" in name:
            state[name] = sum(part.state_dict()[name] for part in copies) / parts
    return {name: tensor.reshape(-1).tolist() for name, tensor in state.items()}


def without_sources(data):
    """Returns the file without the places in Python's sources, which are paths of the machine that wrote it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(out, "w") as file:
        for entry in whole.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                file.writestr(zipfile.ZipInfo(entry.filename, (1980, 1, 1, 0, 0, 0)), whole.read(entry))
    return out.getvalue()


def write(folder):
    whole = pathlib.Path(folder, "python_net.pt")
    torch.jit.script(made()).save(str(whole))
    whole.write_bytes(without_sources(whole.read_bytes()))
    runs = []
    for name, parts in (("alone", 1), ("two", 2)):
        tensors = [f"  {json.dumps(key)}: {values}" for key, values in trained(made(), parts).items()]
        runs.append(f"{json.dumps(name)}: {{\n" + ",\n".join(tensors) + "\n}")
    pathlib.Path(folder, "python_net.json").write_text("{\n" + ",\n".join(runs) + "\n}\n", encoding="utf-8")


def check(file, outputs):
    net = torch.jit.load(file)
    assert not any(part.training for part in net.modules()), "it was saved in evaluation mode"
    wanted = torch.tensor(json.loads(pathlib.Path(outputs).read_text(encoding="utf-8")), dtype=torch.double)
    got = net(inputs(6))
    assert torch.allclose(got.reshape(-1), wanted, rtol=0, atol=1e-12), (got, wanted)
    assert torch.equal(net.probabilities(inputs(6)), torch.softmax(got, 1))
    assert [name for name, parameter in net.named_parameters() if not parameter.requires_grad] == ["prior"]
    print("loaded by torch", torch.__version__)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
