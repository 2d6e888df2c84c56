"""Runs of two workers whose membership etcd keeps. Each worker has a launcher of its own, which starts it again when it fails."""
import os
import pathlib
import signal
import subprocess
import threading
import time

from processes import free_ports, records_of

TRAIN = ["train", "--experiment=mnist_mlp", "--mode=train", "--batch_size=96", "--seed=3", "--save_freq=50",
         "--distribution_strategy=multi_worker_mirrored"]
MOST_STARTS = 5


class Supervised:
    """A worker that is started again, like a pod, until it ends well."""

    def __init__(self, command, log):
        self.command, self.log = command, log
        self.process, self.starts, self.code = None, 0, None
        self.lock = threading.Lock()
        self.closed = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.starts < MOST_STARTS and self.code != 0:
            with self.lock, self.log.open("a", encoding="utf-8") as out:
                if self.closed:
                    return
                self.process = subprocess.Popen(self.command, stdout=out, stderr=out)
                self.starts += 1
            self.code = self.process.wait()

    def send(self, number):
        with self.lock:
            if self.process.poll() is None:
                os.kill(self.process.pid, number)

    def said(self):
        return self.log.read_text(encoding="utf-8")

    def close(self):
        with self.lock:
            self.closed = True
            if self.process is not None:
                self.process.kill()
        self.thread.join()


class Run:
    def __init__(self, cohort, coordination, folder, epochs=2):
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
        self.folder = pathlib.Path(folder)
        self.workers = [Supervised([cohort, *TRAIN, f"--epochs={epochs}", f"--model_dir={self.folder}/run", f"--worker_hosts={hosts}",
                                    f"--task_index={i}", f"--coordination={coordination}"], self.folder / f"{i}.log") for i in range(2)]

    def said(self):
        return "".join(f"--- worker {i}\n{worker.said()}" for i, worker in enumerate(self.workers))

    def wait_for_checkpoint(self, step, limit=240):
        """Waits for the checkpoint of this step or a later one."""
        end = time.monotonic() + limit
        while not [path for path in (self.folder / "run").glob("ckpt-*") if path.name[5:].isdigit() and int(path.name[5:]) >= step]:
            if time.monotonic() > end:
                raise RuntimeError(f"no checkpoint of step {step}: {self.said()}")
            time.sleep(0.002)

    def kill(self, worker):
        self.workers[worker].send(signal.SIGKILL)

    def end(self, limit=400):
        """Waits for the good end of both. Returns the last record and the bytes of the weights."""
        end = time.monotonic() + limit
        for worker in self.workers:
            worker.thread.join(max(0.0, end - time.monotonic()))
        codes = [worker.code for worker in self.workers]
        if codes != [0, 0]:
            raise RuntimeError(f"the workers ended with {codes}: {self.said()}")
        return records_of(self.folder / "run")[-1], (self.folder / "run/model.safetensors").read_bytes()

    def close(self):
        for worker in self.workers:
            worker.close()
