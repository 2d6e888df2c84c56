#!/usr/bin/env python3
"""Writes the outputs of Keras' adaptive pooling, and the gradients of the sum of their squares:
adaptive_pooling_facts.json beside this file, which adaptive_pooling_test.cpp reads. Needs tensorflow (2.21).

usage: adaptive_pooling_facts.py

Inputs are drawn by the names of the layers (support/drawn.py).
"""
import json
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "support"))

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from drawn import drawn  # noqa: E402

SIZES = [((7,), (3,)), ((9,), (2,)), ((6, 5), (2, 3)), ((6, 4), (4, 2)), ((3, 5, 4), (2, 2, 3))]


def main():
    keras.config.set_floatx("float32")  # which TensorFlow has for all of them
    facts = []
    for size, output in SIZES:
        for sort in ("Max", "Average"):
            name = f"Adaptive{sort}Pooling{len(size)}D"
            layer = getattr(keras.layers, name)(output if len(size) > 1 else output[0], data_format="channels_first")
            x = tf.Variable(drawn(name, (2, 2, *size)).astype("float32"))
            with tf.GradientTape() as tape:
                y = layer(x)
                loss = tf.reduce_sum(y * y)
            facts.append({"layer": name, "size": size, "output_size": output, "y": y.numpy().flatten().tolist(),
                          "gradient": tape.gradient(loss, x).numpy().flatten().tolist()})
    (HERE / "adaptive_pooling_facts.json").write_text("[\n" + ",\n".join(map(json.dumps, facts)) + "\n]\n")


if __name__ == "__main__":
    main()
