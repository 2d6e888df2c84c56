"""What the nemeses do to a cluster: each is called when work has begun, and returns when its last fault is over."""
import dataclasses
import errno
import os
import resource
import shutil
import signal
import time
import typing

from clusters import PORT, Cluster, Elastic, Launched, Training


@dataclasses.dataclass
class Nemesis:
    act: typing.Callable
    run: type = Cluster
    options: dict = dataclasses.field(default_factory=dict)  # of the run


NEMESES = {}


def nemesis(name, run=Cluster, **options):
    def register(act):
        NEMESES[name] = Nemesis(act, run, options)
        return act
    return register


def bad_link(cluster, rng, seconds, **what):
    cluster.network.link(**what)
    time.sleep(seconds)
    cluster.network.link()


@nemesis("loss")
def lose(cluster, rng):
    bad_link(cluster, rng, rng.uniform(4.0, 12.0), loss=rng.choice([0.02, 0.1, 0.3]))


@nemesis("delay")
def delay(cluster, rng):
    bad_link(cluster, rng, rng.uniform(4.0, 12.0), delay=rng.choice([10.0, 100.0, 400.0]), jitter=rng.choice([0.0, 50.0, 200.0]))


@nemesis("reordering")
def reorder(cluster, rng):
    bad_link(cluster, rng, rng.uniform(4.0, 12.0), delay=5.0, reorder=rng.choice([0.05, 0.25, 0.5]))


@nemesis("duplication")
def duplicate(cluster, rng):
    bad_link(cluster, rng, rng.uniform(4.0, 12.0), delay=1.0, duplicate=rng.choice([0.05, 0.5, 1.0]), reorder=0.05)


@nemesis("all at once")
def all_at_once(cluster, rng):
    bad_link(cluster, rng, rng.uniform(4.0, 12.0), delay=20.0, jitter=40.0, loss=0.05, duplicate=0.1, reorder=0.1)


@nemesis("one-way partition")
def one_way(cluster, rng):
    """Nothing reaches one machine, or leaves it, for shorter and for longer than tasks are waited for."""
    machine = cluster.machine_of(rng.choice(cluster.jobs))
    for _ in range(rng.choice([1, 2])):
        ends = {"source": machine} if rng.random() < 0.5 else {"target": machine}
        cluster.network.link(**ends, down=1)
        time.sleep(rng.uniform(1.0, 9.0))
        cluster.network.link()
        time.sleep(rng.uniform(0.0, 2.0))


@nemesis("servers away from the chief")
def servers_away(cluster, rng):
    """The workers reach all; the chief reaches no server, or only hears of none."""
    for job in cluster.jobs:
        if job.startswith("ps"):
            server = cluster.machine_of(job)
            cluster.network.link(0, server, down=1)
            if rng.random() < 0.5:
                cluster.network.link(server, 0, down=1)
    time.sleep(rng.uniform(1.0, 9.0))
    cluster.network.link()


@nemesis("one server away from a worker")
def server_from_worker(cluster, rng):
    server, worker = cluster.machine_of(cluster.pick(rng, "ps")), cluster.machine_of(cluster.pick(rng, "worker"))
    cluster.network.link(server, worker, down=1)
    if rng.random() < 0.5:
        cluster.network.link(worker, server, down=1)
    time.sleep(rng.uniform(1.0, 12.0))
    cluster.network.link()


@nemesis("flapping link")
def flap(cluster, rng):
    machine = cluster.machine_of(rng.choice(cluster.jobs))
    end = time.monotonic() + rng.uniform(5.0, 12.0)
    while time.monotonic() < end:
        for ends in ({"source": machine}, {"target": machine}):
            cluster.network.link(**ends, down=1)
        time.sleep(rng.uniform(0.05, 1.5))
        cluster.network.link()
        time.sleep(rng.uniform(0.05, 1.0))


@nemesis("half-open connections")
def half_open(cluster, rng):
    """A machine goes without a word, and comes back without its process: nobody gets an end of a connection."""
    job = rng.choice(cluster.jobs)
    machine = cluster.machine_of(job)
    for ends in ({"source": machine}, {"target": machine}):
        cluster.network.link(**ends, down=1)
    cluster.tasks[job].send(signal.SIGKILL)
    time.sleep(rng.uniform(0.0, 8.0))
    cluster.network.link()


@nemesis("kill")
def kill(cluster, rng):
    for _ in range(rng.choice([1, 2, 3])):
        cluster.tasks[rng.choice(cluster.jobs)].send(signal.SIGKILL)
        time.sleep(rng.uniform(0.0, 4.0))


@nemesis("stop")
def stop(cluster, rng):
    task = cluster.tasks[rng.choice(cluster.jobs)]
    task.send(signal.SIGSTOP)
    time.sleep(rng.uniform(1.0, 12.0))
    task.send(signal.SIGCONT)


def second_fault(cluster, rng, first):
    """Kills, while the first one is being made good again, somebody who takes part in it."""
    restarts = first.started
    end = time.monotonic() + 30
    while first.started == restarts and time.monotonic() < end:  # it is started again
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, 6.0))
    cluster.tasks[rng.choice(["chief", *(job for job in cluster.jobs if job.startswith("ps"))])].send(signal.SIGKILL)


@nemesis("a second fault in a recovery", megabytes=256)
def fault_in_recovery(cluster, rng):
    cluster.wait_for("saved step", 90)
    first = cluster.tasks[cluster.pick(rng, rng.choice(["ps", "ps", "chief"]))]
    first.send(signal.SIGKILL)
    second_fault(cluster, rng, first)


@nemesis("slow fsync, and both servers are lost", megabytes=64)
def slow_fsync(cluster, rng):
    """Row 1 of what was broken once: a checkpoint is being written while what it has is lost."""
    cluster.disk(fsync_ms=rng.choice([200, 1000, 3000]))
    time.sleep(rng.uniform(0.0, 6.0))
    for job in cluster.jobs:
        if job.startswith("ps"):
            cluster.tasks[job].send(signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 1.0))
    time.sleep(rng.uniform(2.0, 8.0))
    cluster.disk()


@nemesis("disk with EIO")
def disk_eio(cluster, rng):
    cluster.disk(writes=rng.choice([0.05, 1.0]), fsyncs=rng.choice([0.0, 0.5]), error=errno.EIO)
    time.sleep(rng.uniform(3.0, 12.0))
    cluster.disk()


@nemesis("full disk")
def disk_full(cluster, rng):
    cluster.disk(writes=rng.choice([0.2, 1.0]), error=errno.ENOSPC)
    time.sleep(rng.uniform(3.0, 12.0))
    cluster.disk()


@nemesis("failing rename")
def failing_rename(cluster, rng):
    cluster.disk(renames=rng.choice([0.3, 1.0]), error=rng.choice([errno.EIO, errno.ENOSPC]))
    time.sleep(rng.uniform(3.0, 12.0))
    cluster.disk()


def second_chief(cluster, **how):
    """Starts a chief on the spare machine, which gets the chief's address."""
    cluster.network.address_of(cluster.spare, 0)
    cluster.network.plug(0, cluster.spare)
    return cluster.start("chief", cluster.spare, **how)


def end_second_chief(cluster, rng, first, second):
    """Kills the second chief, perhaps after a time in which the first one is heard beside it; the first one has its address again."""
    if rng.random() < 0.5:
        cluster.network.plug(0, first.machine)
    time.sleep(rng.uniform(0.0, 6.0))
    second.held.set()
    second.send(signal.SIGKILL)
    cluster.network.plug(0, first.machine)


@nemesis("two chiefs", steps=2000)  # more than the second one can finish
def two_chiefs(cluster, rng):
    """The chief's address moves to another machine, where a chief is started; the first one goes on, and gets it back."""
    cluster.wait_for("saved step", 90)
    first = cluster.chief
    second = second_chief(cluster)
    time.sleep(rng.uniform(1.0, 12.0))
    end_second_chief(cluster, rng, first, second)


@nemesis("the same task twice")
def same_task_twice(cluster, rng):
    """A second process of a task, with its address, beside the first one: on its machine, or on another one."""
    job = rng.choice([job for job in cluster.jobs if job != "chief"])
    number = cluster.machine_of(job)
    if rng.random() < 0.5:
        machine = number
    else:
        machine = cluster.spare
        cluster.network.address_of(machine, number)
        if rng.random() < 0.5:
            cluster.network.plug(number, machine)
    second = cluster.start(job, machine)
    time.sleep(rng.uniform(2.0, 10.0))
    second.held.set()
    second.send(signal.SIGKILL)
    cluster.network.plug(number, number)


@nemesis("descriptors used up")
def descriptors(cluster, rng):
    task = cluster.tasks[rng.choice(cluster.jobs)]
    pid = task.process.pid
    try:
        used = len(os.listdir(f"/proc/{pid}/fd"))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(3, used + rng.choice([-8, 0, 2])), before[1]))
        time.sleep(rng.uniform(2.0, 8.0))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended


FLOOD = """
import os, socket, sys, time
end = time.monotonic() + float(sys.argv[2])
held = []
while time.monotonic() < end:
    try:
        place = socket.create_connection((sys.argv[1], %d), timeout=1)
        place.settimeout(1)
        kind = len(held) %% 3
        if kind == 0: place.sendall(os.urandom(512))
        if kind == 1: place.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(9))
        held.append(place)
    except OSError:
        pass
    if len(held) > 400: held.pop(0).close()
    time.sleep(0.002)
""" % PORT


@nemesis("flood of connections")
def flood(cluster, rng):
    """Strangers open connections, say nothing or nonsense, and hold them."""
    target = cluster.network.address(cluster.machine_of(rng.choice(cluster.jobs)))
    seconds = rng.uniform(3.0, 8.0)
    stranger = cluster.network.inside(cluster.spare + 1, ["/usr/bin/env", "python3", "-c", FLOOD, target, str(seconds)])
    stranger.wait(60)


@nemesis("slow reader")
def slow_reader(cluster, rng):
    """What reaches one machine comes late and with losses, so that its senders' buffers are full; the others go on."""
    machine = cluster.machine_of(cluster.pick(rng, rng.choice(["worker", "ps"])))
    cluster.network.link("*", machine, delay=rng.choice([200.0, 800.0]), loss=0.2)
    time.sleep(rng.uniform(4.0, 12.0))
    cluster.network.link()


@nemesis("a large state", megabytes=1024, steps=600, save_every=300)
def large_state(cluster, rng):
    """A gigabyte on the servers, so that saves, fills and copies take seconds; faults fall into them."""
    time.sleep(rng.uniform(0.0, 8.0))
    for _ in range(2):
        first = cluster.tasks[cluster.pick(rng, rng.choice(["ps", "chief"]))]
        first.send(signal.SIGKILL)
        second_fault(cluster, rng, first)


@nemesis("two chiefs, the first one stopped", steps=2000)
def stopped_chief(cluster, rng):
    """The chief is stopped; a second one goes on from a copy of its directory, so that no lock keeps it out; then the first one goes on."""
    cluster.wait_for("saved step", 90)
    first = cluster.chief
    first.send(signal.SIGSTOP)
    copy = cluster.folder / "copy"
    shutil.copytree(cluster.directory, copy, ignore=lambda _, names: [name for name in names if name.startswith(".")])
    second = second_chief(cluster, directory=copy)
    cluster.wait_for("begins at step", 60, second)
    time.sleep(rng.uniform(0.0, 8.0))
    first.send(signal.SIGCONT)
    end_second_chief(cluster, rng, first, second)


@nemesis("two jobs in one folder")
def two_jobs(cluster, rng):
    """Another chief, server and worker, with addresses of their own, are started in the folder of the first ones."""
    jobs = {"chief": cluster.spare, "ps 0": cluster.spare + 1, "worker 0": cluster.spare + 2}
    spec = cluster.spec_of(jobs)
    others = [cluster.start(job, machine, spec=spec) for job, machine in jobs.items()]
    if rng.random() < 0.5:  # the first one's lock is free for a moment
        time.sleep(rng.uniform(0.0, 3.0))
        cluster.chief.send(signal.SIGKILL)
    time.sleep(rng.uniform(3.0, 12.0))
    for other in others:
        other.held.set()
        other.send(signal.SIGKILL)


@nemesis("stopped launcher", run=Launched, pause_ms=45)
def stopped_launcher(cluster, rng):
    """SIGSTOP to a launcher; tasks are killed before, while it is stopped, and after it goes on."""
    def kill_one():
        tasks = cluster.children()
        if tasks:
            os.kill(rng.choice(tasks), signal.SIGKILL)
    if rng.random() < 0.5:
        kill_one()
    cluster.chief.send(signal.SIGSTOP)
    time.sleep(rng.uniform(0.0, 4.0))
    if rng.random() < 0.7:
        kill_one()
    time.sleep(rng.uniform(0.5, 10.0))
    cluster.chief.send(signal.SIGCONT)
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, 3.0))
        kill_one()


def bad_network(cluster, rng):
    """A bad link, a partition of one direction or a flapping one, drawn by the seed."""
    rng.choice([lose, delay, reorder, duplicate, all_at_once, one_way, flap])(cluster, rng)


nemesis("workers that train together under network faults", run=Training)(bad_network)
nemesis("an elastic run under network faults", run=Elastic)(bad_network)


@nemesis("stopped launchers of an elastic run", run=Elastic)
def stopped_elastic(cluster, rng):
    """SIGSTOP to a launcher or the leader, for shorter and for longer than it is waited for."""
    stop(cluster, rng)
