#!/usr/bin/env python3
"""Writes the numbers of recurrent layers with initial and returned states, and those of the example "Character-level
recurrent sequence-to-sequence model" of keras.io: recurrent_states_facts.json beside this file, which
recurrent_states_test.cpp reads. Needs tensorflow (2.21).

usage: recurrent_states_facts.py

Numbers are float64. Weights are drawn by the names and in the layouts of LibTorch (support/drawn.py).
"""
import json
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "support"))

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

from drawn import drawn  # noqa: E402

BATCH, STEPS, INPUTS, UNITS = 3, 4, 2, 3


def blocks(rows, gru):
    """Has the gates of a GRU in Keras' order: update, reset, new."""
    if not gru:
        return rows
    reset, update, new = np.split(rows, 3)
    return np.concatenate([update, reset, new])


def weights_of(layer, inputs, prefix):
    gates = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}[type(layer).__name__]
    gru, rows = gates == 3, gates * layer.units
    names = ("cell.weight_ih", "cell.weight_hh") if gates == 1 else ("weight_ih_l0", "weight_hh_l0")
    kernel = blocks(drawn(prefix + names[0], (rows, inputs)), gru).T
    recurrent = blocks(drawn(prefix + names[1], (rows, layer.units)), gru).T
    if gates == 1:
        return [kernel, recurrent, drawn(prefix + "cell.bias", (rows,))]
    bias = blocks(drawn(prefix + "bias_ih_l0", (rows,)), gru)
    if gru:
        bias = np.stack([bias, blocks(drawn(prefix + "bias_hh_l0", (rows,)), gru)])
    return [kernel, recurrent, bias]


def layer_cases():
    x = drawn("x", (BATCH, STEPS, INPUTS))
    mask = np.array([[1, 1, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1]], bool)
    facts = []
    for name in ("LSTM", "GRU", "SimpleRNN"):
        for both in (False, True):
            for masked in (False, True):
                for sequences, backwards in ((False, False), (True, False), (True, True)):
                    if both and backwards:
                        continue
                    layer = getattr(layers, name)(UNITS, return_sequences=sequences, return_state=True,
                                                  go_backwards=backwards)
                    count = (2 if name == "LSTM" else 1) * (2 if both else 1)
                    states = [drawn(f"state{i}", (BATCH, UNITS)) for i in range(count)]
                    wrapped = layers.Bidirectional(layer) if both else layer
                    wrapped.build((BATCH, STEPS, INPUTS))
                    if both:
                        wrapped.forward_layer.set_weights(weights_of(wrapped.forward_layer, INPUTS, "forward."))
                        wrapped.backward_layer.set_weights(weights_of(wrapped.backward_layer, INPUTS, "backward."))
                    else:
                        layer.set_weights(weights_of(layer, INPUTS, ""))
                    outputs = wrapped(x, initial_state=states, mask=mask if masked else None)
                    facts.append({"layer": name, "bidirectional": both, "masked": masked, "sequences": sequences,
                                  "backwards": backwards, "outputs": [np.array(each).tolist() for each in outputs]})
    return facts


def pairs(count, tokens, length):
    """Returns sequences and what the decoder is to make of them: the same, shifted by one token; 0 begins it."""
    i, j = np.indices((count, length))
    read = (i * 3 + i * j + j * j * 5) % (tokens - 1) + 1
    wanted = read % (tokens - 1) + 1
    given = np.concatenate([np.zeros((count, 1), int), wanted[:, :-1]], 1)
    return [np.eye(tokens)[each] for each in (read, given, wanted)]


def sequence_to_sequence():
    tokens, latent = 5, 6
    read, given, wanted = pairs(12, tokens, 4)
    encoder_inputs = keras.Input((None, tokens), name="read")
    encoder = layers.LSTM(latent, return_state=True, name="encoder")
    _, state_h, state_c = encoder(encoder_inputs)
    encoder_states = [state_h, state_c]
    decoder_inputs = keras.Input((None, tokens), name="given")
    decoder_lstm = layers.LSTM(latent, return_sequences=True, return_state=True, name="decoder")
    decoder_outputs, _, _ = decoder_lstm(decoder_inputs, initial_state=encoder_states)
    decoder_dense = layers.Dense(tokens, activation="softmax", name="dense")
    decoder_outputs = decoder_dense(decoder_outputs)
    model = keras.Model([encoder_inputs, decoder_inputs], decoder_outputs)
    encoder.set_weights(weights_of(encoder, tokens, "encoder."))
    decoder_lstm.set_weights(weights_of(decoder_lstm, tokens, "decoder."))
    decoder_dense.set_weights([drawn("dense.weight", (tokens, latent)).T, drawn("dense.bias", (tokens,))])
    model.compile(optimizer=keras.optimizers.RMSprop(0.02), loss="categorical_crossentropy", metrics=["accuracy"])
    history = model.fit([read, given], wanted, batch_size=6, epochs=20, shuffle=False, verbose=0)

    encoder_model = keras.Model(encoder_inputs, encoder_states)
    state_inputs = [keras.Input((latent,), name="h"), keras.Input((latent,), name="c")]
    decoder_outputs, state_h, state_c = decoder_lstm(decoder_inputs, initial_state=state_inputs)
    decoder_model = keras.Model([decoder_inputs] + state_inputs, [decoder_dense(decoder_outputs), state_h, state_c])
    states = encoder_model.predict(read[:3], verbose=0)
    target = np.zeros((3, 1, tokens))
    target[:, 0, 0] = 1.0
    decoded, chances = [], []
    for _ in range(4):
        output, h, c = decoder_model.predict([target] + list(states), verbose=0)
        best = output[:, -1].argmax(-1)
        decoded.append(best.tolist())
        chances.append(output[:, -1].tolist())
        target, states = np.eye(tokens)[best][:, None], [h, c]
    return {"history": history.history, "decoded": decoded, "chances": chances}


def main():
    keras.config.set_floatx("float64")
    facts = {"layers": layer_cases(), "sequence_to_sequence": sequence_to_sequence()}
    parts = ['"layers": [\n' + ",\n".join(map(json.dumps, facts["layers"])) + "\n]",
             '"sequence_to_sequence": ' + json.dumps(facts["sequence_to_sequence"])]
    (HERE / "recurrent_states_facts.json").write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
