#!/usr/bin/env python3
"""Writes what Keras' and torchvision's networks answer to drawn weights and pictures: applications_keras.json and
applications_torchvision.json beside this file, which applications_test.cpp reads.

usage: applications_facts.py keras | torchvision

Numbers are float64. support/drawn.py draws weights and pictures, and the test draws them, too. A layer of Keras is a
line: its name, the shape of its output with the channels first, the number of its weights. Integers do not count. A
weight of torchvision is a line: its name and its shape; the numbers of batches, which are zeros, are left out.
"""
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "support"))

from drawn import drawn  # noqa: E402

TRANSFORMER = {"patch_size": 16, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 64}
FEW = 12  # numbers of an output that the file has


def few(output):
    output = np.asarray(output, dtype=np.float64)
    return {"shape": list(output.shape), "first": output.flatten()[:FEW].tolist(), "sum": float(output.sum()),
            "squares": float((output**2).sum())}


OWN = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias", "moving_mean": "running_mean",
       "moving_variance": "running_var", "mean": "mean", "variance": "variance"}


def set_drawn(model):
    for layer in model.layers:
        values = []
        for variable in layer.weights:
            if variable.name == "count":
                values.append(np.zeros((), dtype=np.int64))
                continue
            name = f"{layer.name}.{OWN[variable.name]}"
            shape = tuple(variable.shape)
            if len(shape) == 4 and type(layer).__name__ == "DepthwiseConv2D":
                values.append(drawn(name, (shape[2] * shape[3], 1, *shape[:2])).transpose(2, 3, 0, 1).reshape(shape))
            elif len(shape) == 4:
                values.append(drawn(name, (shape[3], shape[2], *shape[:2])).transpose(2, 3, 1, 0))
            else:
                values.append(drawn(name, shape[::-1]).T)
        layer.set_weights(values)
        if type(layer).__name__ == "Normalization":
            layer.finalize_state()  # set_weights() leaves it out
        if type(layer).__name__ == "Rescaling":
            layer.scale, layer.offset = np.float64(layer.scale), np.float64(layer.offset)  # Keras rounds a Python float


def size_of(layer):
    return sum(int(np.prod(variable.shape)) for variable in layer.weights if variable.dtype.startswith("float"))


def line_of(layer):
    shape = layer.output.shape[1:]
    first = shape if len(shape) != 3 else (shape[2], *shape[:2])
    return f"{layer.name} {'x'.join(str(size) for size in first)} {size_of(layer)}"


def keras_facts():
    import keras
    keras.config.set_floatx("float64")
    cases = []

    def add(network, size, layers=False, output=True, **options):
        keras.utils.clear_session()
        made = getattr(keras.applications, network)(weights=None, input_shape=(*size, 3), **options)
        case = {"network": network, "size": size, "options": options, "name": made.name, "parameters": sum(size_of(layer) for layer in made.layers)}
        if layers:
            case["layers"] = [line_of(layer) for layer in made.layers]
        if output:
            set_drawn(made)
            result = made(drawn("picture", (2, 3, *size)).transpose(0, 2, 3, 1), training=False).numpy()
            case["output"] = few(result.transpose(0, 3, 1, 2) if result.ndim == 4 else result)
        cases.append(case)

    add("ResNet50", (64, 64), layers=True, classes=10)
    add("ResNet50", (32, 45), include_top=False, pooling="avg")
    for network in ("ResNet101", "ResNet152"):
        add(network, (32, 32), layers=True, output=False, include_top=False, pooling="max")
    add("MobileNetV2", (96, 96), layers=True, classes=10)
    add("MobileNetV2", (33, 47), alpha=0.35, include_top=False)
    add("MobileNetV2", (64, 64), alpha=1.3, include_top=False, pooling="max")
    add("MobileNetV3Small", (64, 64), layers=True, classes=10)
    add("MobileNetV3Large", (64, 64), layers=True, classes=10)
    add("MobileNetV3Small", (33, 47), include_top=False, pooling="avg", alpha=0.75, include_preprocessing=False)
    add("MobileNetV3Large", (33, 47), include_top=False, alpha=1.25, minimalistic=True)
    add("EfficientNetB0", (64, 64), layers=True, classes=10)
    add("EfficientNetB3", (33, 47), include_top=False, pooling="avg")
    for variant in (1, 2, 3, 4, 7):
        add(f"EfficientNetB{variant}", (32, 32), output=False, classes=10)
    add("VGG16", (64, 64), layers=True, classes=10)
    add("VGG19", (33, 47), layers=True, include_top=False, pooling="avg")
    add("DenseNet121", (64, 64), layers=True, classes=10)
    for network in ("DenseNet169", "DenseNet201"):
        add(network, (32, 32), output=False, classes=10)
    add("ResNet50V2", (64, 64), layers=True, classes=10)
    add("ResNet101V2", (33, 47), include_top=False, pooling="max", output=False)
    add("ResNet152V2", (32, 32), include_top=False, output=False)
    add("MobileNet", (64, 64), layers=True, classes=10)
    add("MobileNet", (33, 47), alpha=0.4, include_top=False, pooling="avg")
    pixels = (drawn("picture", (2, 3, 4, 5)) + 1.0) * 127.5
    prepared = {name: few(getattr(keras.applications, name).preprocess_input(pixels.transpose(0, 2, 3, 1).copy())
                          .transpose(0, 3, 1, 2)) for name in ("resnet", "mobilenet_v2", "vgg16", "densenet", "mobilenet", "resnet_v2")}
    keras.src.applications.imagenet_utils.CLASS_INDEX = {str(i): [f"n{i:08}", f"class {i}"] for i in range(1000)}
    decoded = keras.applications.resnet.decode_predictions(drawn("predictions", (2, 1000)), top=3)
    decoded = [[[*each[:2], float(each[2])] for each in row] for row in decoded]
    return {"keras": keras.__version__, "cases": cases, "preprocess_input": prepared, "decode_predictions": decoded}


def torchvision_facts():
    import torch
    import torchvision
    cases = []

    def add(network, size, **options):
        make = getattr(torchvision.models, network)
        if network == "VisionTransformer":
            made = make(image_size=size[0], **TRANSFORMER, **options)
        else:
            made = make(**options)
        made = made.double().eval()
        state = made.state_dict()
        made.load_state_dict({name: torch.as_tensor(drawn(name, tuple(each.shape))) for name, each in state.items()})
        picture = torch.as_tensor(drawn("picture", (2, 3, *size)))
        if network.startswith("vgg"):  # the classifier has too many weights
            made = torch.nn.Sequential(made.features, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        with torch.no_grad():
            output = made(picture)
        lines = [f"{name} {'x'.join(str(length) for length in each.shape)}" for name, each in state.items()
                 if not name.endswith("num_batches_tracked") and not (network.startswith("vgg") and "classifier" in name)]
        cases.append({"network": network, "size": size, "options": options, "state": lines, "output": few(output)})

    add("resnet50", (64, 64), num_classes=10)
    add("mobilenet_v2", (64, 64), num_classes=10)
    add("mobilenet_v2", (33, 47), num_classes=10, width_mult=0.75)
    for network in ("mobilenet_v3_small", "mobilenet_v3_large"):
        add(network, (64, 64), num_classes=10)
    add("mobilenet_v3_small", (33, 47), num_classes=10, width_mult=0.6)
    add("efficientnet_b0", (64, 64), num_classes=10)
    add("resnet18", (64, 64), num_classes=10)
    add("VisionTransformer", (64, 64), num_classes=10)
    add("densenet121", (64, 64), num_classes=10)
    add("vgg19", (64, 33))
    add("efficientnet_b5", (33, 47), num_classes=10)
    pixels = (drawn("picture", (2, 3, 4, 5)) + 1.0) / 2.0
    normal = torchvision.transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    parameters = {network: sum(each.numel() for each in getattr(torchvision.models, network)().parameters())
                  for network in ("resnet34", "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")}
    return {"torchvision": torchvision.__version__, "cases": cases, "parameters": parameters,
            "preprocess_input": few(normal(torch.as_tensor(pixels)))}


def main(which):
    facts = {"keras": keras_facts, "torchvision": torchvision_facts}[which]()
    file = pathlib.Path(__file__).with_name(f"applications_{which}.json")
    file.write_text(json.dumps(facts, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
