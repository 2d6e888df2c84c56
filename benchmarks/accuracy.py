#!/usr/bin/env python3
"""What the recipes of docs/experiments.md come to.

usage: accuracy.py plot MODEL_DIR FILE.svg
         accuracy over the epochs of one run of cohort train
       accuracy.py transfer --cohort BINARY --data FOLDER --base WEIGHTS [--seeds N] [--epochs N] [--size N] [--frozen N]
         cats_vs_dogs from WEIGHTS, frozen then thawed, beside the same network from scratch in the same epochs
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time


def records(model_dir, mode):
    lines = (pathlib.Path(model_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["mode"] == mode]


def plot(model_dir, path):
    width, height, left, right, top, bottom = 720, 360, 60, 130, 20, 50
    curves = [("training", "#d1495b", records(model_dir, "train")), ("test", "#1b6ca8", records(model_dir, "eval"))]
    epochs = max(record["epoch"] for _, _, points in curves for record in points)

    def at(epoch, accuracy):
        return left + epoch / epochs * (width - left - right), height - bottom - accuracy * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for tenth in range(0, 11, 2):
        (x1, y), (x2, _) = at(0, tenth / 10), at(epochs, tenth / 10)
        out.append(f'<line x1="{x1}" y1="{y:.1f}" x2="{x2}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10}</text>')
    for epoch in range(1, epochs + 1):
        x, y = at(epoch, 0.0)
        out.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{epoch}</text>')
    out.append(f'<text x="{left}" y="{height - 10}">epochs</text>')
    for name, colour, points in curves:
        line = [at(record["epoch"], record["accuracy"]) for record in points]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        out.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = line[-1]
        shift = -6 if name == "training" else 12
        out.append(f'<text x="{x + 8:.1f}" y="{y + shift:.1f}" fill="{colour}">{name} {points[-1]["accuracy"]:.3f}</text>')
    pathlib.Path(path).write_text("\n".join([*out, "</svg>", ""]), encoding="utf-8")


def transfer(options):
    table = {}
    for seed in range(1, options.seeds + 1):
        for kind in ("transfer", "scratch"):
            with tempfile.TemporaryDirectory() as folder:
                settings = f"task.model.input_size=[{options.size},{options.size},3]"
                if kind == "transfer":
                    settings += f",task.init_checkpoint={options.base},task.freeze_backbone_steps={options.frozen}"
                begin = time.monotonic()
                subprocess.run([options.cohort, "train", "--experiment=cats_vs_dogs", f"--data_dir={options.data}",
                                f"--model_dir={folder}/run", "--num_replicas=2", f"--epochs={options.epochs}", f"--seed={seed}",
                                f"--params_override={settings}"], check=True, stdout=subprocess.DEVNULL)
                seconds = time.monotonic() - begin
                table.setdefault(kind, []).append((records(f"{folder}/run", "eval")[-1]["accuracy"], seconds))
            print(f"{kind}, seed {seed}: {table[kind][-1][0]:.3f} in {seconds:.0f} s", flush=True)
    print("| | accuracy on the held-out fifth, by seed | mean | standard deviation | seconds a run |\n|---|---|---|---|---|")
    for kind, name in (("transfer", "from CIFAR-10's weights"), ("scratch", "from scratch")):
        values = [accuracy for accuracy, _ in table[kind]]
        print(f"| {name} | {', '.join(f'{value:.3f}' for value in values)} | {statistics.mean(values):.3f} | "
              f"{statistics.stdev(values):.3f} | {statistics.mean(seconds for _, seconds in table[kind]):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    plotted = commands.add_parser("plot")
    plotted.add_argument("model_dir")
    plotted.add_argument("file")
    compared = commands.add_parser("transfer")
    compared.add_argument("--cohort", required=True)
    compared.add_argument("--data", required=True)
    compared.add_argument("--base", required=True)
    compared.add_argument("--seeds", type=int, default=3)
    compared.add_argument("--epochs", type=int, default=20)
    compared.add_argument("--size", type=int, default=64)
    compared.add_argument("--frozen", type=int, default=50)
    options = parser.parse_args()
    if options.command == "plot":
        plot(options.model_dir, options.file)
    else:
        transfer(options)


if __name__ == "__main__":
    main()
