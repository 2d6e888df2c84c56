"""Clusters for the nemeses: machines on a switch of our own (switch.cpp), and tasks on them that are started again."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from machines import Machines, ip  # noqa: E402

PORT = 5000
WRONG = 3  # the status of chaos_counting if updates do not count once


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


class Network(Machines):
    """Machines on one switch; what passes from one to another is as `link` says."""

    def __init__(self, program, count, seed):
        super().__init__(count, "10.79.0")
        self.switch = None
        try:
            self.switch = subprocess.Popen([program, str(seed), *self.names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            require(self.switch.stdout.readline() == "ready\n", "no switch")
            for i in range(count):
                ip("-n", self.names[i], "link", "set", "eth0", "mtu", "9000")
                self.address_of(i, i)
        except BaseException:
            self.close()
            raise

    def say(self, line):
        self.switch.stdin.write(line + "\n")
        self.switch.stdin.flush()

    def link(self, source="*", target="*", **what):
        """From now on; without `what` everything passes."""
        self.say(" ".join(["link", str(source), str(target), *(f"{key}={value:g}" for key, value in what.items())]))

    def plug(self, number, machine):
        self.say(f"plug {number} {machine}")

    def kill(self):
        """Every process on these machines."""
        for pid in self.processes():
            if pid != self.switch.pid:  # it has looked at each, and is in the last one
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def close(self):
        if self.switch is not None:
            self.switch.stdin.close()
            self.switch.wait(10)
            self.switch.stdout.close()
        super().close()


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


class Run:
    """Tasks, each on a machine of its own; some more machines are spare. The first task is the chief: when it ends well, so has the run."""

    SPARE = 2

    def __init__(self, programs, folder, seed, jobs):
        self.programs, self.folder, self.begin, self.ending = programs, folder, time.monotonic(), threading.Event()
        self.directory = folder / "run"
        self.directory.mkdir()
        self.faults = folder / "faults"
        self.secret = folder / "secret"
        self.secret.write_text("a secret of this trial's", encoding="utf-8")
        self.jobs = jobs
        self.spare = len(jobs)  # the first one
        self.network = Network(programs["switch"], len(jobs) + self.SPARE, seed)
        self.tasks = {}  # by job
        self.everybody = []
        self.remarks = []  # for the reader of a trial's result

    def add(self, job, machine, command, environment):
        """Starts a task; a second time the same one, on another machine, is not the cluster's."""
        task = Task(self, job.replace(" ", ""), machine, command, {**os.environ, "OMP_NUM_THREADS": "1", **environment})
        self.tasks.setdefault(job, task)
        self.everybody.append(task)
        return task

    @property
    def chief(self):
        return self.tasks[self.jobs[0]]

    def ended(self):
        return not self.chief.thread.is_alive()

    def pick(self, rng, kind):
        return rng.choice([job for job in self.jobs if job.startswith(kind)])

    def machine_of(self, job):
        return self.tasks[job].machine

    def wait_until(self, holds, what, seconds):
        end = time.monotonic() + seconds
        while not holds():
            require(time.monotonic() < end, f"{what}: not within {seconds} s")
            time.sleep(0.05)

    def wait_for(self, text, seconds, task=None):
        """Until the chief, or the task, has said so."""
        self.wait_until(lambda: text in (task or self.chief).said(), f"'{text}'", seconds)

    def disk(self, writes=0.0, renames=0.0, error=5, fsync_ms=0, fsyncs=0.0):
        draft = self.faults.with_suffix(".new")
        draft.write_text(f"{writes} {renames} {error} {fsync_ms} {fsyncs}\n", encoding="utf-8")
        draft.rename(self.faults)

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


class Counting(Run):
    """What counts (counting.cpp); every update has to count once on every shard."""

    def __init__(self, programs, folder, seed, jobs, servers=2, replicas=1, steps=1000, megabytes=32, pause_ms=30, save_every=150):
        super().__init__(programs, folder, seed, jobs)
        self.flags = [f"--replicas={replicas}", f"--servers={servers}", f"--steps={steps}", f"--megabytes={megabytes}",
                      f"--pause_ms={pause_ms}", f"--save_every={save_every}"]
        self.faulty_disk = {"LD_PRELOAD": programs["disk"], "CHAOS_DISK_BELOW": str(self.directory), "CHAOS_DISK_FAULTS": str(self.faults)}

    def program(self, directory=None):
        return [self.programs["counting"], f"--directory={directory or self.directory}", *self.flags]

    def wait_for_work(self):
        self.wait_for("begins at step", 120)

    def expect_the_result(self, seconds):
        """That the run ends, that each update counts once on every shard, and that nobody stays behind."""
        end = time.monotonic() + seconds
        while not self.ended():
            require(WRONG not in self.chief.codes, "updates are wrong")
            require(time.monotonic() < end, f"the run has not ended {seconds} s after the last fault")
            time.sleep(0.05)
        require(WRONG not in self.chief.codes, "updates are wrong")
        require(self.chief.codes[-1] == 0 and "every update counts once" in self.chief.said(), "the chief does not count")
        self.expect_the_end()


class Cluster(Counting):
    """A chief, servers and workers."""

    SPARE = 4

    def __init__(self, programs, folder, seed, servers=2, workers=2, **options):
        jobs = ["chief", *(f"ps {i}" for i in range(servers)), *(f"worker {i}" for i in range(workers))]
        super().__init__(programs, folder, seed, jobs, servers, **options)
        self.spec = self.spec_of({job: i for i, job in enumerate(jobs)})
        for machine, job in enumerate(jobs):
            self.start(job, machine)

    def spec_of(self, machines):
        """The cluster of these jobs and their machines."""
        spec = {}
        for job, machine in machines.items():
            spec.setdefault(job.split()[0], []).append(f"{self.network.address(machine)}:{PORT}")
        return spec

    def start(self, job, machine, directory=None, spec=None):
        kind, _, index = job.partition(" ")
        config = {"cluster": spec or self.spec, "task": {"type": kind, "index": int(index or 0)}}
        return self.add(job, machine, self.program(directory),
                        {"COHORT_SECRET_FILE": str(self.secret), "TF_CONFIG": json.dumps(config), **self.faulty_disk})


class Launched(Counting):
    """A chief, servers and workers under one launcher, which starts each again by itself."""

    def __init__(self, programs, folder, seed, servers=2, workers=2, **options):
        super().__init__(programs, folder, seed, ["launcher"], servers, **options)
        self.add("launcher", 0, [programs["cohort"], "launch", f"--ps={servers}", f"--workers={workers}", "--max_restarts=100", "--",
                                 *self.program()], self.faulty_disk)

    def children(self):
        """The launcher's tasks."""
        pid = self.chief.process.pid
        try:
            return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
        except FileNotFoundError:
            return []


TRAIN = ["train", "--experiment=mnist_mlp", "--mode=train", "--batch_size=96", "--seed=3", "--epochs=6", "--save_freq=25",
         "--distribution_strategy=multi_worker_mirrored", "--params_override=trainer.max_to_keep=2"]


class Training(Run):
    """Workers that train together, and are started again when their group has failed."""

    WORKERS = 3
    undisturbed = {}  # the bits of the weights, by class; made once
    lock = threading.Lock()

    def __init__(self, programs, folder, seed, replicas=0):
        del replicas  # of parameter servers
        super().__init__(programs, folder, seed, [f"worker {i}" for i in range(self.WORKERS)])
        for machine, job in enumerate(self.jobs):
            self.start(job, machine)

    def start(self, job, machine):
        hosts = ",".join(f"{self.network.address(i)}:{PORT}" for i in range(self.WORKERS))
        return self.add(job, machine, [self.programs["cohort"], *TRAIN, f"--model_dir={self.directory}", f"--worker_hosts={hosts}",
                                       f"--task_index={job.split()[1]}", f"--secret_file={self.secret}"], {})

    def wait_for_work(self):
        self.wait_until(lambda: any(self.directory.glob("ckpt-*/manifest.json")), "a checkpoint", 120)

    def expect_the_result(self, seconds):
        """That all end well, with the weights of a run that was left alone."""
        def ended():
            for task in self.everybody:
                require(task.thread.is_alive() or task.codes[-1] == 0, f"{task.name} ended with {task.codes}")
            return not any(task.thread.is_alive() for task in self.everybody)
        self.wait_until(ended, "the end of all workers", seconds)
        self.expect_weights()

    def expect_weights(self):
        require(self.weights() == self.expected(), "the weights have other bits than those of a run that was left alone")

    def weights(self):
        return (self.directory / "model.safetensors").read_bytes()

    def expected(self):
        with self.lock:
            if type(self) not in self.undisturbed:
                folder = self.folder / "alone"
                folder.mkdir()
                alone = type(self)(self.programs, folder, 0)
                try:
                    alone.wait_until(lambda: not any(task.thread.is_alive() for task in alone.everybody), "the end of a run that is left alone", 300)
                    self.undisturbed[type(self)] = alone.weights()
                finally:
                    alone.close()
            return self.undisturbed[type(self)]


class Elastic(Training):
    """Launchers with a worker each; the run goes on while two of them are there. The first one leads."""

    def start(self, job, machine):
        leader = self.network.address(0)
        place = [f"--master_addr={self.network.address(machine)}"]
        place += ["--elastic=2:3", f"--master_port={PORT}"] if machine == 0 else [f"--join={leader}:{PORT}", "--join_timeout=60"]
        return self.add(job, machine, [self.programs["cohort"], "launch", "--nproc=1", *place, f"--secret_file={self.secret}", "--",
                                       self.programs["cohort"], *TRAIN, f"--model_dir={self.directory}"], {})

    def expect_the_result(self, seconds):
        """That the leader ends well, and the training is complete. How many workers had a part in a step is not the same each time."""
        self.wait_until(self.ended, "the end of the leader", seconds)
        require((self.directory / "model.safetensors").exists(), "there is no model")
        steps = [path.name for path in self.directory.glob("ckpt-*")]
        require(steps, "there is no checkpoint")
        self.expect_the_end()


def programs_in(build):
    build = pathlib.Path(build).resolve()
    files = {"switch": "bin/chaos_switch", "counting": "bin/chaos_counting", "disk": "lib/libchaos_disk.so", "cohort": "bin/cohort"}
    absent = [name for name in files.values() if not (build / name).exists()]
    if absent:
        raise SystemExit(f"chaos: {build} has no {', '.join(absent)}; `make chaos` builds them")
    return {name: str(build / file) for name, file in files.items()}
