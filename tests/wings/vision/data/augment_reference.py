"""What torchvision's operations make of an image, for rand_augment_test.cpp.

Usage: augment_reference.py IMAGE.safetensors RESULTS CASES: cases are JSON, [[name, magnitude], ...]; IMAGE has the
uint8 tensor "image", RESULTS becomes the concatenated bytes of the results.
"""
import json
import pathlib
import struct
import sys

import numpy
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op


def read_image(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + size])["image"]
    begin, end = entry["data_offsets"]
    values = numpy.frombuffer(data[8 + size + begin:8 + size + end], numpy.uint8)
    return torch.from_numpy(values.reshape(entry["shape"]).copy())


def main(image, results, cases):
    image = read_image(image)
    with open(results, "wb") as out:
        for name, magnitude in json.loads(cases):
            if name == "Hue":
                changed = F.adjust_hue(image, magnitude)
            else:
                changed = _apply_op(image, name, magnitude, InterpolationMode.NEAREST, None)
            out.write(changed.contiguous().numpy().tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
