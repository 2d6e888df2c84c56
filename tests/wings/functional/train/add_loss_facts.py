#!/usr/bin/env python3
"""Writes the numbers of a variational autoencoder whose layer calls add_loss(): add_loss_facts.json beside this file,
which add_loss_test.cpp reads. Needs tensorflow (2.21).

usage: add_loss_facts.py

The noise of the samples is an input. Numbers are float64. The options are numbers of float32, to which Keras rounds
them. Weights are drawn by their names (support/drawn.py).
"""
import json
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "support"))

import keras  # noqa: E402
from keras import layers, ops  # noqa: E402

from drawn import drawn  # noqa: E402

EXAMPLES, FEATURES, LATENT = 10, 6, 2


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_var, noise = inputs
        self.add_loss(-0.05 * ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var)))
        return mean + ops.exp(0.5 * log_var) * noise


def autoencoder():
    x, noise = keras.Input((FEATURES,), name="x"), keras.Input((LATENT,), name="noise")
    h = layers.Dense(5, activation="tanh", name="hidden")(x)
    mean, log_var = layers.Dense(LATENT, name="mean")(h), layers.Dense(LATENT, name="log_var")(h)
    z = Sampling(name="sampling")([mean, log_var, noise])
    decoded = layers.Dense(FEATURES, kernel_regularizer=keras.regularizers.L2(0.0078125), name="decoded")(z)
    model = keras.Model([x, noise], decoded)
    for layer in model.layers:
        for variable in layer.weights:
            shape = tuple(variable.shape)
            if len(shape) == 1:
                variable.assign(drawn(f"{layer.name}.bias", shape))
            else:
                variable.assign(drawn(f"{layer.name}.weight", shape[::-1]).T)
    model.compile(optimizer=keras.optimizers.SGD(0.25), loss="mse")
    return model


def main():
    keras.config.set_floatx("float64")
    x, noise = drawn("x", (EXAMPLES, FEATURES)), drawn("noise", (EXAMPLES, LATENT))
    model = autoencoder()
    facts = {"evaluate": float(model.evaluate([x, noise], x, batch_size=4, verbose=0))}
    model([x, noise])
    facts["losses"] = [float(each) for each in model.losses]
    history = model.fit([x, noise], x, batch_size=4, epochs=4, shuffle=False, verbose=0)
    facts["history"] = history.history["loss"]
    facts["weights"] = {layer.name: layer.weights[0].numpy().T.tolist() for layer in model.layers if layer.weights}
    (HERE / "add_loss_facts.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
