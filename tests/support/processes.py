"""What the tests of real processes share; found by PYTHONPATH, or by the scripts that are not run by ctest themselves."""
import json
import pathlib
import socket


def free_ports(count):
    places = [socket.socket() for _ in range(count)]
    for place in places:
        place.bind(("127.0.0.1", 0))
    ports = [place.getsockname()[1] for place in places]
    for place in places:
        place.close()
    return ports


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
