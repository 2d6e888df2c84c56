#!/usr/bin/env python3
"""examples/slurm/train.sbatch under a real Slurm: a controller and two nodes, started here for this alone.

Usage (as root): run.py COHORT
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from processes import expect_same_result, free_port, records_of  # pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["--experiment=mnist_mlp", "--mode=train", "--batch_size=96", "--seed=3", "--save_freq=1000"]
NODES = ["cohort-n1", "cohort-n2"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def wait(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s for {what}")
        time.sleep(0.1)
    return result


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons = []

    def __enter__(self):
        # The nodes' names lead to this machine, in this process's view of the files only.
        hosts = self.folder / "hosts"
        hosts.write_text(pathlib.Path("/etc/hosts").read_text(encoding="utf-8") + "".join(f"127.0.0.1 {node}\n" for node in NODES), encoding="utf-8")
        run("mount", "--bind", hosts, "/etc/hosts")
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        self.start("munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                   f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait("munge", (munge / "socket").exists)
        host = socket.gethostname()
        lines = ["ClusterName=cohort", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", "SlurmdUser=root",
                 f"AuthInfo=socket={munge}/socket", f"SlurmctldPort={free_port()}", f"StateSaveLocation={self.folder}/state",
                 f"SlurmdSpoolDir={self.folder}/spool/%n", f"SlurmctldPidFile={self.folder}/ctld.pid", f"SlurmdPidFile={self.folder}/%n.pid",
                 "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
                 "SelectType=select/linear", "ReturnToService=2", "KillWait=30", "MinJobAge=300", "SchedulerParameters=sched_interval=1"]
        lines += [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={os.cpu_count()}" for node in NODES]
        lines += ["PartitionName=all Nodes=ALL Default=YES State=UP", ""]
        (self.folder / "slurm.conf").write_text("\n".join(lines), encoding="utf-8")
        (self.folder / "state").mkdir()
        (self.folder / "spool").mkdir()
        self.start("slurmctld", "-D")
        for node in NODES:
            self.start("slurmd", "-D", "-N", node)
        wait("two idle nodes", lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%t %D") and
             "2" in self.ask("sinfo", "--noheader", "--format=%D"))
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        run("umount", "/etc/hosts")

    def start(self, name, *flags):
        log = (self.folder / f"{name}{len(self.daemons)}.log").open("w", encoding="utf-8")
        self.daemons.append(subprocess.Popen(["/usr/sbin/" + name, *flags], stdout=log, stderr=log, env=self.environment))

    def ask(self, *command):
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, timeout=60).stdout

    def submit(self, cohort, model_dir, *flags):
        out = run("sbatch", f"--output={model_dir}.log", f"--chdir={self.folder}", ROOT / "examples/slurm/train.sbatch", model_dir, *FLAGS, *flags,
                  env={**self.environment, "COHORT": cohort})
        return re.search(r"job (\d+)", out)[1]

    def state(self, job):
        return re.search(r"JobState=(\w+)", self.ask("scontrol", "show", "job", job))[1]


def log_of(folder):
    path = pathlib.Path(f"{folder}.log")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def expect_completed(slurm, job, folder):
    under_way = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
    state = wait("the job's end", lambda: (now := slurm.state(job)) not in under_way and now, 240)
    if state != "COMPLETED":
        raise RuntimeError(f"job {job} is {state}: {log_of(folder)}")


def trains_as_one_process(slurm, cohort, folder):
    run(cohort, "train", "--distribution_strategy=one_device", f"--model_dir={folder}/alone", *FLAGS, "--epochs=1")
    expect_completed(slurm, slurm.submit(cohort, folder / "job", "--epochs=1"), folder / "job")
    expect_same_result(records_of(folder / "alone")[-1], records_of(folder / "job")[-1])


def preempted_job_goes_on(slurm, cohort, folder):
    expect_completed(slurm, slurm.submit(cohort, folder / "whole", "--epochs=3"), folder / "whole")
    job = slurm.submit(cohort, folder / "cut", "--epochs=3")
    wait("training", lambda: "Epoch 1/" in log_of(folder / "cut"))
    slurm.ask("scancel", "--signal=TERM", job)  # what --signal=TERM@60 does a minute before the end
    wait("its leaving", lambda: "training was left in epoch" in log_of(folder / "cut"))
    wait("the requeue", lambda: slurm.state(job) == "PENDING")
    slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")  # a requeued job waits for two minutes otherwise
    expect_completed(slurm, job, folder / "cut")
    if "goes on with the run that was interrupted" not in log_of(folder / "cut"):
        raise RuntimeError("it began anew: " + log_of(folder / "cut"))
    if (folder / "whole/model.safetensors").read_bytes() != (folder / "cut/model.safetensors").read_bytes():
        raise RuntimeError("the preempted job's weights have other bits")
    print("a preempted job was requeued, went on, and has the same bits")


def main(cohort):
    if os.environ.get("COHORT_OWN_MOUNTS") is None:  # so that the other names of this machine are seen here alone
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, __file__, cohort], {**os.environ, "COHORT_OWN_MOUNTS": "1"})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cohort_slurm_"))
    try:
        with Slurm(folder) as slurm:
            trains_as_one_process(slurm, cohort, folder)
            preempted_job_goes_on(slurm, cohort, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
