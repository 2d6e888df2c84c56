"""Outages that end: nothing passes between two machines for a while, and the run goes on as if nothing had been."""
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

import machines
from processes import records_of

COHORT = os.environ["COHORT"]
LENGTHS = [float(length) for length in os.environ.get("COHORT_OUTAGES", "1 3.5").split()]  # seconds; the limit is 5, less one
TRAIN = [COHORT, "train", "--experiment=mnist_mlp", "--seed=3", "--batch_size=96", "--train_steps=1000000000",
         "--params_override=trainer.steps_per_loop=20,trainer.summary_interval=20,trainer.validation_interval=1000000000"]


def tried_thrice(test):
    """A test of what outages leave little time for. A busy machine may add a silence of its own; it does not do so three times."""
    @functools.wraps(test)
    def tries(self):
        for _ in range(2):
            try:
                return test(self)
            except AssertionError as error:
                print(f"once more, because {error}", file=sys.stderr)
                self.doCleanups()
                self.setUp()
        return test(self)
    return tries


class Outages(unittest.TestCase):
    def setUp(self):
        if not machines.can_make():
            self.skipTest(machines.NEED)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run = self.folder / "run"
        self.secret = self.folder / "secret"
        self.secret.write_text("a secret of the test's", encoding="utf-8")
        self.machines = machines.MachinesOfTest(self)
        self.started = []

    def start(self, which, command, **options):
        said = (self.folder / f"said-{len(self.started)}").open("w+", encoding="utf-8")
        self.addCleanup(said.close)
        self.started.append((self.machines.inside(which, command, stdout=said, **options), said))

    def said(self):
        texts = []
        for _, said in self.started:
            said.seek(0)
            texts.append(said.read())
        return "\n---\n".join(texts)

    def step(self):
        try:
            return records_of(self.run)[-1]["step"]
        except (OSError, IndexError, ValueError):
            return 0

    def wait_for(self, what, holds, seconds):
        end = time.monotonic() + seconds
        while not holds():
            for process, _ in self.started:
                self.assertIsNone(process.poll(), f"{what}: a process has ended\n{self.said()}")
            self.assertLess(time.monotonic(), end, f"{what}: not within {seconds} s\n{self.said()}")
            time.sleep(0.05)

    def expect_survival(self):
        self.wait_for("the beginning", lambda: self.step() > 40, 180)
        for length in LENGTHS:
            self.machines.connect(False)
            time.sleep(length)
            self.machines.connect(True)
            before = self.step()
            self.wait_for(f"after an outage of {length} s", lambda: self.step() > before + 40, 60)  # noqa: B023

    def tasks(self, *places, flags):
        """Starts the tasks: (machine, job) each."""
        cluster, tasks = {}, []
        for which, job in places:
            addresses = cluster.setdefault(job, [])
            tasks.append((which, {"type": job, "index": len(addresses)}))
            addresses.append(f"{self.machines.address(which)}:{5000 + len(tasks)}")
        for which, task in tasks:
            self.start(which, [*TRAIN, f"--model_dir={self.run}", f"--secret_file={self.secret}", *flags],
                       env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})})

    @tried_thrice
    def test_workers_that_train_together(self):
        self.tasks((0, "worker"), (1, "worker"), flags=["--distribution_strategy=multi_worker_mirrored"])
        self.expect_survival()

    @tried_thrice
    def test_a_chief_a_server_and_a_worker(self):
        self.tasks((0, "chief"), (0, "ps"), (1, "worker"), flags=["--distribution_strategy=parameter_server"])
        self.expect_survival()

    @tried_thrice
    def test_a_server_away_from_its_worker_and_chief(self):
        self.tasks((0, "chief"), (1, "ps"), (0, "worker"), flags=["--distribution_strategy=parameter_server"])
        self.expect_survival()

    @tried_thrice
    def test_launchers_of_an_elastic_run(self):
        address = f"{self.machines.address(0)}:5999"
        train = ["--", *TRAIN, f"--model_dir={self.run}", "--distribution_strategy=multi_worker_mirrored"]
        trust = [f"--secret_file={self.secret}", "--nproc=1"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.start(0, [COHORT, "launch", "--elastic=2:2", f"--master_addr={self.machines.address(0)}", "--master_port=5999", *trust, *train], env=one_thread)
        self.start(1, [COHORT, "launch", f"--join={address}", *trust, *train], env=one_thread)
        self.expect_survival()
        self.assertNotIn("round 2", self.said())


if __name__ == "__main__":
    unittest.main()
