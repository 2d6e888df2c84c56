"""What Pillow makes of images, for resize_test.cpp.

Usage: resize_reference.py FOLDER

FOLDER has cases.json, a list of {"file", "height", "width", "channels", "new_height", "new_width", "filter"}; FILE has the image's bytes,
row by row, the channels of a pixel together. FILE.out gets the resized image's, FOLDER/version the number of Pillow's version.
"""
import json
import pathlib
import sys

import PIL
from PIL import Image

folder = pathlib.Path(sys.argv[1])
(folder / "version").write_text(PIL.__version__.split(".")[0], encoding="utf-8")
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
for case in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
    bytes_in = (folder / case["file"]).read_bytes()
    image = Image.frombytes("RGB" if case["channels"] == 3 else "L", (case["width"], case["height"]), bytes_in)
    resized = image.resize((case["new_width"], case["new_height"]), FILTERS[case["filter"]])
    (folder / (case["file"] + ".out")).write_bytes(resized.tobytes())
