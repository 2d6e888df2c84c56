"""cohort train --log_format=json: each line of all output is one object."""
import datetime
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]


class LogFormat(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    def done(self, *flags, **variables):
        command = [COHORT, "train", "--experiment=mnist_mlp", "--train_steps=20", f"--model_dir={self.folder}/run", *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **variables})

    def records(self, text):
        records = [json.loads(line) for line in text.splitlines()]
        for record in records:
            self.assertEqual(list(record)[:3], ["time", "level", "message"])
            self.assertIsNotNone(datetime.datetime.strptime(record["time"], "%Y-%m-%dT%H:%M:%S.%fZ"))
        return records

    def test_a_run(self):
        done = self.done("--log_format=json", "--params_override=trainer.steps_per_loop=10", COHORT_LOG_LEVEL="debug")
        self.assertEqual(done.returncode, 0, done.stderr)
        records = self.records(done.stdout)
        self.assertEqual({record["level"] for record in records}, {"info"})
        figures = [record for record in records if "metrics" in record]
        self.assertEqual([(record["phase"], record["step"]) for record in figures][:2], [("train", 10), ("train", 20)])
        self.assertGreater(figures[0]["metrics"]["loss"], 0)
        self.assertEqual(figures[0]["rank"], 0)
        self.assertEqual(figures[-1]["phase"], "eval")
        self.records(done.stderr)

    def test_workers(self):
        folder = pathlib.Path(self.folder)
        flags = ["--experiment=mnist_mlp", "--train_steps=20", f"--model_dir={folder}/run", "--distribution_strategy=multi_worker_mirrored"]
        command = [COHORT, "launch", "--nproc=2", f"--log_dir={folder}/logs", "--", COHORT, "train", *flags, "--log_format=json"]
        subprocess.run(command, capture_output=True, check=True, timeout=120, env={**os.environ, "COHORT_LOG_LEVEL": "info"})
        for rank in range(2):
            records = self.records(folder.joinpath(f"logs/attempt_0/worker_{rank}.log").read_text(encoding="utf-8"))
            self.assertTrue(records[0]["message"].startswith(f"[strategy] worker {rank} of 2"), "the log")
            self.assertEqual({record["rank"] for record in records if "metrics" in record}, {rank})

    def test_errors(self):
        for flags, part in ((["--mode=none"], "[train]"), (["--params_override=trainer.nothing=1"], "trainer.nothing"), (["--unknown"], "--unknown")):
            done = self.done("--log_format=json", *flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            records = self.records(done.stderr)
            self.assertIn(part, records[0]["message"])
            self.assertEqual({record["level"] for record in records}, {"error"})

    def test_other_formats_are_refused(self):
        done = self.done("--log_format=xml")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--log_format", done.stderr)


if __name__ == "__main__":
    unittest.main()
