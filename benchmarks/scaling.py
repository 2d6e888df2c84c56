#!/usr/bin/env python3
"""How the exchange between workers, and a step, grow from 1 to 16 workers on this machine, as a table and a plot; the
alpha-beta model that is fitted to it (Hockney, 1994), and what that says of as many hosts as nobody has at hand.

usage: scaling.py --bench BINARY [--plot FILE.svg] [--rounds N]
"""
import argparse
import math
import os
import pathlib
import statistics

from run import lines_of

WORKERS = (1, 2, 4, 8, 16)
SMALL = 16 << 10  # exchange.cpp's kSmallBytes: up to here everybody sends everything to everybody
HOSTS = (2, 8, 64, 1024)
MANY_HOSTS = (16, 64, 128, 256, 512, 1024)
GRADIENTS = (("MLP", 0.94e6), ("ResNet-50", 94e6))
LATENCY_S, RATE = 20e-6, 25e9 / 8  # of the network in the model
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8a5cb8", "#444444")


def traffic(workers, size):
    """Messages and bytes of one all-reduce, of all workers together: announcement, then slices there and back."""
    pairs = workers * (workers - 1)
    if size <= SMALL or workers == 2:
        return 2 * pairs, pairs * size
    return 3 * pairs, 2 * (workers - 1) * size


def fit(measured, cores):
    """Seconds a message and a byte cost the cores, by least squares of the relative error."""
    aa = ab = bb = ay = by = 0.0
    for (workers, size), seconds in measured.items():
        messages, moved = traffic(workers, size)
        a, b = (part / min(cores, workers) / seconds for part in (messages, moved))
        aa, ab, bb, ay, by = aa + a * a, ab + a * b, bb + b * b, ay + a, by + b
    det = aa * bb - ab * ab
    return (ay * bb - by * ab) / det, (by * aa - ay * ab) / det


def on_one_machine(alpha, beta, cores, workers, size):
    messages, moved = traffic(workers, size)
    return (messages * alpha + moved * beta) / min(cores, workers)


def on_hosts(alpha, beta, hosts, size):
    messages, moved = (part / hosts for part in traffic(hosts, size))  # a host has its own cores and its own wire
    return messages * alpha + 3 * LATENCY_S + moved * (beta + 1 / RATE)


def group_sizes(hosts, algorithm):
    """Of each level but the outermost, as in src/collective/algorithms/levels.cpp."""
    if algorithm == "hierarchical":
        return [round(math.sqrt(hosts))]
    sizes = []
    while algorithm == "tree" and hosts > 3:
        sizes.append(2)
        hosts //= 2
    return sizes


def phase(alpha, hosts, sizes):
    """The seconds of a host's messages in which all announce what they do, or give slices away, or get them."""
    seconds = 0.0
    for size in sizes:
        groups = max(1, hosts // size)
        if groups == 1:
            break
        seconds += (math.ceil(hosts / groups) - 1) * alpha + LATENCY_S
        hosts = groups
    return seconds + (hosts - 1) * alpha + LATENCY_S


def by_levels(alpha, beta, hosts, size, algorithm):
    return 3 * phase(alpha, hosts, group_sizes(hosts, algorithm)) + 2 * size * (hosts - 1) / hosts * (beta + 1 / RATE)


def size_name(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} kB"


def plot(lines, path):
    """Lines of (name, {workers: seconds}, {workers: seconds of the model}) on logarithmic axes."""
    width, height, left, bottom = 720, 420, 70, 50
    values = [seconds for _, points, model in lines for seconds in [*points.values(), *model.values()]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def at(workers, seconds):
        x = left + math.log2(workers) / math.log2(WORKERS[-1]) * (width - left - 160)
        return f"{x:.1f},{height - bottom - (math.log10(seconds) - low) / (high - low) * (height - bottom - 20):.1f}"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for power in range(low, high + 1):
        first, last = at(1, 10.0**power).split(","), at(WORKERS[-1], 10.0**power).split(",")
        label = f"{10.0**(power + 3):g} ms"
        out.append(f'<line x1="{first[0]}" y1="{first[1]}" x2="{last[0]}" y2="{last[1]}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{float(first[1]) + 4}" text-anchor="end">{label}</text>')
    for workers in WORKERS:
        x = at(workers, 10.0**low).split(",")[0]
        out.append(f'<text x="{x}" y="{height - bottom + 20}" text-anchor="middle">{workers}</text>')
    out.append(f'<text x="{left}" y="{height - 10}">workers (dots: measured, dashes: the model)</text>')
    for (name, points, model), colour in zip(lines, COLOURS):
        for kind, style in ((points, 'stroke-width="2"'), (model, 'stroke-dasharray="4 4"')):
            if kind:
                out.append(f'<polyline points="{" ".join(at(n, s) for n, s in kind.items())}" fill="none" stroke="{colour}" {style}/>')
        for n, s in points.items():
            x, y = at(n, s).split(",")
            out.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        x, y = at(*list(points.items())[-1]).split(",")
        out.append(f'<text x="{float(x) + 10}" y="{float(y) + 4}" fill="{colour}">{name}</text>')
    path.write_text("\n".join([*out, "</svg>", ""]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cores = os.cpu_count()
    exchanges, steps = {}, {}
    for workers in WORKERS:
        launch = [arguments.bench.replace("cohort_bench", "cohort"), "launch", f"--nproc={workers}", "--", arguments.bench]
        for _ in range(arguments.rounds):
            steps.setdefault(workers, []).append(lines_of([*launch, "--seconds", "2", "worker_step", "--model", "mlp"])[0]["us"] / 1e6)
            for line in lines_of([*launch, "worker_all_reduce"]) if workers > 1 else []:
                exchanges.setdefault((workers, line["worker_all_reduce"]), []).append(line["us"] / 1e6)
    steps = {workers: statistics.median(times) for workers, times in steps.items()}
    exchanges = {key: statistics.median(times) for key, times in exchanges.items()}
    alpha, beta = fit(exchanges, cores)

    sizes = sorted({size for _, size in exchanges})
    print(f"Milliseconds, on {cores} cores that the workers share:\n")
    print("| workers | " + " | ".join(f"all-reduce of {size_name(size)}" for size in sizes) + " | a step of the MLP |")
    print("|---" * (len(sizes) + 2) + "|")
    for workers in WORKERS:
        cells = [f"{exchanges[workers, size] * 1e3:.2f}" if workers > 1 else "-" for size in sizes]
        print(f"| {workers} | {' | '.join(cells)} | {steps[workers] * 1e3:.2f} |")
    print(f"\nThe model: {alpha * 1e6:.1f} us a message, {beta * 1e9:.2f} ns a byte of the cores' time. One all-reduce between hosts that each have "
          f"cores of their own, over a network of {RATE * 8 / 1e9:.0f} Gbit/s and {LATENCY_S * 1e6:.0f} us, would take, in milliseconds:\n")
    print("| hosts | " + " | ".join(f"{name}, {size / 1e6:.3g} MB" for name, size in GRADIENTS) + " | of that for messages |")
    print("|---" * (len(GRADIENTS) + 2) + "|")
    for hosts in HOSTS:
        cells = [f"{on_hosts(alpha, beta, hosts, size) * 1e3:.1f}" for _, size in GRADIENTS]
        print(f"| {hosts} | {' | '.join(cells)} | {on_hosts(alpha, beta, hosts, SMALL + 1) * 1e3:.1f} |")
    algorithms = ("direct", "hierarchical", "tree")
    print("\nBy the algorithms of CommunicationOptions:\n")
    print("| hosts | " + " | ".join(f"{name}, {algorithm}" for name, _ in GRADIENTS for algorithm in algorithms) + " |")
    print("|---" * (1 + len(GRADIENTS) * len(algorithms)) + "|")
    for hosts in MANY_HOSTS:
        cells = [f"{by_levels(alpha, beta, hosts, size, algorithm) * 1e3:.1f}" for _, size in GRADIENTS for algorithm in algorithms]
        print(f"| {hosts} | {' | '.join(cells)} |")
    if arguments.plot:
        lines = [(f"all-reduce, {size_name(size)}", {n: exchanges[n, size] for n in WORKERS[1:]},
                  {n: on_one_machine(alpha, beta, cores, n, size) for n in WORKERS[1:]}) for size in sizes]
        plot([*lines, ("a step of the MLP", steps, {})], arguments.plot)


if __name__ == "__main__":
    main()
