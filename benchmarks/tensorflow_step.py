"""TensorFlow's side: training steps with Adam of the models of pytorch_step.py, on CPUs.

usage: tensorflow_step.py MODEL one|mirrored|multi_worker call|loop SECONDS [--xla]     prints one JSON line; models are mlp, cnn and resnet50
one: no strategy, all cores; mirrored: MirroredStrategy over 2 logical devices; multi_worker: a task of two (TF_CONFIG), one core's threads each.
call: a call of a tf.function is a step; loop: the loop over the steps is inside the tf.function.
"""
import json
import os
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from step_clock import clock

CLASSES = 10
SHAPES = {"mlp": (784,), "cnn": (28, 28, 1), "resnet50": (64, 64, 3)}
INSIDE = {"mlp": 100, "cnn": 10, "resnet50": 3}  # steps of one call of the loop


def strategy_of(kind):
    if kind == "multi_worker":
        tf.config.threading.set_intra_op_parallelism_threads(1)
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "mirrored":
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
        return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    return tf.distribute.get_strategy()


def make(name):
    layers = tf.keras.layers
    if name == "mlp":
        return tf.keras.Sequential([layers.Input(SHAPES[name]), layers.Dense(256, activation="relu"), layers.Dense(128, activation="relu"), layers.Dense(CLASSES)])
    if name == "cnn":
        return tf.keras.Sequential([layers.Input(SHAPES[name]), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"),
                                    layers.MaxPooling2D(), layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(CLASSES)])
    return tf.keras.applications.ResNet50(weights=None, input_shape=SHAPES[name], classes=CLASSES, classifier_activation=None)


def step_of(strategy, name, batch, xla):
    with strategy.scope():
        model, adam = make(name), tf.keras.optimizers.Adam(1e-3)
        adam.build(model.trainable_variables)
    size = batch * strategy.num_replicas_in_sync

    def step(x, y):
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
            loss = tf.reduce_sum(each) / size
        adam.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return tf.function(step, jit_compile=True) if xla else step


def times_of(call, seconds, same_for_all):
    """Seconds of each of as many calls as take so long; workers all make the same number, which does not depend on their speeds."""
    times = []
    end = clock() + seconds
    while len(times) < same_for_all if same_for_all else clock() < end or len(times) < 3:
        begin = clock()
        call()
        times.append(clock() - begin)
    return times[len(times) // 5:]  # the first ones warm up


def main():
    name, kind, how, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    xla = "--xla" in sys.argv[5:]
    strategy = strategy_of(kind)
    batch = 8 if name == "resnet50" else 64
    step = step_of(strategy, name, batch, xla)
    random = tf.random.Generator.from_seed(1)

    def share(_):
        return random.normal((batch, *SHAPES[name])), random.uniform((batch,), 0, CLASSES, tf.int64)

    x, y = share(None)
    if kind != "one":
        x, y = (strategy.experimental_distribute_values_from_function(lambda _, part=part: part) for part in (x, y))

    @tf.function
    def call(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(x, y)), axis=None)

    @tf.function
    def loop(x, y, count):
        for _ in tf.range(count):
            strategy.run(step, args=(x, y))

    inside = INSIDE[name] if how == "loop" else 1
    count = tf.constant(inside)
    one = (lambda: loop(x, y, count)) if how == "loop" else (lambda: call(x, y))
    one()
    begin = clock()
    one()
    took = clock() - begin
    same_for_all = max(5, int(seconds / took)) if kind == "multi_worker" else 0
    if same_for_all:  # rounded, and for worker 0's own speed the same: both have to make as many
        counts = strategy.gather(tf.constant([same_for_all]), axis=0)
        same_for_all = int(tf.reduce_min(counts))
    times = [each / inside for each in times_of(one, seconds, same_for_all)]
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_id == 0:
        size = batch * strategy.num_replicas_in_sync
        took = statistics.median(times)
        print(json.dumps({"step": name, "mode": f"{kind} {how}{' xla' * xla}", "us": took * 1e6, "least_us": min(times) * 1e6,
                          "samples_per_second": size / took}), flush=True)


if __name__ == "__main__":
    main()
