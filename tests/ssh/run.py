#!/usr/bin/env python3
"""cohort launch --hosts over a real sshd, which is started here for this alone.

Usage: run.py COHORT
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from processes import expect_same_result, free_port, marked, records_of  # pylint: disable=wrong-import-position

FLAGS = ["train", "--experiment=mnist_mlp", "--mode=train", "--batch_size=96", "--seed=3"]


class Sshd:
    def __init__(self, folder):
        self.port = free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "user.pub", folder / "authorized")
        os.makedirs("/run/sshd", exist_ok=True)
        self.daemon = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(self.port), "-h", folder / "host",
                                        "-o", "ListenAddress=127.0.0.1", "-o", f"AuthorizedKeysFile={folder / 'authorized'}",
                                        "-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", f"PidFile={folder / 'pid'}"],
                                       stderr=(folder / "sshd.log").open("w"))
        self.command = (f"ssh -p {self.port} -i {folder / 'user'} -o BatchMode=yes -o StrictHostKeyChecking=no "
                        f"-o UserKnownHostsFile={folder / 'known'} -o LogLevel=ERROR")
        end = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            if time.monotonic() > end:
                raise RuntimeError("sshd does not come: " + (folder / "sshd.log").read_text(encoding="utf-8"))
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        self.daemon.wait()


def launch(cohort, sshd, *words):
    return [cohort, "launch", "--hosts=127.0.0.1,localhost", f"--master_port={free_port()}", f"--ssh={sshd.command}", *words]


def trains_as_one_process(cohort, sshd, folder):
    subprocess.run([cohort, *FLAGS, "--distribution_strategy=one_device", f"--model_dir={folder}/one", "--epochs=1"], check=True, capture_output=True)
    done = subprocess.run(launch(cohort, sshd, "--", cohort, *FLAGS, "--distribution_strategy=multi_worker_mirrored", f"--model_dir={folder}/two",
                                 "--epochs=1"), capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    expect_same_result(records_of(folder / "one")[-1], records_of(folder / "two")[-1])


def leaves_nothing(cohort, sshd, number):
    mark = f"COHORT_TEST_MARK={time.time_ns()}"
    process = subprocess.Popen(launch(cohort, sshd, "-x", mark, "--", "sh", "-c", "echo here; sleep 1000"), stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        if "here" not in process.stdout.readline():
            raise RuntimeError("the workers do not start")
    process.send_signal(number)
    process.communicate(timeout=60)
    end = time.monotonic() + 20
    while left := marked(mark):
        if time.monotonic() > end:
            raise RuntimeError(f"after {number.name} there are still {left}")
        time.sleep(0.1)
    print(f"{number.name} to the launcher: nothing is left on the hosts")


def main(cohort):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cohort_ssh_"))
    try:
        with Sshd(folder) as sshd:
            trains_as_one_process(cohort, sshd, folder)
            leaves_nothing(cohort, sshd, signal.SIGTERM)
            leaves_nothing(cohort, sshd, signal.SIGKILL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
