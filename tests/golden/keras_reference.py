"""Keras beside keras_reference_test.cpp.

  keras_reference.py make FOLDER    writes models (NAME.keras) and what they compute (NAME.json)
  keras_reference.py hostile FOLDER writes files to refuse, and hostile.json: for each, a part of the message
  keras_reference.py check FOLDER   reads NAME.keras and NAME.inputs.json, writes what the models compute to NAME.outputs.json
"""
import json
import pathlib
import sys

import keras
import numpy as np
from keras import layers

from keras_hostile import hostile


def models():
    """Yields name, layers or a model, loss, optimizer, metrics, inputs, targets."""
    rng = np.random.default_rng(5)
    rates = keras.optimizers.schedules

    def numbers(*shape):
        return rng.normal(size=shape).astype("float32")

    yield "dense", [
        layers.Input((5,)),
        layers.Dense(6, activation="tanh", kernel_regularizer="l2", name="first"),
        layers.BatchNormalization(momentum=0.8),
        layers.LeakyReLU(negative_slope=0.1),
        layers.Dropout(0.0, seed=3),
        layers.ReLU(max_value=1.5, negative_slope=0.05, threshold=0.01),
        layers.Dense(4, use_bias=False, kernel_initializer="he_normal", trainable=False),
        layers.Dense(3, activation="softmax", bias_initializer=keras.initializers.Constant(0.1)),
    ], "sparse_categorical_crossentropy", keras.optimizers.Adam(
        rates.ExponentialDecay(0.02, 2, 0.9, staircase=True), amsgrad=True), ["accuracy"], numbers(7, 5), rng.integers(0, 3, 7)
    yield "image", [
        layers.Input((9, 8, 3)),
        layers.Conv2D(4, (3, 2), strides=2, padding="same", activation="softmax"),
        layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
        layers.BatchNormalization(),
        layers.SeparableConv2D(5, 2, depth_multiplier=2, activation="relu6"),
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.ZeroPadding2D(((1, 2), (0, 1))),
        layers.MaxPooling2D(2, strides=1, padding="same"),
        layers.Cropping2D(((1, 0), (1, 1))),
        layers.GroupNormalization(groups=1),
        layers.Conv2DTranspose(4, 3, strides=2, padding="same", dilation_rate=1, kernel_constraint=keras.constraints.MinMaxNorm(0.1, 0.2, axis=[0, 1])),
        layers.SpatialDropout2D(0.0),
        layers.AveragePooling2D(2),
        layers.Conv2D(6, 1, groups=2, kernel_initializer=keras.initializers.RandomNormal(stddev=0.3)),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2),
    ], "mse", keras.optimizers.SGD(
        rates.PolynomialDecay(0.01, 3, 0.001, power=1.5, cycle=True), momentum=0.9, nesterov=True), None, numbers(4, 9, 8, 3), numbers(4, 2)
    # Each word once: on TensorFlow, Keras squares the parts of a row's gradient one by one where a word comes twice.
    yield "words", [
        layers.Input((6,), dtype="int32"),
        layers.Embedding(30, 4, mask_zero=True),
        layers.LSTM(5, return_sequences=True),
        layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode="ave"),
        layers.GRU(4, go_backwards=True, use_bias=False),
        layers.Dense(1, activation="sigmoid"),
    ], keras.losses.BinaryCrossentropy(label_smoothing=0.1), keras.optimizers.RMSprop(0.01, centered=True, momentum=0.5), [
        keras.metrics.BinaryAccuracy(threshold=0.4, name="hit")
    ], rng.permutation(30).reshape(5, 6).astype("int32"), rng.integers(0, 2, (5, 1)).astype("float32")
    yield "steps", [
        layers.Input((6, 4)),
        layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="gelu"),
        layers.MaxPooling1D(2, strides=1, padding="same"),
        layers.TimeDistributed(layers.Dense(5, activation="silu")),
        layers.LayerNormalization(axis=[1, 2], epsilon=1e-4),
        layers.RMSNormalization(),
        layers.AveragePooling1D(2),
        layers.AdaptiveAveragePooling1D(2),
        layers.UnitNormalization(axis=[1, -1]),
        layers.Masking(0.5),
        layers.Bidirectional(layers.LSTM(2, return_sequences=True)),
        layers.GlobalMaxPooling1D(),
        layers.Dense(3, kernel_regularizer=keras.regularizers.L1L2(0.001, 0.002)),
    ], keras.losses.Huber(delta=0.7), keras.optimizers.AdamW(
        rates.CosineDecay(0.001, 6, alpha=0.1, warmup_target=0.01, warmup_steps=4), weight_decay=0.02, clipnorm=0.5), ["mae"], numbers(5, 6, 4), numbers(5, 3)
    yield "shapes", [
        layers.Input((2, 6)),
        layers.Rescaling(0.5, 0.1),
        layers.Permute((2, 1)),
        layers.Reshape((3, 4, 1)),
        layers.AdaptiveMaxPooling2D((2, 3)),
        layers.GlobalMaxPooling2D(keepdims=True),
        layers.Flatten(),
        layers.Activation("elu"),
        layers.Dense(4, activation="linear"),
    ], keras.losses.CategoricalCrossentropy(from_logits=True), keras.optimizers.Adagrad(0.05), ["categorical_accuracy"], numbers(
        6, 2, 6), np.eye(4, dtype="float32")[rng.integers(0, 4, 6)]
    yield "volume", [
        layers.Input((4, 5, 4, 2)),
        layers.Conv3D(3, 2, strides=(1, 2, 1), padding="same", kernel_constraint="non_neg"),
        layers.AveragePooling3D((1, 2, 1)),
        layers.Conv3DTranspose(2, 2, strides=2, output_padding=1),
        layers.ZeroPadding3D(((1, 0), (0, 1), (1, 1))),
        layers.Cropping3D(((0, 1), (1, 0), (1, 0))),
        layers.UpSampling3D((1, 2, 1)),
        layers.AdaptiveAveragePooling3D((2, 4, 3)),
        layers.Flatten(),
        layers.Dense(2),
    ], "mae", keras.optimizers.Lamb(0.01, weight_decay=0.1, use_ema=True, ema_momentum=0.9), None, numbers(3, 4, 5, 4, 2), numbers(3, 2)
    table = numbers(6, 3)
    ids = rng.permutation(40)[:12].reshape(6, 2)
    yield "features", features(table), "mse", keras.optimizers.Ftrl(
        rates.InverseTimeDecay(0.01, 2, 0.5), l1_regularization_strength=0.01, beta=0.1, clipvalue=0.5), None, {
        "table": table, "age": 40 * numbers(6, 1), "ids": ids
    }, numbers(6, 1)
    if keras.backend.backend() == "tensorflow":  # which these layers need
        yield "lookups", [
            layers.Input((2,), dtype="int64"),
            layers.IntegerLookup(vocabulary=list(range(39, 0, -3)), num_oov_indices=3, mask_token=4, oov_method="farmhash"),
            layers.Hashing(9, salt=[3, 8], output_mode="int"),
            learned_lookup(mask_token=4, num_oov_indices=2),
            layers.Embedding(11, 2),
            layers.Flatten(),
            layers.Dense(1),
        ], "mse", keras.optimizers.SGD(0.01), None, ids, numbers(6, 1)
    yield "graph", graph(), {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "score": "mse"}, keras.optimizers.Adam(
        0.01, clipnorm=1.0), {"kind": ["accuracy"], "score": [keras.metrics.MeanAbsoluteError(name="off")]}, {
            "series": numbers(6, 4, 3), "other": numbers(6, 4, 3), "ids": rng.permutation(40)[:18].reshape(6, 3)
        }, {"kind": rng.integers(0, 3, 6), "score": numbers(6, 1)}
    yield "both", [
        layers.Input((6,), dtype="int32"),
        layers.Embedding(30, 4, mask_zero=True),
        layers.Bidirectional(layers.GRU(4, return_sequences=True, kernel_initializer="he_uniform"),
                             backward_layer=layers.LSTM(4, return_sequences=True, go_backwards=True, use_bias=False)),
        layers.Bidirectional(layers.SimpleRNN(4, return_sequences=True), merge_mode="mul"),
        layers.RNN([layers.LSTMCell(4, kernel_constraint="max_norm"), layers.GRUCell(3), layers.LSTMCell(5)], return_sequences=True),
        layers.Bidirectional(layers.RNN(layers.GRUCell(3, reset_after=False), go_backwards=True),
                             backward_layer=layers.RNN(layers.LSTMCell(3, activation="relu")), merge_mode="sum"),
        layers.Dense(2),
    ], "mse", keras.optimizers.Nadam(0.01, global_clipnorm=0.5), None, rng.permutation(30).reshape(5, 6).astype("int32"), numbers(5, 2)
    yield "heads", attending_graph(), "mse", keras.optimizers.Adadelta(0.5), None, {
        "ids": np.where(rng.uniform(size=(6, 5)) < 0.7, rng.permutation(39)[:30].reshape(6, 5) + 1, 0), "context": held(numbers(6, 4, 3)),
        "keys": numbers(6, 4, 2)
    }, numbers(6, 2)
    yield "half", half_graph(), "mse", keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(rates.CosineDecayRestarts(0.05, 2, m_mul=0.9, alpha=0.1), momentum=0.5), initial_scale=512.0, dynamic_growth_steps=3), None, numbers(
        5, 6, 4), numbers(5, 2)
    yield "states", states_graph(), "mse", keras.optimizers.SGD(0.05), None, {"read": numbers(6, 5, 3), "given": numbers(6, 4, 2)}, numbers(6, 2)
    yield "masks", masked_graph(), "mse", keras.optimizers.Lion(rates.PiecewiseConstantDecay([2, 4], [0.005, 0.004, 0.002])), None, {"series": held(numbers(6, 5, 3)), "flags": rng.integers(0, 3, (6, 5))}, numbers(6, 2)
    yield "sums", [
        layers.Input((4,)),
        layers.Dense(3, activation="tanh"),
        layers.Dense(1),
    ], "mse", keras.optimizers.Adamax(0.02, gradient_accumulation_steps=2, loss_scale_factor=4.0, weight_decay=0.1), None, numbers(5, 4), numbers(5, 1)
    # Layers that draw, and images of one colour, which most of them leave as they are.
    yield "drawn", [
        layers.Input((7, 6, 2)),
        layers.RandomRotation(0.2, fill_mode="nearest", fill_value=0.5, interpolation="nearest"),
        layers.RandomTranslation((-0.1, 0.3), 0.2, fill_mode="wrap"),
        layers.RandomZoom(0.3),
        layers.RandomZoom((-0.2, 0.1), (-0.3, 0.0)),
        layers.RandomContrast([0.1, 0.3], value_range=(-2, 2)),
        layers.RandomBrightness([0.0, 0.0], value_range=(-1.5, 2.5)),
        layers.RandomCrop(5, 4),
        layers.RandomFlip("vertical"),
        layers.Conv2D(3, 2, activation="tanh"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2),
    ], "mse", keras.optimizers.SGD(0.01), None, np.tile(numbers(4, 1, 1, 2), (1, 7, 6, 1)), numbers(4, 2)
    yield "films", [
        layers.Input((3, 6, 5, 2)),
        layers.ConvLSTM2D(3, (3, 2), padding="same", dilation_rate=(1, 2), return_sequences=True, kernel_regularizer="l2"),
        layers.ConvLSTM2D(2, 2, strides=2, go_backwards=True, recurrent_activation="hard_sigmoid", use_bias=False),
        layers.Flatten(),
        layers.Dense(2),
    ], "mse", keras.optimizers.Adam(0.01, clipvalue=0.05), None, numbers(4, 3, 6, 5, 2), numbers(4, 2)
    yield "functions", functions_graph(), "mse", keras.optimizers.SGD(0.01), None, numbers(5, 4, 3), numbers(5, 2)


def learned_lookup(**options):
    """Returns a layer whose vocabulary Keras writes into an entry of its own."""
    layer = layers.IntegerLookup(**options)
    layer.adapt(np.array([3, 3, 3, 1, 1, 8, 0, 0, 0, 0]))
    return layer


def states_graph():
    """Layers that return their states, and take those of others."""
    read, given = keras.Input((5, 3), name="read"), keras.Input((4, 2), name="given")
    _, h, c = layers.LSTM(4, return_state=True, name="encoder")(read)
    decoded, last, _ = layers.LSTM(4, return_sequences=True, return_state=True, name="decoder")(given, initial_state=[h, c])
    one = layers.GRU(4, name="one")(layers.Masking(0.5)(decoded), initial_state=last)
    _, *both = layers.Bidirectional(layers.GRU(3, return_state=True), name="both")(read)
    again = layers.Bidirectional(layers.GRU(3), name="again")(given, initial_state=both)
    odd = layers.LSTM(4, activation="softsign", name="odd")(given, initial_state=[c, last])
    return keras.Model([read, given], layers.Dense(2, name="y")(layers.Concatenate()([one, again, odd])), name="states")


def half_graph():
    """Layers with a policy of their own; a number of several inputs and one that keeps statistics among them."""
    half = {"dtype": "mixed_float16"}
    x = keras.Input((6, 4), name="x")
    both = layers.Bidirectional(layers.LSTM(3, return_sequences=True, **half), **half)(layers.Conv1D(5, 2, padding="same", **half)(x))
    heads, _ = layers.MultiHeadAttention(2, 3, **half)(both, both, return_attention_scores=True)  # JAX's other way has no float16 on CPUs
    norm = layers.BatchNormalization(**half)(layers.Add(**half)([both, heads]))
    frozen = layers.Dense(4, dtype="float16", trainable=False)(layers.GlobalMaxPooling1D(**half)(norm))
    return keras.Model(x, layers.Dense(2, name="y")(frozen), name="half")


def attending_graph():
    """Attention of two and three inputs, with the masks that Keras has for them: its MultiHeadAttention ends those of its inputs.

    With JAX, values of another size than the keys need return_attention_scores.
    """
    ids, context, keys = keras.Input((5,), dtype="int32", name="ids"), keras.Input((4, 3), name="context"), keras.Input((4, 2), name="keys")
    words = layers.Embedding(40, 6, mask_zero=True)(ids)
    itself = layers.MultiHeadAttention(2, 3, name="itself")(words, words, use_causal_mask=True)
    joined = layers.LayerNormalization()(layers.Add()([words, itself]))
    seen = keras.ops.any(keras.ops.not_equal(context, -1.0), axis=-1)
    allowed = layers.Reshape((5, 4))(layers.Dense(20, activation="relu")(layers.Flatten()(context)))
    crossed = layers.MultiHeadAttention(2, 2, output_shape=7, use_bias=False, name="crossed")(
        joined, value=context, key=keys, value_mask=seen, attention_mask=keras.ops.not_equal(allowed, 0.0))
    scored, scores = layers.MultiHeadAttention(3, 2, value_dim=4, name="scored")(itself, context, return_attention_scores=True)
    dotted = layers.Attention(use_scale=True)([scored, layers.Dense(6)(context)], use_causal_mask=True)
    pooled = [layers.GlobalAveragePooling1D()(each) for each in (joined, crossed, scored, itself, dotted)]
    return keras.Model([ids, context, keys], layers.Dense(2, name="y")(layers.Concatenate()([*pooled, layers.GlobalMaxPooling2D(data_format="channels_first")(scores)])), name="heads")


def held(series):
    """Returns sequences some of whose steps are -1."""
    series[::2, 2:4] = -1.0
    return series


def masked_graph():
    """Masks that the layers make, and masks that are given to calls."""
    series, flags = keras.Input((5, 3), name="series"), keras.Input((5,), dtype="int32", name="flags")
    ops = keras.ops
    given = ops.logical_and(ops.not_equal(flags, 0), ops.logical_or(ops.not_equal(flags, 1), ops.any(ops.not_equal(series, -1.0), axis=2)))
    masked = layers.Masking(-1.0)(series)
    ahead, back = layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode=None, name="apart")(masked, mask=given)
    joined = layers.Concatenate()([layers.LSTM(3)(masked), layers.GRU(3)(ahead, mask=given), layers.SimpleRNN(2)(back)])
    return keras.Model([series, flags], layers.Dense(2, name="y")(joined), name="masks")


def features(table):
    """Layers that were adapted, or were given what they know."""
    inputs = {"table": keras.Input((3,), name="table"), "age": keras.Input((1,), name="age"),
              "ids": keras.Input((2,), dtype="int64", name="ids")}
    normalize, bins = layers.Normalization(), layers.Discretization(num_bins=4, epsilon=0.05)
    normalize.adapt(3 * table + 1)
    bins.update_state(np.arange(-60, 90, 1.3))  # adapt() without TensorFlow
    bins.finalize_state()
    parts = [
        normalize(inputs["table"]),
        layers.Normalization(axis=None, mean=0.5, variance=4)(inputs["table"]),
        layers.Normalization(mean=[1, 2, 3.5], variance=[1.0, 0.0, 2.0], invert=True)(inputs["table"]),
        layers.Flatten()(layers.Embedding(5, 2)(bins(inputs["age"]))),
        layers.Discretization(bin_boundaries=[-20.0, 0.1, 30.0], output_mode="one_hot")(inputs["age"]),
        layers.CategoryEncoding(20)(inputs["ids"]),
    ]
    return keras.Model(inputs, layers.Dense(1, name="score")(layers.Concatenate()(parts)), name="features")


def graph():
    """A shared layer, a nested model, masks, several inputs and outputs."""
    series, other, ids = keras.Input((4, 3), name="series"), keras.Input((4, 3), name="other"), keras.Input((3,), dtype="int32", name="ids")
    encoder = layers.LSTM(5, activation="softsign", recurrent_activation="hard_sigmoid", name="encoder")
    tail = keras.Sequential([layers.Dense(4, activation="relu", name="inner"), layers.BatchNormalization()], name="tail")
    words = layers.SimpleRNN(3, name="words")(layers.Embedding(40, 4, mask_zero=True, name="emb")(ids))
    both = layers.Concatenate(name="both")([encoder(series), words, encoder(other)])
    tails = layers.Multiply()([tail(both), layers.Dropout(0.0)(tail(layers.Dense(13, name="mixed")(both)))])
    gated = layers.GRU(4, reset_after=False)(1.0 - (series / 2.0 - 0.5) * other)
    kind = layers.Dense(3, name="kind")(layers.ELU()(tails) + gated)
    score = layers.Dense(1, name="score", kernel_constraint="max_norm")(layers.Subtract()([tails, layers.Dense(4)(words)]))
    return keras.Model([series, other, ids], {"kind": kind, "score": score}, name="graph")


def functions_graph():
    """Parts and functions of tensors."""
    x, ops = keras.Input((4, 3), name="x"), keras.ops
    series = layers.Dense(3)(x)
    parts = layers.Concatenate()([series[:, -1], series[..., 0], x[:, ::2, 1], ops.mean(series[:, 1:9], axis=1),
                                  ops.max(series, axis=-1), ops.sum(ops.square(series), axis=1), ops.min(x, axis=2, keepdims=True)[:, :-1, 0]])
    large = ops.maximum(ops.absolute(parts), 0.3)
    curves = ops.log(large) + ops.sqrt(large) * ops.tanh(parts) - ops.exp(ops.minimum(parts, 1.0)) / large**1.5
    bent = ops.relu(curves) + ops.sigmoid(parts) - ops.silu(curves)
    return keras.Model(x, layers.Dense(2, name="y")(bent), name="functions")


def column(values):
    values = np.asarray(values)
    return {"values": values.tolist(), "integers": values.dtype.kind == "i"}


def columns(values, name):
    return {key: column(each) for key, each in values.items()} if isinstance(values, dict) else {name: column(values)}


def arrays(facts):
    """Returns what columns() made JSON of."""
    each = {key: np.array(fact["values"], dtype="int32" if fact["integers"] else "float32") for key, fact in facts.items()}
    return each if len(each) > 1 else next(iter(each.values()))


def lists(outputs):
    """Returns the outputs by their names, an only one as "y"."""
    return {key: np.asarray(each).tolist() for key, each in outputs.items()} if isinstance(outputs, dict) else {"y": np.asarray(outputs).tolist()}


def logs(result):
    return {name: float(value) for name, value in result.items()}


def make(folder):
    for name, stack, loss, optimizer, metrics, x, y in models():
        keras.utils.set_random_seed(7)
        model = stack if isinstance(stack, keras.Model) else keras.Sequential(stack, name=name)
        model.compile(optimizer=optimizer, loss=loss, metrics=metrics)
        for _ in range(3):
            model.train_on_batch(x, y)
        model.save(folder / f"{name}.keras")
        model = keras.saving.load_model(folder / f"{name}.keras")
        facts = {"inputs": columns(x, "x"), "targets": columns(y, "y")}
        facts["outputs"] = lists(model.predict(x, verbose=0))
        facts["evaluate"] = logs(model.evaluate(x, y, batch_size=6 if isinstance(x, dict) else len(x), verbose=0, return_dict=True))
        model.reset_metrics()
        facts["train_on_batch"] = logs(model.train_on_batch(x, y, return_dict=True))
        facts["outputs_after"] = lists(model.predict(x, verbose=0))
        (folder / f"{name}.json").write_text(json.dumps(facts))
    weights(folder)


def drawn(name, shape):
    """Returns numbers that depend on a weight's name, so that each is another one."""
    values = np.random.default_rng(sum(map(ord, name)) + sum(shape)).uniform(0.2, 1.0, shape)
    return values if "variance" in name or "gamma" in name else values - 0.6


def weights(folder):
    """Writes the weights of networks of keras.applications alone."""
    options = {"input_shape": (32, 32, 3), "weights": None, "classes": 5}
    networks = {"mobile": keras.applications.MobileNetV2(alpha=0.35, **options), "efficient": keras.applications.EfficientNetB0(**options)}
    for name, model in networks.items():
        for weight in model.weights:
            weight.assign(drawn(weight.path, weight.shape))
        for layer in model.layers:
            if isinstance(layer, layers.Normalization):
                layer.finalize_state()  # assign() leaves it out
        model.save_weights(folder / f"{name}.weights.h5")
        x = np.random.default_rng(3).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
        (folder / f"{name}.json").write_text(json.dumps({"inputs": x.tolist(), "outputs": np.asarray(model.predict(x, verbose=0)).tolist()}))


def check(folder):
    for file in sorted(folder.glob("*.keras")):
        facts = json.loads(file.with_suffix(".inputs.json").read_text())
        model = keras.saving.load_model(file)
        x, y = arrays(facts["inputs"]), arrays(facts["targets"])
        result = {"outputs": lists(model.predict(x, verbose=0))}
        # Keras goes on with it, by the state of our optimizer.
        result["train_on_batch"] = logs(model.train_on_batch(x, y, return_dict=True))
        result["outputs_after"] = lists(model.predict(x, verbose=0))
        if "original" in facts and file.stem == "drawn":  # whose options change no numbers
            result["options"], result["ours"] = drawn_options(facts["original"]), drawn_options(file)
        file.with_suffix(".outputs.json").write_text(json.dumps(result))


def drawn_options(file):
    """Returns the options of the layers that draw, without what differs from draw to draw."""
    configs = [layer.get_config() for layer in keras.saving.load_model(file).layers if layer.name.startswith("random")]
    both_sides = lambda key, value: [-value, value] if key.endswith("_factor") and isinstance(value, float) else value
    return [{key: both_sides(key, value) for key, value in config.items() if key not in ("seed", "dtype")} for config in configs]


{"make": make, "check": check, "hostile": hostile}[sys.argv[1]](pathlib.Path(sys.argv[2]))
