"""Machines for the nemeses: network namespaces on a switch of our own (switch.cpp), and tasks that are started again."""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

PORT = 5000
WRONG = 3  # the status of chaos_counting if updates do not count once
numbers = itertools.count()


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """`count` machines, numbered from 0; all are on one switch, and what passes from one to another is as `link` says."""

    def __init__(self, program, count, seed):
        prefix = f"chaos-{os.getpid()}-{next(numbers)}"
        self.names = [f"{prefix}-{i}" for i in range(count)]
        self.switch = None
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.switch = subprocess.Popen([program, str(seed), *self.names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            require(self.switch.stdout.readline() == "ready\n", "no switch")
            for i in range(count):
                self.address_of(i, i)
        except BaseException:
            self.close()
            raise

    def address_of(self, machine, number):
        """Gives a machine the address of this number, which it may have in the place of another machine."""
        name = self.names[machine]
        ip("-n", name, "link", "set", "eth0", "address", self.hardware(number))
        ip("-n", name, "link", "set", "eth0", "mtu", "9000")
        ip("-n", name, "addr", "replace", f"{self.address(number)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        for other in range(len(self.names)):
            if other != number:
                ip("-n", name, "neigh", "replace", self.address(other), "lladdr", self.hardware(other), "dev", "eth0", "nud", "permanent")

    @staticmethod
    def address(i):
        return f"10.79.0.{i + 1}"

    @staticmethod
    def hardware(i):
        return f"02:00:00:00:00:{i + 1:02x}"

    def say(self, line):
        self.switch.stdin.write(line + "\n")
        self.switch.stdin.flush()

    def link(self, source="*", target="*", **what):
        """From now on; without `what` everything passes."""
        self.say(" ".join(["link", str(source), str(target), *(f"{key}={value:g}" for key, value in what.items())]))

    def plug(self, number, machine):
        self.say(f"plug {number} {machine}")

    def inside(self, machine, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.names[machine], *command], **options)

    def kill(self):
        """Every process on these machines."""
        for name in self.names:
            for pid in subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True).stdout.split():
                if int(pid) != self.switch.pid:  # it has looked at each, and is in the last one
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass

    def close(self):
        if self.switch is not None:
            self.switch.stdin.close()
            self.switch.wait(10)
            self.switch.stdout.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Task:
    """A task of the cluster, which is started again whenever it ends without success, as its launcher would do."""

    def __init__(self, cluster, name, machine, command, environment):
        self.cluster, self.name, self.machine, self.command, self.environment = cluster, name, machine, command, environment
        self.log = cluster.folder / f"{name}-{machine}.log"
        self.started = 0
        self.process = None
        self.codes = []
        self.held = threading.Event()  # set: it is not started again
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while not self.cluster.ending.is_set():
            if self.held.is_set():
                time.sleep(0.05)
                continue
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"=== start {self.started} at {time.monotonic() - self.cluster.begin:.1f}\n")
                log.flush()
                self.process = self.cluster.network.inside(self.machine, self.command, env=self.environment, stdout=log, stderr=log)
            self.started += 1
            code = self.process.wait()
            self.codes.append(code)
            if code == 0:
                return
            self.cluster.ending.wait(0.5)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        """Whether there was a process."""
        try:
            self.process.send_signal(number)  # `ip netns exec` has become the program
            return self.process.poll() is None
        except (ProcessLookupError, AttributeError):
            return False

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


class Cluster:
    """A chief, servers and workers, each on a machine of its own; two more machines are spare."""

    def __init__(self, programs, folder, seed, servers=2, workers=2, replicas=1, steps=1500, megabytes=32, pause_ms=20, save_every=200):
        self.folder, self.begin, self.ending = folder, time.monotonic(), threading.Event()
        self.directory = folder / "run"
        self.directory.mkdir()
        self.faults = folder / "faults"
        self.secret = folder / "secret"
        self.secret.write_text("a secret of this trial's", encoding="utf-8")
        self.servers, self.workers = servers, workers
        self.jobs = ["chief", *(f"ps {i}" for i in range(servers)), *(f"worker {i}" for i in range(workers))]
        self.network = Network(programs["switch"], len(self.jobs) + 2, seed)
        self.spare = len(self.jobs)
        self.programs = programs
        addresses = [f"{self.network.address(i)}:{PORT}" for i in range(len(self.jobs))]
        self.spec = {"chief": addresses[:1], "ps": addresses[1:1 + servers], "worker": addresses[1 + servers:]}
        self.command = [programs["counting"], f"--directory={self.directory}", f"--replicas={replicas}", f"--servers={servers}",
                        f"--steps={steps}", f"--megabytes={megabytes}", f"--pause_ms={pause_ms}", f"--save_every={save_every}"]
        self.tasks = {}  # by job
        self.everybody = []
        self.remarks = []  # for the reader of a trial's result
        for machine, job in enumerate(self.jobs):
            self.start(job, machine)

    def start(self, job, machine):
        """Starts a task; a second time the same one, on another machine, is not the cluster's."""
        kind, _, index = job.partition(" ")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COHORT_SECRET_FILE": str(self.secret),
                       "TF_CONFIG": json.dumps({"cluster": self.spec, "task": {"type": kind, "index": int(index or 0)}}),
                       "LD_PRELOAD": self.programs["disk"], "CHAOS_DISK_BELOW": str(self.directory), "CHAOS_DISK_FAULTS": str(self.faults)}
        task = Task(self, job.replace(" ", ""), machine, self.command, environment)
        self.tasks.setdefault(job, task)
        self.everybody.append(task)
        return task

    @property
    def chief(self):
        return self.tasks["chief"]

    def ended(self):
        return not self.chief.thread.is_alive()

    def pick(self, rng, kind):
        return rng.choice([job for job in self.jobs if job.startswith(kind)])

    def machine_of(self, job):
        return self.tasks[job].machine

    def wait_for(self, text, seconds, task=None):
        """Until the chief, or the task, has said so."""
        end = time.monotonic() + seconds
        while text not in (task or self.chief).said():
            require(time.monotonic() < end, f"'{text}' not within {seconds} s")
            time.sleep(0.05)

    def disk(self, writes=0.0, renames=0.0, error=5, fsync_ms=0, fsyncs=0.0):
        draft = self.faults.with_suffix(".new")
        draft.write_text(f"{writes} {renames} {error} {fsync_ms} {fsyncs}\n", encoding="utf-8")
        draft.rename(self.faults)

    def expect_the_count(self, seconds):
        """That the run ends, that each update counts once on every shard, and that nobody stays behind."""
        end = time.monotonic() + seconds
        while not self.ended():
            require(WRONG not in self.chief.codes, "updates are wrong")
            require(time.monotonic() < end, f"the run has not ended {seconds} s after the last fault")
            time.sleep(0.05)
        require(WRONG not in self.chief.codes, "updates are wrong")
        require(self.chief.codes[-1] == 0 and "every update counts once" in self.chief.said(), "the chief does not count")
        self.expect_the_end()

    def expect_the_end(self):
        """That the other tasks end: by themselves, or, if they did not hear of it, when they are told to, as a launcher does."""
        if not self.all_end(20):
            self.remarks.append("tasks had to be told to end")
            for task in self.everybody:
                task.held.set()
                task.send(signal.SIGTERM)
            require(self.all_end(10), "tasks go on after the end: " + ", ".join(task.name for task in self.everybody if task.alive()))

    def all_end(self, seconds):
        end = time.monotonic() + seconds
        while any(task.alive() for task in self.everybody):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def close(self):
        """Ends everything, however it stands."""
        self.ending.set()
        end = time.monotonic() + 20
        while any(task.thread.is_alive() for task in self.everybody) and time.monotonic() < end:
            self.network.kill()  # again and again: a task may have been about to start
            time.sleep(0.1)
        self.network.kill()
        self.network.close()

    def told(self):
        """What everybody said, for the report of a failure."""
        return "\n".join(f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-6000:]}" for path in sorted(self.folder.glob("*.log")))


def programs_in(build):
    build = pathlib.Path(build).resolve()
    return {"switch": str(build / "bin/chaos_switch"), "counting": str(build / "bin/chaos_counting"), "disk": str(build / "lib/libchaos_disk.so")}
