"""Files for keras_reference.py that are to be refused."""
import io
import json
import warnings
import zipfile

import h5py
import keras
import numpy as np
from keras import layers


def damages():
    """Yields a name, a part of the message, and a function of (config, HDF5 file, archive) that does the damage."""
    kernel = "layers/dense/vars/0"

    def replaced(make):
        def change(config, h5, entries):
            del h5[kernel]
            make(h5)

        return change

    def dense(**options):
        return lambda config, h5, entries: config["config"]["layers"][1]["config"].update(options)

    def rate(name, **options):
        schedule = {"module": "keras.optimizers.schedules", "class_name": name, "config": options}
        return lambda config, h5, entries: config["compile_config"]["optimizer"]["config"].update(learning_rate=schedule)

    def virtual(h5):
        layout = h5py.VirtualLayout(shape=(3, 2), dtype="f4")
        layout[:] = h5py.VirtualSource("/etc/hostname", "x", shape=(3, 2))
        h5.create_virtual_dataset(kernel, layout)

    def huge(h5):
        space = h5py.h5s.create_simple((1 << 40, 1 << 20))
        h5py.h5d.create(h5["layers/dense/vars"].id, b"0", h5py.h5t.IEEE_F32LE, space)

    yield "virtual", "is virtual", replaced(virtual)
    yield "external", "in another file", replaced(lambda h5: h5.create_dataset(kernel, (3, 2), "f4", external=[("/etc/hostname", 0, 24)]))
    yield "soft_link", "a link to another place", replaced(lambda h5: h5.__setitem__(kernel, h5py.SoftLink("/layers/dense/vars/1")))
    yield "external_link", "a link to another file", replaced(lambda h5: h5.__setitem__(kernel, h5py.ExternalLink("/etc/hostname", "x")))
    yield "huge", "more than the", replaced(huge)
    yield "chunks", "in chunks", replaced(lambda h5: h5.create_dataset(kernel, data=np.zeros((3, 2), "f4"), compression="gzip"))
    yield "words", "unknown type", replaced(lambda h5: h5.create_dataset(kernel, data=[b"a", b"b"]))
    yield "transposed", "the shape is", replaced(lambda h5: h5.create_dataset(kernel, data=np.zeros((2, 3), "f4")))
    yield "missing", "is not there", lambda config, h5, entries: h5.__delitem__("layers/dense/vars/1")
    yield "more", "belongs to no weight", lambda config, h5, entries: h5.create_dataset("layers/dense_1/vars/0", data=np.zeros(3))
    yield "circle", "is in more than", lambda config, h5, entries: h5.__setitem__("layers/again", h5["/"])
    yield "slots", "variables, wanted", lambda config, h5, entries: h5.__delitem__("optimizer/vars/5")
    yield "units", "its options ask for", dense(units=10**12)
    yield "negative", "units", dense(units=-1)
    yield "text", "units", dense(units="2")
    yield "key", "surprise", dense(surprise=1)
    yield "initializer", "of the module", dense(kernel_initializer={"module": "os", "class_name": "system", "config": {}})
    yield "activation", "activation", dense(activation={"module": "builtins", "class_name": "function", "config": "eval"})
    yield "constraint", "kernel_constraint", dense(kernel_constraint={"module": "keras.constraints", "class_name": "Mine", "config": {}})
    yield "loss", "no_such_loss", lambda config, h5, entries: config["compile_config"].update(loss="no_such_loss")
    yield "schedule", "the schedule", rate("Mine")
    yield "steps", "decay_steps", rate("ExponentialDecay", decay_steps=0)
    yield "layers", "wanted a list", lambda config, h5, entries: config["config"].update(layers=5)
    yield "shape", "is not supported", lambda config, h5, entries: config["config"]["layers"][0]["config"].update(batch_shape=[None, -3])
    yield "nested", "in more than", lambda config, h5, entries: entries.update({"config.json": b"[" * 100000})
    yield "cut_json", "is damaged", lambda config, h5, entries: entries.update({"config.json": b'{"module": "keras", '})
    yield "keras2", "only Keras 3", lambda config, h5, entries: entries.update({"metadata.json": b'{"keras_version": "2.15.0"}'})
    yield "climbing", "is not supported", lambda config, h5, entries: entries.update({"../evil": b"x"})
    words = "assets/layers/integer_lookup/vocabulary.txt"
    yield "climbing_words", "is not supported", lambda config, h5, entries: entries.update({"assets/layers/../../vocabulary.txt": b"1"})
    yield "lonely_words", "belongs to no IntegerLookup", lambda config, h5, entries: entries.update({words: b"-1\n3"})
    yield "letters", "wanted an integer", lambda config, h5, entries: entries.update({words: b"-1\nx"})
    yield "huge_words", "wanted 1 to", lambda config, h5, entries: entries.update({words: b"1\n" * (32 << 20)})
    yield "bomb", "wanted 1 to", lambda config, h5, entries: entries.update({"config.json": b" " * (64 << 20)})


def hostile(folder):
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
    model.compile(optimizer="adam", loss="mse")
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
    model.save(folder / "good.keras")
    with zipfile.ZipFile(folder / "good.keras") as archive:
        good = {name: archive.read(name) for name in archive.namelist()}
    messages = {}
    for name, message, damage in damages():
        weights = io.BytesIO(good["model.weights.h5"])
        config = json.loads(good["config.json"])
        entries = {}
        with h5py.File(weights, "r+") as h5:
            damage(config, h5, entries)
        entries = {**good, "config.json": json.dumps(config).encode(), "model.weights.h5": weights.getvalue(), **entries}
        with zipfile.ZipFile(folder / f"{name}.keras", "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, data in entries.items():
                archive.writestr(entry, data)
        messages[name] = message
    with zipfile.ZipFile(folder / "twice.keras", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, data in [*good.items(), ("config.json", good["config.json"])]:
            archive.writestr(entry, data)
    messages["twice"] = "has it twice"
    (folder / "hostile.json").write_text(json.dumps(messages))
