"""Training steps on cores that are not theirs alone: beside busy programs, and under a quota as Kubernetes sets it."""
import contextlib
import os
import pathlib
import statistics
import subprocess

CGROUP = pathlib.Path("/sys/fs/cgroup")
WANTED = 3  # times the step alone, at most, beside one stranger a core; a fair share is 2


@contextlib.contextmanager
def strangers(number):
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(number)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


@contextlib.contextmanager
def quota(cores):
    """This process and its children get so many cores' time, in turns of 100 ms. OSError: that takes root and cgroups."""
    unified = (CGROUP / "cgroup.controllers").exists()
    parent = CGROUP if unified else CGROUP / "cpu"
    group = parent / f"cohort-bench-{os.getpid()}"
    group.mkdir()
    try:
        if unified:
            (group / "cpu.max").write_text(f"{int(cores * 100_000)} 100000")
        else:
            (group / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))
        before = next(line.rsplit(":", 1)[1].strip("/\n") for line in open("/proc/self/cgroup", encoding="ascii")
                      if unified or "cpu" in line.split(":")[1].split(","))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (parent / before / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def report(arguments, samples_per_second, ddp):
    """`samples_per_second(command)` runs a command; `ddp` is that of PyTorch's side."""
    ours = [arguments.bench, "--seconds", str(arguments.seconds), "step", "--model", "mlp", "--replicas", "2"]
    cores = os.cpu_count()
    around = {"alone": contextlib.nullcontext, f"beside {cores} busy programs": lambda: strangers(cores),
              "with a quota of 1.5 cores": lambda: quota(1.5)}
    speeds = {name: ([], []) for name in around}
    absent = {}
    for _ in range(arguments.rounds):
        for name, begin in around.items():
            try:
                with begin():
                    speeds[name][0].append(samples_per_second(ours))
                    speeds[name][1].append(samples_per_second(ddp))
            except OSError as error:
                absent[name] = error
    rows = ["| MLP, 2 replicas on cores that others use too | ours, samples a second | time of a step over that alone (wanted, at most) | DDP | time over that alone |",
            "|---|---|---|---|---|"]
    alone = [statistics.median(side) for side in speeds["alone"]]
    for name, sides in speeds.items():
        if name in absent:
            rows.append(f"| {name} | - ({absent[name]}) | - | - | - |")
            continue
        ours_now, ddp_now = (statistics.median(side) for side in sides)
        wanted = f" ({WANTED})" if "busy" in name else ""
        rows.append(f"| {name} | {ours_now:,.0f} | {alone[0] / ours_now:.2f}{wanted} | {ddp_now:,.0f} | {alone[1] / ddp_now:.2f} |")
    return "\n" + "\n".join(rows) + "\n"
