#!/usr/bin/env python3
"""What two workers send each other in a step, and for how long a step waits for it, beside the formulas of docs/parallelism.md: data
parallelism with shared states, tensor parallelism, long sequences and images in parts.

The workers are on two machines, which are network namespaces joined by a link of a given rate, with a core each. The bytes are those that
the link's interface counts, with the headers of TCP and IP and without encryption; the waits are those of the replica's thread in a trace.

usage (as root): traffic.py --bench BINARY [--rate 2gbit] [--seconds S]
"""
import argparse
import json
import statistics

from network import Link, workers_of

EXAMPLES, TOKENS, WIDTH, BLOCKS = 8, 122, 256, 4  # the transformer's batch, and its patches with the class token
TEXTS, POSITIONS = 4, 512                          # the decoder's, of the same width and as many blocks
FLOAT = 4


def shared_states(passes):
    """Each pass of p replicas over Psi parameters, a reduce-scatter or an all-gather, sends Psi (p - 1) / p from each replica."""
    return lambda parameters: passes * parameters / 2 * FLOAT


def tensor_parallelism(_parameters):
    """Attention and the dense layers of a block have a sum of their activations forward and one backward; a sum is two passes."""
    return BLOCKS * 2 * 2 * shared_states(2)(EXAMPLES * TOKENS * WIDTH)


def sequence(parameters):
    """A causal ring, in the mean of the two replicas, and a sum of all parameters' gradients."""
    keys = TEXTS * POSITIONS * WIDTH
    return BLOCKS * (keys / 2 + keys / 2 + keys / 2 + 2 * keys / 4) * FLOAT + shared_states(2)(parameters)


def image(parameters, edge=512, filters=16, levels=4):
    """A row of what goes into each convolution of 3 x 3, forward, and of its gradient, backward, and a sum of all parameters' gradients."""
    rows = 3 * edge + filters * edge  # what goes into the first two
    for level in range(1, levels + 1):
        wide, channels = edge >> level, filters << level
        rows += (channels // 2 + channels) * wide                       # down
        rows += (channels + channels // 2) * 2 * wide                   # up: both halves of the concatenation, and one
    return (2 * rows - 3 * edge) * FLOAT + shared_states(2)(parameters)  # an image has no gradient


FORMS = {
    "mirrored": ("transformer", ["--sharding_stage", "0"], shared_states(2)),
    "stage 1": ("transformer", ["--sharding_stage", "1"], shared_states(2)),
    "stage 2": ("transformer", ["--sharding_stage", "2"], shared_states(2)),
    "stage 3": ("transformer", ["--sharding_stage", "3"], shared_states(3)),
    "tensor parallelism": ("transformer", ["--axis", "model"], tensor_parallelism),
    "ring of positions": ("decoder", ["--axis", "sequence"], sequence),
    "image in two parts": ("unet", ["--axis", "space"], image),
}


def measured(link, arguments, model, words):
    """The lines of both workers, of their step and of their traffic."""
    lines = [json.loads(line) for out in workers_of(link, arguments.bench, ["--seconds", str(arguments.seconds), "worker_step", "--model", model,
                                                                            *words, "--interface", "eth0"])
             for line in out.splitlines() if line.startswith("{")]
    traffic = [line for line in lines if "sent_bytes" in line]
    step = next(line for line in lines if "step" in line)
    return step, traffic


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rate", default="2gbit", help="of the link, as tc writes it in mbit or gbit")
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    bits = float(arguments.rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[arguments.rate[-4:]]
    print(f"Two workers, one core each, joined by {arguments.rate}.\n")
    print("| | sent by a replica in a step, by the formula, MB | counted | alone on the link, ms | a step waits, ms | a step, ms |\n|---|---|---|---|---|---|")
    with Link(arguments.rate) as link:
        for name, (model, words, formula) in FORMS.items():
            step, traffic = measured(link, arguments, model, words)
            sent = statistics.mean(line["sent_bytes"] for line in traffic)
            waited = statistics.mean(line["waited_ms"] for line in traffic)
            wanted = formula(traffic[0]["parameters"])
            print(f"| {name}, {model} | {wanted / 1e6:.2f} | {sent / 1e6:.2f} | {wanted * 8 / bits * 1e3:.0f} | {waited:.0f} | {step['us'] / 1e3:.0f} |",
                  flush=True)


if __name__ == "__main__":
    main()
