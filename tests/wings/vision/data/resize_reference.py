"""What Pillow makes of images, for resize_test.cpp.

Usage: resize_reference.py FOLDER

FOLDER has cases.json, a list of {"file", "height", "width", "channels", "new_height", "new_width", "filter"}; FILE has the image's bytes,
row by row, the channels of a pixel together. FILE.out gets the resized image's.

From 13 on Pillow does the vertical pass first where that is less work, and rounds other numbers between the passes; here the horizontal
one is always first, as in the versions before.
"""
import json
import pathlib
import sys

import PIL
from PIL import Image

folder = pathlib.Path(sys.argv[1])
PASSES = 1 if int(PIL.__version__.split(".", maxsplit=1)[0]) < 13 else 2
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
for case in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
    bytes_in = (folder / case["file"]).read_bytes()
    image = Image.frombytes("RGB" if case["channels"] == 3 else "L", (case["width"], case["height"]), bytes_in)
    for height in (case["height"], case["new_height"])[-PASSES:]:
        image = image.resize((case["new_width"], height), FILTERS[case["filter"]])
    (folder / (case["file"] + ".out")).write_bytes(image.tobytes())
