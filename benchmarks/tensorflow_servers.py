"""TensorFlow's parameter servers: asynchronous training, the counterpart of benchmarks/server_training.cpp.

usage: tensorflow_servers.py mlp|bag SECONDS     a task of a cluster (TF_CONFIG); the chief prints one JSON line
mlp: that of pytorch_step.py, 64 examples a step. bag: a table of 1,000,000 x 64, 512 examples of 8 rows' mean, 64 and 1 neurons, Adagrad
for the table. It takes Keras 2 (TF_USE_LEGACY_KERAS=1 and tf_keras): Keras 3 has no parameter servers.
"""
import json
import os
import sys
import time

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", GRPC_FAIL_FAST="use_caller")

import tensorflow as tf

ROWS, DIMENSION, IDS = 1_000_000, 64, 8
DIMS = {"mlp": (784, 256, 128, 10), "bag": (DIMENSION, 64, 1)}
BATCH = {"mlp": 64, "bag": 512}
BATCHES = 100


def dense(number, inputs, outputs):
    kernel = tf.Variable(tf.random.normal((inputs, outputs)) * (2.0 / inputs) ** 0.5, name=f"kernel_{number}")
    return kernel, tf.Variable(tf.zeros(outputs), name=f"bias_{number}")


class Net:
    """The variables, which the servers have, and one step over them."""

    def __init__(self, what, strategy):
        with strategy.scope():
            self.layers = [dense(number, *dims) for number, dims in enumerate(zip(DIMS[what], DIMS[what][1:]))]
            self.flat = [variable for layer in self.layers for variable in layer]
            self.adam = tf.keras.optimizers.legacy.Adam(1e-3)
            self.adagrad = tf.keras.optimizers.legacy.Adagrad(0.05)
            self.table = tf.Variable(lambda: tf.random.uniform((ROWS, DIMENSION), -0.05, 0.05), name="table") if what == "bag" else None
        self.parts = [] if self.table is None else list(getattr(self.table, "_variables", [self.table]))

    def forward(self, x):
        for number, (kernel, bias) in enumerate(self.layers):
            x = tf.matmul(x, kernel) + bias
            if number + 1 < len(self.layers):
                x = tf.nn.relu(x)
        return x

    def step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            if self.table is None:
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, self.forward(x))
            else:
                mean = tf.reduce_mean(tf.nn.embedding_lookup(self.table, x), 1)
                each = tf.nn.sigmoid_cross_entropy_with_logits(y, self.forward(mean)[:, 0])
            loss = tf.reduce_mean(each)
        gradients = tape.gradient(loss, self.flat + self.parts)
        self.adam.apply_gradients(zip(gradients, self.flat))
        if self.parts:
            self.adagrad.apply_gradients(zip(gradients[len(self.flat):], self.parts))
        return loss


def batches(what):
    size = BATCH[what]
    if what == "mlp":
        data = tf.data.Dataset.from_tensors((tf.random.normal((size, 784)), tf.random.uniform((size,), 0, 10, tf.int64)))
    else:
        ids = tf.random.uniform((BATCHES, size, IDS), 0, ROWS, tf.int64)
        data = tf.data.Dataset.from_tensor_slices((ids, tf.cast(tf.random.uniform((BATCHES, size), 0, 2, tf.int32), tf.float32)))
    return data.cache().repeat().prefetch(4)


def train(what, seconds, resolver):
    servers = len(resolver.cluster_spec().as_dict()["ps"])

    def cut(shape, **_):  # the table in as many parts as there are servers, else whole
        return [servers if shape[0] == ROWS else 1] + [1] * (shape.rank - 1) if shape.rank else [1]

    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=cut if what == "bag" else None)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    net = Net(what, strategy)

    @tf.function
    def step(iterator):
        return strategy.run(net.step, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: batches(what)))

    def run(count):
        for _ in range(count):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()

    run(100)
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        run(200)
        steps += 200
    rate = steps / (time.perf_counter() - begin)
    print(json.dumps({"ps_steps_per_second": rate, "examples_per_second": rate * BATCH[what]}), flush=True)
    os._exit(0)  # the coordinator's threads would wait for the workers


def main():
    what, seconds = sys.argv[1], float(sys.argv[2])
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if resolver.task_type == "chief":
        train(what, seconds, resolver)
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc").join()


if __name__ == "__main__":
    main()
