"""Training steps of Cohort and of PyTorch on one card, one after the other: time, the host's part, memory, launches and waits."""
import dataclasses
import json
import pathlib

from gpu_check import processes

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 2  # of the steps that are timed
LIMIT = 45  # seconds of a process
LIMIT_WITH_COMPILER = 150


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    precision: str
    batch: int

    def __str__(self):
        return f"{self.model}, {self.precision}, batch {self.batch}"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    of_cohort: bool
    mode: str  # of torch_step.py; of Cohort: eager or graphs


OURS, OURS_IN_GRAPHS = Way("Cohort", True, "eager"), Way("Cohort, graphs", True, "graphs")
EAGER, GRAPHS = Way("PyTorch", False, "eager"), Way("PyTorch, graphs", False, "graphs")
DDP, COMPILED = Way("PyTorch, DDP of one rank", False, "ddp"), Way("PyTorch, torch.compile", False, "compile")
WAYS = (OURS, OURS_IN_GRAPHS, EAGER, GRAPHS, DDP, COMPILED)

ON_A_CARD = (Case("mlp", "fp32", 64), Case("resnet50_224_last", "bf16", 64), Case("vit_b", "bf16", 64), Case("decoder_100m", "bf16", 8),
             Case("resnet50_224", "fp32", 64), Case("resnet50_224", "tf32", 64), Case("resnet50_224", "bf16", 64))
# The CPU trains the smallest one, and shows that the others are the same models.
ON_THE_CPU = (Case("mlp", "fp32", 64), Case("resnet50_224", "fp32", 1), Case("resnet50_224_last", "fp32", 1), Case("vit_b", "fp32", 1),
              Case("decoder_100m", "fp32", 1))


def plan(on_cpu):
    """What is measured, (case, way), in the order of its worth."""
    if on_cpu:
        return [(case, way) for case in ON_THE_CPU for way in (OURS, EAGER)]
    first = [(case, way) for case in ON_A_CARD for way in (OURS, EAGER, OURS_IN_GRAPHS, GRAPHS)]
    return first + [(case, way) for way in (COMPILED, DDP) for case in ON_A_CARD]


def figures_of(output):
    """The last line that is a JSON object of a model's figures, or nothing."""
    for line in reversed(output.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "parameters" in found:
            return found
    return None


def sentence(figures):
    """The figures in words."""
    if "us" not in figures:
        return f"{figures['parameters']} parameters"
    words = f"{figures['us'] / 1e3:.3f} ms a step, the host {figures['host_us'] / 1e3:.3f} ms"
    if "peak_bytes" in figures:
        words += f", peak {figures['peak_bytes'] / 2**30:.2f} GiB"
    if figures.get("launches"):
        words += f", {figures['launches']:.0f} launches, {figures['waits']:.1f} waits"
    elif "launches" in figures:
        words += ", launches not counted (the profiler saw none)"
    return words


class Speed:
    def __init__(self, report, bench, python, environment, on_cpu):
        self.report = report
        self.bench = bench
        self.python = python
        self.environment = environment
        self.on_cpu = on_cpu
        self.measured = {}  # by (case, way)

    def run(self, budget):
        self.report.say("\n## Training steps beside PyTorch's\n")
        for case, way in plan(self.on_cpu):
            if budget.left() <= 0:
                self.report.say(f"- not run, the time is over: {case}: {way.name}")
                continue
            limit = LIMIT_WITH_COMPILER if way is COMPILED else LIMIT
            ended = processes.run(self.command(case, way), 10 * limit if self.on_cpu else min(limit, max(1, budget.left())),
                                  self.environment)
            figures = figures_of(ended.output)
            if figures is not None:
                self.measured[case, way] = figures
                self.report.say(f"- {case}: {way.name}: {sentence(figures)}")
                self.compare_parameters(case)
            if not ended.good():
                what = f"{case}: {way.name}: {ended.how()}: {ended.last_line()}"
                # What PyTorch cannot do is no failure of ours.
                if way.of_cohort:
                    self.report.verdict(False, what)
                else:
                    self.report.say(f"- PyTorch fails: {what}")
        self.table()

    def command(self, case, way):
        seconds = SECONDS
        if self.on_cpu:
            seconds = 0.1 if case.model == "mlp" else 0
        if way.of_cohort:
            return [self.bench, "--seconds", seconds, "card_step", "--model", case.model, "--precision", case.precision, "--batch", case.batch,
                    *(["--cpu"] if self.on_cpu else []), *(["--graphs"] if way is OURS_IN_GRAPHS else [])]
        return [self.python, HERE / "torch_step.py", case.model, case.precision, case.batch, way.mode, "cpu" if self.on_cpu else "cuda", seconds]

    def compare_parameters(self, case):
        ours, theirs = self.measured.get((case, OURS)), self.measured.get((case, EAGER))
        if ours and theirs and ours["parameters"] != theirs["parameters"]:
            self.report.verdict(False, f"{case}: Cohort's model has {ours['parameters']} parameters, PyTorch's has {theirs['parameters']}")
            del self.measured[case, EAGER]

    def table(self):
        """Milliseconds of all that was measured, and how many times as fast as PyTorch's Cohort's better one is."""
        self.report.say("\n| milliseconds a step | " + " | ".join(way.name for way in WAYS) + " | PyTorch's best / Cohort's best |")
        self.report.say("|---" * (2 + len(WAYS)) + "|")
        for case in dict.fromkeys(case for case, _ in plan(self.on_cpu)):
            measured = {way: self.measured.get((case, way), {}) for way in WAYS}
            times = {way: figures["us"] / 1e3 for way, figures in measured.items() if "us" in figures}
            ours = min((time for way, time in times.items() if way.of_cohort), default=None)
            theirs = min((time for way, time in times.items() if not way.of_cohort), default=None)
            ratio = f"{theirs / ours:.2f}" if ours and theirs else ""
            self.report.say(f"| {case} | " + " | ".join(f"{times[way]:.3f}" if way in times else "" for way in WAYS) + f" | {ratio} |")
