"""Numbers that drawn.h draws, too: weights and pictures for facts that other libraries give."""
import numpy as np


def drawn(name, shape):
    """Draws an array by its name: weights of several dimensions by their number of inputs, in LibTorch's order."""
    seed = 0
    for byte in name.encode():
        seed = (seed * 31 + byte) % 2147483647
    size = int(np.prod(shape))
    bits = (np.arange(size, dtype=np.int64) * 2654435761 + seed) % 2**32
    bits = ((bits ^ (bits >> 15)) * 1103515245) % 2**32
    bits = bits ^ (bits >> 13)
    part = (bits / 2**32).reshape(shape)
    last = name.split(".")[-1]
    if last == "num_batches_tracked":
        return np.zeros(shape, dtype=np.int64)
    if last in ("running_var", "variance"):
        return 0.5 + part
    if last.endswith("bias") or last in ("running_mean", "mean"):
        return 0.2 * (part - 0.5)
    if last.endswith("weight"):
        return 0.5 + 0.5 * part if len(shape) == 1 else (2.0 * part - 1.0) * np.sqrt(6.0 * shape[0] / size)
    return 2.0 * part - 1.0
