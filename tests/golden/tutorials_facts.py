#!/usr/bin/env python3
"""Writes the numbers that TensorFlow's tutorials print with drawn weights and pictures: tutorials_facts.json beside
this file, which tutorials_test.cpp reads. Needs tensorflow (2.21) and tf_keras.

usage: tutorials_facts.py

Models, optimizers, losses and loops are those of the notebooks. The pictures are not shuffled, and numbers are float64.
The weights of a model are drawn as "0", "1" ... in Keras' order (support/drawn.py has the formula).
"""
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))

import numpy as np  # noqa: E402

from drawn import drawn  # noqa: E402

EXAMPLES, TESTED = 160, 48


def pictures(name, count):
    """Returns pictures of 28 x 28 and their labels. A bright row says the class, more or less."""
    x = (drawn(f"{name}.x", (count, 28, 28)) + 1.0) / 2.0
    y = np.arange(count) * 7 % 10
    for i in range(count):
        x[i, 2 * y[i] + 3] += 1.0
    return x, y


def libraries(replicas=1):
    import keras
    import tensorflow as tf
    keras.backend.set_floatx("float64")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf, keras


def set_drawn(model):
    model.set_weights([weight_of(i, each.shape) for i, each in enumerate(model.weights)])


def weight_of(index, shape):
    """Draws a weight as LibTorch has it, and turns it into Keras' layout."""
    shape = tuple(shape)
    if len(shape) == 1:
        return drawn(f"{index}.bias", shape)
    if len(shape) == 4:
        return drawn(f"{index}.weight", (shape[3], shape[2], shape[0], shape[1])).transpose(2, 3, 1, 0)
    return drawn(f"{index}.weight", shape[::-1]).T


def dataset(tf, name, count, batch, channel=True):
    x, y = pictures(name, count)
    return tf.data.Dataset.from_tensor_slices((x[..., None] if channel else x, y)).batch(batch)


def numbers(history):
    return {name: [float(each) for each in values] for name, values in history.history.items()}


def evaluated(model, data, **options):
    return {name: float(value) for name, value in model.evaluate(data, verbose=0, return_dict=True, **options).items()}


# Distributed training with Keras: the weights of the last checkpoint, the model that was saved.
def distributed_keras():
    tf, keras = libraries(2)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        model = keras.Sequential([
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10)])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      optimizer=keras.optimizers.Adam(learning_rate=0.001), metrics=["accuracy"])
        set_drawn(model)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 if epoch < 3 else 1e-4)
    history = model.fit(dataset(tf, "train", EXAMPLES, 64), epochs=4, callbacks=[rates], verbose=0)
    tested = dataset(tf, "test", TESTED, 64)
    result = {"history": numbers(history), "evaluate": evaluated(model, tested)}
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "m.keras")
        model.save(path)
        unreplicated = keras.models.load_model(path)
        result["unreplicated"] = evaluated(unreplicated, tested)
    return result


# Custom training: what the loop prints.
def custom_training():
    tf, keras = libraries(2)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    train_dist = strategy.experimental_distribute_dataset(dataset(tf, "train", EXAMPLES, 64))
    test_dist = strategy.experimental_distribute_dataset(dataset(tf, "test", TESTED, 64))
    with strategy.scope():
        l2 = keras.regularizers.L2(1e-5)
        model = keras.Sequential([
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=l2),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu", kernel_regularizer=l2),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu", kernel_regularizer=l2),
            keras.layers.Dense(10, kernel_regularizer=l2)])
        set_drawn(model)
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

        def compute_loss(labels, predictions, model_losses):
            loss = tf.nn.compute_average_loss(loss_object(labels, predictions))
            if model_losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
            return loss

        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
        test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
        optimizer = keras.optimizers.Adam(learning_rate=0.001)
        optimizer.build(model.trainable_variables)

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = compute_loss(labels, predictions, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs):
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @tf.function
    def distributed_train_step(inputs):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)

    @tf.function
    def distributed_test_step(inputs):
        return strategy.run(test_step, args=(inputs,))

    result = {"loss": [], "accuracy": [], "test_loss": [], "test_accuracy": []}
    for _ in range(3):
        losses = [float(distributed_train_step(x)) for x in train_dist]
        for x in test_dist:
            distributed_test_step(x)
        result["loss"].append(sum(losses) / len(losses))
        result["accuracy"].append(float(train_accuracy.result()))
        result["test_loss"].append(float(test_loss.result()))
        result["test_accuracy"].append(float(test_accuracy.result()))
        for each in (test_loss, train_accuracy, test_accuracy):
            each.reset_state()
    return result


# Save and load: one strategy, none, another one. The optimizer goes on.
def save_and_load():
    tf, keras = libraries(2)
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    data = dataset(tf, "train", EXAMPLES, 64)
    with mirrored.scope():
        model = keras.Sequential([
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10)])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      optimizer=keras.optimizers.Adam(), metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")])
        set_drawn(model)
        result = {"history": numbers(model.fit(data, epochs=2, verbose=0))}
        result["predict"] = model.predict(dataset(tf, "test", 3, 3), verbose=0).tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "m.keras")
        model.save(path)
        restored = keras.models.load_model(path)
        result["restored"] = numbers(restored.fit(data, epochs=2, verbose=0))
        with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
            another = keras.models.load_model(path)
            result["another"] = numbers(another.fit(data, epochs=2, verbose=0))
    return result


# Keras' guide: two devices, validation.
def guide():
    tf, keras = libraries(2)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

    def flat(name, count):
        x, y = pictures(name, count)
        return tf.data.Dataset.from_tensor_slices((x.reshape(count, 784), y)).batch(64)

    with strategy.scope():
        inputs = keras.Input(shape=(784,))
        x = keras.layers.Dense(256, activation="relu")(inputs)
        x = keras.layers.Dense(256, activation="relu")(x)
        model = keras.Model(inputs=inputs, outputs=keras.layers.Dense(10)(x))
        model.compile(optimizer=keras.optimizers.Adam(),
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      metrics=[keras.metrics.SparseCategoricalAccuracy()])
        set_drawn(model)
        history = model.fit(flat("train", EXAMPLES), epochs=2, validation_data=flat("validation", TESTED), verbose=0)
        return {"history": numbers(history), "evaluate": evaluated(model, flat("test", TESTED))}


def small_cnn(keras, l2=None):
    return keras.Sequential([
        keras.layers.Input((28, 28)),
        keras.layers.Reshape((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=l2),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu", kernel_regularizer=l2),
        keras.layers.Dense(10)])


# Several workers with Keras: shards of the data, and all data for each.
def multi_worker_with_keras():
    tf, _ = libraries()
    import tf_keras as keras  # Keras 3 cannot fit() on several workers
    keras.backend.set_floatx("float64")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = small_cnn(keras)
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      optimizer=keras.optimizers.SGD(learning_rate=0.005, momentum=0.9),
                      metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")])
        set_drawn(model)
        data = dataset(tf, "train", EXAMPLES, 32, channel=False).repeat()
        result = {"history": numbers(model.fit(data, epochs=2, steps_per_epoch=5, verbose=0))}
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        result["no_auto_shard"] = numbers(
            model.fit(data.with_options(options), epochs=1, steps_per_epoch=5, verbose=0))
    return result


# The custom loop with several workers.
def multi_worker_with_ctl():
    tf, keras = libraries()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def dataset_fn(context):
        x, y = pictures("train", EXAMPLES)
        data = tf.data.Dataset.from_tensor_slices((x, y))
        data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        return data.repeat().batch(context.get_per_replica_batch_size(32))

    with strategy.scope():
        model = small_cnn(keras, keras.regularizers.L2(1e-4))
        set_drawn(model)
        optimizer = keras.optimizers.SGD(learning_rate=0.005, momentum=0.9)
        optimizer.build(model.trainable_variables)
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))

    @tf.function
    def train_step(iterator):
        def step_fn(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                predictions = model(x, training=True)
                per_batch_loss = keras.losses.SparseCategoricalCrossentropy(
                    from_logits=True, reduction="none")(y, predictions)
                loss = tf.nn.compute_average_loss(per_batch_loss)
                loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
            train_accuracy.update_state(y, predictions)
            return loss
        per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    result = {"loss": [], "accuracy": []}
    for _ in range(2):
        losses = [float(train_step(iterator)) for _ in range(5)]
        result["loss"].append(sum(losses) / len(losses))
        result["accuracy"].append(float(train_accuracy.result()))
        train_accuracy.reset_state()
    return result


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


# Parameter servers: one worker, whose steps are one after another, and an embedding in two parts.
def parameter_server_training():
    tf, _ = libraries()
    import tf_keras as keras
    keras.backend.set_floatx("float64")
    ports = free_ports(2)
    cluster = tf.train.ClusterSpec({"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]})
    servers = [tf.distribute.Server(cluster, job_name=job, task_index=0, protocol="grpc") for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        model_input = keras.layers.Input(shape=(3,), dtype=tf.int64)
        embedded = keras.layers.Embedding(input_dim=8, output_dim=64)(model_input)
        output = keras.layers.Dense(units=1, activation="sigmoid")(tf.reduce_mean(embedded, axis=1))
        model = keras.Model(model_input, output)
        embeddings, kernel = drawn("0.weight", (8, 64)), drawn("1.weight", (1, 64)).T
        model.set_weights([*np.split(embeddings, 2), *np.split(kernel, 2), drawn("1.bias", (1,))])
        optimizer = keras.optimizers.legacy.RMSprop(learning_rate=0.01)
        accuracy = keras.metrics.Accuracy()

    def dataset_fn(_):
        ids = (np.arange(40)[:, None] * 5 + np.arange(3) * 3) % 7 + 1
        labels = np.any(ids == 1, axis=1, keepdims=True).astype(np.float64)
        return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(16).repeat()

    @tf.function
    def step_fn(iterator):
        def replica_fn(batch_data, labels):
            with tf.GradientTape() as tape:
                pred = model(batch_data, training=True)
                per_example_loss = keras.losses.BinaryCrossentropy(reduction="none")(labels, pred)
                loss = tf.nn.compute_average_loss(per_example_loss)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            accuracy.update_state(labels, tf.cast(tf.greater(pred, 0.5), tf.int64))
            return loss
        batch_data, labels = next(iterator)
        losses = strategy.run(replica_fn, args=(batch_data, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    per_worker_dataset = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    iterator = iter(per_worker_dataset)
    result = {"loss": [], "accuracy": []}
    for _ in range(8):
        value = coordinator.schedule(step_fn, args=(iterator,))
        coordinator.join()
        result["loss"].append(float(value.fetch()))
        result["accuracy"].append(float(accuracy.result()))
    del servers
    return result


def worker(function, index, ports, queue):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    queue.put((index, function()))


def on_two_workers(function):
    ports = free_ports(2)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=worker, args=(function, i, ports, queue)) for i in range(2)]
    for each in processes:
        each.start()
    results = dict(queue.get(timeout=300) for _ in processes)
    for each in processes:
        each.join()
    return results[0]


def in_process(function):
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(function)


def main():
    alone = (distributed_keras, custom_training, save_and_load, guide, parameter_server_training)
    facts = {function.__name__: in_process(function) for function in alone}
    for function in (multi_worker_with_keras, multi_worker_with_ctl):
        facts[function.__name__] = on_two_workers(function)
    with open(HERE / "tutorials_facts.json", "w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
