"""`cohort train` on the cards, whose accuracy has to be that of the CPU."""
import re
import tempfile

from gpu_check import processes

SECONDS = 90
NEAR = 0.03  # how far two accuracies may be apart


def runs(cards, with_cards):
    """The flags of each run, by its name; the CPU's is the first."""
    found = {"the CPU": ["--num_replicas=1"]}
    if with_cards:
        for count in sorted({1, cards}):
            found[f"{count} card(s)"] = [f"--num_gpus={count}"]
        found["1 card, steps as graphs"] = ["--num_gpus=1", "--use_cuda_graph=true"]
        found["1 card, mixed float16"] = ["--num_gpus=1", "--mixed_precision=float16"]
        found["1 card, bfloat16"] = ["--num_gpus=1", "--mixed_precision=bfloat16"]
    return found


def check(cohort, report, environment, budget, cards, with_cards):
    report.say("\n## cohort train, drawn digits, two epochs\n")
    on_cpu = None
    for name, flags in runs(cards, with_cards).items():
        if budget.left() <= 0:
            report.verdict(False, f"{name}: not run, the time for it is over")
            continue
        with tempfile.TemporaryDirectory() as folder:
            ended = processes.run(
                [cohort, "train", "--experiment=mnist_mlp", "--mode=train_and_eval", "--distribution_strategy=mirrored", "--epochs=2",
                 "--batch_size=128", "--seed=1", f"--model_dir={folder}/run", *flags],
                min(SECONDS, max(1, budget.left())) if with_cards else 10 * SECONDS, environment)
        found = re.findall(r"^accuracy: ([0-9.]+)$", ended.output, re.MULTILINE)
        accuracy = float(found[-1]) if found else None
        on_cpu = accuracy if on_cpu is None else on_cpu
        if not ended.good():
            report.verdict(False, f"{name}: {ended.how()}: {ended.last_line()}")
        elif accuracy is None or abs(accuracy - on_cpu) >= NEAR:
            report.verdict(False, f"{name}: accuracy {accuracy}, the CPU's is {on_cpu}", ended.output)
        else:
            report.verdict(True, f"{name}: accuracy {accuracy} ({ended.seconds:.1f} s)")
