"""What the tests of real processes share; found by PYTHONPATH, or by the scripts that are not run by ctest themselves."""
import json
import pathlib
import random
import socket


def free_ports(count):
    """Ports on which nobody listens. They are none of those that the system gives to others before the caller's processes listen there."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    ports = set()
    while len(ports) < count:
        with socket.socket() as place:
            try:
                place.bind(("127.0.0.1", random.randrange(10_000, first_given) if first_given > 12_000 else 0))
            except OSError:  # it is not free
                continue
            ports.add(place.getsockname()[1])
    return list(ports)


def free_port():
    return free_ports(1)[0]


def records_of(model_dir):
    """The lines of its metrics.jsonl."""
    return [json.loads(line) for line in pathlib.Path(model_dir, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def marked(mark):
    """The processes that have this mark in their environment, but for zombies."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def expect_same_result(one, several):
    """The last records of one process's training and of several's: they differ by no more than rounding does."""
    if one["step"] != several["step"] or abs(one["loss"] - several["loss"]) > 2e-3:
        raise RuntimeError(f"one process: {one}, several: {several}")
    print(f"several: step {several['step']}, loss {several['loss']:.4f}; one process: loss {one['loss']:.4f}")
