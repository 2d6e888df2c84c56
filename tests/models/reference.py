"""What torchvision's models compute from the same weights, for zoo_test.cpp.

Usage: reference.py FOLDER

FOLDER/cases.json is a list of {"name", "builder", "options", "steps"}; beside it are NAME.weights.safetensors and
NAME.input.safetensors (x, y). NAME.results.safetensors becomes: "eval", the logits in evaluation mode; "train", those
in training mode; "gradient/<parameter>"; "losses", of SGD steps on the one batch.
"""
import json
import pathlib
import struct
import sys

import numpy
import torch
import torch.nn.functional as F
import torchvision.models as zoo

DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}


def read(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = numpy.frombuffer(data[8 + size + begin:8 + size + end], DTYPES[entry["dtype"]])
            tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


def write(path, tensors):
    header, chunks, offset = {}, [], 0
    for name, tensor in tensors.items():
        chunk = tensor.detach().to(torch.float64).contiguous().numpy().tobytes()
        header[name] = {"dtype": "F64", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(chunk)]}
        offset += len(chunk)
        chunks.append(chunk)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


class CifarBlock(torch.nn.Module):
    """He et al., "Deep Residual Learning for Image Recognition", section 4.2, with shortcuts of option A."""

    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, planes, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(planes)
        self.conv2 = torch.nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(planes)
        self.stride, self.added = stride, planes - inputs

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.added:
            half = self.added // 2
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, half, self.added - half))
        return F.relu(x + y)


class ResNetCifar(torch.nn.Module):
    def __init__(self, blocks, num_classes):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        inputs = 16
        for stage, planes in enumerate((16, 32, 64)):
            layers = []
            for i in range(blocks):
                layers.append(CifarBlock(inputs, planes, 2 if stage > 0 and i == 0 else 1))
                inputs = planes
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*layers))
        self.fc = torch.nn.Linear(64, num_classes)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.layer3(self.layer2(self.layer1(y)))
        return self.fc(y.mean((2, 3)))


class DoubleConv(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        layers = []
        for i in (inputs, outputs):
            layers += [torch.nn.Conv2d(i, outputs, 3, padding=1, bias=False), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]
        self.double_conv = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Holder(torch.nn.Module):
    """Modules under names."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)


class UNet(torch.nn.Module):
    """Ronneberger et al., "U-Net", with batch norms and padding, under the names of torch.hub's unet_carvana."""

    def __init__(self, filters, levels, num_classes):
        super().__init__()
        self.levels = levels
        self.inc = DoubleConv(3, filters)
        for i in range(levels):
            inner = torch.nn.Sequential(torch.nn.MaxPool2d(2), DoubleConv(filters << i, filters << i + 1))
            setattr(self, f"down{i + 1}", Holder(maxpool_conv=inner))
            inputs = filters << levels - i
            setattr(self, f"up{i + 1}", Holder(up=torch.nn.ConvTranspose2d(inputs, inputs // 2, 2, 2), conv=DoubleConv(inputs, inputs // 2)))
        self.outc = Holder(conv=torch.nn.Conv2d(filters, num_classes, 1))

    def forward(self, x):
        down = [self.inc(x)]
        for i in range(self.levels):
            down.append(getattr(self, f"down{i + 1}").maxpool_conv(down[-1]))
        y = down.pop()
        for i in range(self.levels):
            level, beside = getattr(self, f"up{i + 1}"), down.pop()
            y = level.up(y)
            rows, columns = beside.shape[2] - y.shape[2], beside.shape[3] - y.shape[3]
            y = F.pad(y, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
            y = level.conv(torch.cat([beside, y], 1))
        return self.outc.conv(y)


def build(case):
    if case["builder"] == "unet":
        return UNet(**case["options"])
    if case["builder"] == "resnet_cifar":
        return ResNetCifar(**case["options"])
    if case["builder"] == "vision_transformer":
        return zoo.VisionTransformer(**case["options"])
    options = dict(case["options"])
    dropout = options.pop("dropout", None)  # not an option of torchvision's EfficientNets
    model = getattr(zoo, case["builder"])(weights=None, **options)
    for module in model.modules():
        if dropout is not None and isinstance(module, torch.nn.Dropout):
            module.p = dropout
    return model


def run(case, folder):
    name = case["name"]
    inputs = read(folder / f"{name}.input.safetensors")
    weights = read(folder / f"{name}.weights.safetensors")
    model = build(case).double()
    model.load_state_dict(weights)
    results = {}
    model.eval()
    with torch.no_grad():
        results["eval"] = model(inputs["x"])
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for step in range(case["steps"]):
        optimizer.zero_grad()
        logits = model(inputs["x"])
        loss = F.cross_entropy(logits, inputs["y"])
        loss.backward()
        if step == 0:
            results["train"] = logits
            for parameter, tensor in model.named_parameters():
                results["gradient/" + parameter] = tensor.grad.clone()
        optimizer.step()
        losses.append(loss.item())
    results["losses"] = torch.tensor(losses, dtype=torch.float64)
    write(folder / f"{name}.results.safetensors", results)


def main(folder):
    for case in json.loads((folder / "cases.json").read_text()):
        run(case, folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
