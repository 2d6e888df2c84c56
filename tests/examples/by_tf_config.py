"""Runs a program of the tutorials on two workers that TF_CONFIG describes, as the notebooks do. usage: FILE PROGRAM MNIST"""
import json
import os
import subprocess
import sys
import tempfile

from processes import free_ports


def main(program, mnist):
    workers = [f"localhost:{port}" for port in free_ports(2)]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for index in range(2):
            tf_config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            started.append(subprocess.Popen([program, folder, mnist], env={**os.environ, "TF_CONFIG": json.dumps(tf_config)}))
        try:
            return max(abs(each.wait(timeout=800)) for each in started)
        finally:
            for each in started:
                each.kill()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
