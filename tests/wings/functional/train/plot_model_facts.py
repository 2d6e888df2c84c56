#!/usr/bin/env python3
"""Writes the graphs that Keras' model_to_dot makes: plot_model_facts.json beside this file, which plot_model_test.cpp
reads. Needs tensorflow (2.21) and pydot.

usage: plot_model_facts.py
"""
import json
import os
import pathlib

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras  # noqa: E402
from keras import layers  # noqa: E402


def chain():
    return keras.Sequential([
        keras.Input((4,)),
        layers.Dense(8, activation="relu", name="hidden"),
        layers.BatchNormalization(name="norm"),
        layers.Dropout(0.5, name="drop"),
        layers.Activation("tanh", name="tanh"),
        layers.Dense(3, name="out"),
    ], name="chain")


def graph():
    a, b = keras.Input((3,), name="a"), keras.Input((None, 2), name="b")
    shared = layers.Dense(4, activation="gelu", name="shared")
    steps = layers.LSTM(4, name="steps")(b)
    joined = layers.Concatenate(name="join")([shared(a), steps])
    fixed = layers.Dense(3, name="fixed", trainable=False)(joined)
    again = shared(fixed)
    return keras.Model([a, b], [layers.Add(name="add")([again, steps]), fixed], name="graph")


def nested():
    x = keras.Input((4,), name="x")
    first, second = keras.Input((8,), name="first"), keras.Input((8,), name="second")
    left = layers.Dense(5, name="left")(first)
    minus = layers.Subtract(name="minus")([left, layers.Dense(5, name="right")(second)])
    inner = keras.Model([first, second], [left, minus], name="inner")
    tower = keras.Sequential([keras.Input((4,)), layers.Dense(8, name="low"), layers.Dense(8, name="high")], name="tower")
    tower.trainable = False
    up = layers.Dense(8, name="up")(x)
    outputs = inner([tower(x), up])
    return keras.Model(x, layers.Concatenate(name="join")(outputs), name="outer")


def module():
    class Model(keras.Model):
        def call(self, x):
            return x

    own = Model(name="own")
    own.built = True
    return own


def graph_of(dot):
    """Returns the labels of a graph in order, the edges by the labels' first numbers, and the labels of its clusters."""
    def names(part):
        return [node.get_name() for node in part.get_nodes() if node.get_name() != "node"]

    def parts(part):
        yield part
        for each in part.get_subgraphs():
            yield from parts(each)

    nodes, edges, clusters = {}, set(), {}
    for part in parts(dot):
        for node in part.get_nodes():
            if node.get_name() != "node":
                nodes[node.get_name()] = node.get("label")
    for part in parts(dot):
        edges |= {(nodes[edge.get_source()], nodes[edge.get_destination()]) for edge in part.get_edges()}
        if part is not dot:
            clusters[part.get("label").strip('"')] = sorted(nodes[name] for name in names(part))
    settings = {name: str(value).lower() for name, value in dot.get_attributes().items()}
    labels = sorted(nodes.values())
    edges = sorted([labels.index(a), labels.index(b)] for a, b in edges)
    clusters = {name: [labels.index(each) for each in inside] for name, inside in clusters.items()}
    return {"settings": settings, "nodes": labels, "edges": edges, "clusters": clusters}


def main():
    options = [
        {},
        {"show_shapes": True, "rankdir": "LR", "dpi": 96, "splines": "curved"},
        {"show_layer_names": False, "show_layer_activations": True},
        {"show_trainable": True, "expand_nested": True},
        {"show_shapes": True, "show_layer_activations": True, "show_trainable": True},
    ]
    facts = []
    for make in (chain, graph, nested, module):
        model = make()
        for each in options:
            facts.append({"model": make.__name__, "options": each,
                          "graph": graph_of(keras.utils.model_to_dot(model, **each))})
    file = pathlib.Path(__file__).with_name("plot_model_facts.json")
    file.write_text("[\n" + ",\n".join(map(json.dumps, facts)) + "\n]\n")


if __name__ == "__main__":
    main()
