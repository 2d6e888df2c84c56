"""cohort train with parameter servers: real processes, started by cohort launch."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from processes import marked, records_of

COHORT = os.environ["COHORT"]
STEPS = 208  # of an epoch: 20,000 drawn digits in whole batches of 96


def command(folder, *flags, launch=()):
    return [COHORT, "launch", "--ps=2", "--workers=2", *launch, "--", COHORT, "train", "--experiment=mnist_mlp", "--batch_size=96",
            "--seed=3", "--distribution_strategy=parameter_server", f"--model_dir={folder}/run", *flags]


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def kill_chief(self):
        for process in marked('"type":"chief"'):
            with contextlib.suppress(OSError):  # a chief of another test may end meanwhile
                if self.folder in pathlib.Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8"):
                    os.kill(process, signal.SIGKILL)

    def test_trains_and_others_read_what_it_saved(self):
        done = subprocess.run(command(self.folder, "--epochs=2", launch=["--evaluator"]), capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        records = records_of(f"{self.folder}/run")
        self.assertEqual(max(record["step"] for record in records), 2 * STEPS)
        self.assertGreater([record for record in records if record["mode"] == "train"][-1]["accuracy"], 0.9)  # gradients come in any order
        self.assertRegex(done.stdout, r"\[evaluator\] [12] checkpoint\(s\) of .* evaluated")
        here = subprocess.run([COHORT, "train", "--experiment=mnist_mlp", "--mode=eval", "--seed=3", f"--model_dir={self.folder}/run",
                               "--distribution_strategy=off"], capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(here.returncode, 0, here.stderr)
        records = records_of(f"{self.folder}/run")
        self.assertAlmostEqual(records[-1]["loss"], records[-2]["loss"], delta=1e-4)  # the evaluator's, or the chief's

    def test_what_one_process_left_goes_on_with_servers_and_a_killed_chief_too(self):
        alone = [COHORT, "train", "--experiment=mnist_mlp", "--batch_size=96", "--seed=3", "--distribution_strategy=off",
                 f"--model_dir={self.folder}/run", "--epochs=5", "--save_freq=50"]
        with subprocess.Popen(alone, stdout=subprocess.PIPE, text=True) as process:
            while "Epoch 1/" not in process.stdout.readline():
                pass
            process.kill()
        flags = ["--epochs=5", "--save_freq=50", "--consistency=synchronous", "--ps_replicas=2"]
        with subprocess.Popen(command(self.folder, *flags, launch=["--max_restarts=3"]), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            said = []
            for line in process.stdout:
                said.append(line)
                if "Epoch 3/" in line and sum("Epoch 3/" in each for each in said) == 1:
                    self.kill_chief()
            self.assertEqual(process.wait(60), 0, "".join(said))
        said = "".join(said)
        self.assertEqual(said.count("goes on with the run that was interrupted"), 2, said)
        self.assertIn("[launch] chief", said)
        records = records_of(f"{self.folder}/run")
        self.assertEqual((records[-1]["epoch"], records[-1]["step"]), (5, 5 * STEPS))
        self.assertGreater(records[-1]["accuracy"], 0.98)

