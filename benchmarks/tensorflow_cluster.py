"""Starts the tasks of a TensorFlow cluster on this machine, each with its TF_CONFIG, and ends them with the chief or worker 0.

usage: tensorflow_cluster.py chief=N worker=N ps=N -- COMMAND...     the first task's output and exit status are passed on
"""
import contextlib
import json
import os
import socket
import subprocess
import sys

LIMIT = 600  # seconds


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def main():
    split = sys.argv.index("--")
    numbers = {kind: int(number) for kind, number in (part.split("=") for part in sys.argv[1:split])}
    names = [(kind, index) for kind, number in numbers.items() for index in range(number)]
    cluster = {}
    for (kind, _), port in zip(names, free_ports(len(names))):
        cluster.setdefault(kind, []).append(f"localhost:{port}")
    tasks = []
    try:
        for kind, index in names:
            config = {"cluster": cluster, "task": {"type": kind, "index": index}}
            output = {} if not tasks else {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            tasks.append(subprocess.Popen(sys.argv[split + 1:], env={**os.environ, "TF_CONFIG": json.dumps(config)}, **output))
        return tasks[0].wait(LIMIT)
    finally:
        for task in tasks:
            task.kill()
            task.wait()


if __name__ == "__main__":
    sys.exit(main())
