"""JAX's side: training steps with Adam of the models of pytorch_step.py, compiled by jit, on one CPU device.

usage: jax_step.py MODEL SECONDS      prints one JSON line; the models are mlp, cnn and resnet50
"""
import json
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy
from jax import lax

from step_clock import clock

CLASSES = 10
RANDOM = numpy.random.default_rng(1)
BLOCKS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # ResNet-50's: how many, channels, stride


def normal(*sizes):
    return jnp.asarray(RANDOM.standard_normal(sizes, dtype=numpy.float32) * 0.05)


def dense(parameters, x):
    return x @ parameters[0] + parameters[1]


def convolution(kernel, x, stride=1, padding=0):
    return lax.conv_general_dilated(x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))


def max_pool(x, size, stride, padding=0):
    edge = (padding, padding)
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), ((0, 0), (0, 0), edge, edge))


def mlp_parameters():
    return [(normal(a, b), jnp.zeros(b)) for a, b in ((784, 256), (256, 128), (128, CLASSES))]


def mlp(parameters, moving, x):
    for layer in parameters[:-1]:
        x = jax.nn.relu(dense(layer, x))
    return dense(parameters[-1], x), moving


def cnn_parameters():
    return [(normal(32, 1, 3, 3), jnp.zeros(32)), (normal(64, 32, 3, 3), jnp.zeros(64)), (normal(9216, 64), jnp.zeros(64)),
            (normal(64, CLASSES), jnp.zeros(CLASSES))]


def cnn(parameters, moving, x):
    for kernel, bias in parameters[:2]:
        x = jax.nn.relu(convolution(kernel, x) + bias[:, None, None])
    x = max_pool(x, 2, 2)
    x = jax.nn.relu(dense(parameters[2], x.reshape(x.shape[0], -1)))
    return dense(parameters[3], x), moving


def resnet50_parameters():
    layers, channels = [(normal(64, 3, 7, 7), jnp.ones(64), jnp.zeros(64))], 64

    def add(out, inner, size):
        layers.append((normal(out, inner, size, size), jnp.ones(out), jnp.zeros(out)))

    for count, width, _ in BLOCKS:
        for block in range(count):
            add(width, channels, 1)
            add(width, width, 3)
            add(4 * width, width, 1)
            if block == 0:
                add(4 * width, channels, 1)
            channels = 4 * width
    return [*layers, (normal(channels, CLASSES), jnp.zeros(CLASSES))]


def resnet50(parameters, moving, x):
    layers, new = iter(zip(parameters, moving)), []

    def normed(x, stride=1):
        (kernel, scale, shift), (mean, variance) = next(layers)
        x = convolution(kernel, x, stride, kernel.shape[2] // 2)
        own_mean, own_variance = jnp.mean(x, (0, 2, 3)), jnp.var(x, (0, 2, 3))
        count = x.size // x.shape[1]
        new.append((0.9 * mean + 0.1 * own_mean, 0.9 * variance + 0.1 * own_variance * count / (count - 1)))
        factor = lax.rsqrt(own_variance + 1e-5) * scale
        return (x - own_mean[:, None, None]) * factor[:, None, None] + shift[:, None, None]

    x = max_pool(jax.nn.relu(normed(x, 2)), 3, 2, 1)
    for count, _, first_stride in BLOCKS:
        for block in range(count):
            stride = first_stride if block == 0 else 1
            y = normed(jax.nn.relu(normed(jax.nn.relu(normed(x)), stride)))
            x = jax.nn.relu(y + (normed(x, stride) if block == 0 else x))
    return dense(parameters[-1], jnp.mean(x, (2, 3))), new


def make(name):
    """The function of the model, its parameters, moving statistics, batch and the shape of an example."""
    if name == "mlp":
        return mlp, mlp_parameters(), [], 64, (784,)
    if name == "cnn":
        return cnn, cnn_parameters(), [], 64, (1, 28, 28)
    parameters = resnet50_parameters()
    return resnet50, parameters, [(jnp.zeros_like(s), jnp.ones_like(s)) for _, s, _ in parameters[:-1]], 8, (3, 64, 64)


def adam(parameters, gradients, first, second, count):
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    return jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), parameters, first, second), first, second


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    model, parameters, moving, size, shape = make(name)
    x = normal(size, *shape)
    y = jnp.asarray(RANDOM.integers(0, CLASSES, size), jnp.int32)

    def loss_of(parameters, moving, x, y):
        logits, moving = model(parameters, moving, x)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)), moving

    def step(parameters, moving, first, second, count, x, y):
        count += 1
        (loss, moving), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, moving, x, y)
        return *adam(parameters, gradients, first, second, count), moving, count, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    first, second = (jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
    count, times = jnp.zeros((), jnp.float32), []
    end = None
    while end is None or clock() < end or len(times) < 10:
        begin = clock()
        parameters, first, second, moving, count, loss = compiled(parameters, moving, first, second, count, x, y)
        jax.block_until_ready((parameters, loss))
        times.append(clock() - begin)
        end = end or clock() + seconds  # the first one compiles
    took = statistics.median(times[5:])
    print(json.dumps({"step": name, "mode": "jax", "us": took * 1e6, "least_us": min(times[5:]) * 1e6, "samples_per_second": size / took}))


if __name__ == "__main__":
    main()
