"""cohort checkpoint: what is in checkpoints of real runs, what differs, and the file of weights."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]


def cohort(*arguments):
    return subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=240)


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = pathlib.Path(made.name)
        cls.runs = {}
        for name, flags in (("whole", ["--sharding_stage=0"]), ("sharded", ["--sharding_stage=2", "--all_reduce_alg=reduction_to_one_device"])):
            cls.runs[name] = cls.folder / name
            done = cohort("train", "--experiment=mnist_mlp", "--train_steps=20", "--save_freq=10", "--batch_size=32", "--num_replicas=2",
                          f"--model_dir={cls.runs[name]}", *flags)
            assert done.returncode == 0, done.stdout + done.stderr

    def test_info_prints_every_tensor_of_the_newest_one(self):
        done = cohort("checkpoint", "info", self.runs["sharded"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step        20\n", done.stdout)
        self.assertRegex(done.stdout, r"tensors     model: \d+ of \d+ bytes")
        self.assertRegex(done.stdout, r"Float\[\d+, 784\]")
        self.assertRegex(done.stdout, r"bytes       worker-0: \d+")

    def test_diff_of_runs_that_share_states_and_do_not(self):
        whole, sharded = self.runs["whole"], self.runs["sharded"]
        same = cohort("checkpoint", "diff", whole, whole)
        self.assertEqual(same.returncode, 0, same.stdout + same.stderr)
        self.assertRegex(same.stdout, r"the same: \d+ tensors")
        steps = cohort("checkpoint", "diff", whole / "ckpt-10", whole / "ckpt-20")
        self.assertEqual(steps.returncode, 1, steps.stderr)
        self.assertIn("step: 10 and 20", steps.stdout)
        self.assertRegex(steps.stdout, r"model/[\w.]+: \d+ of \d+ elements differ, by up to ")
        # The same training: float32 sums in another order.
        near = cohort("checkpoint", "diff", "--tolerance=1e-3", whole, sharded)
        self.assertNotIn("elements differ", near.stdout)
        self.assertNotIn("only in", near.stdout)

    def test_consolidate_makes_the_file_of_weights(self):
        file = self.folder / "weights.safetensors"
        done = cohort("checkpoint", "consolidate", self.runs["sharded"], f"--output={file}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(file.stat().st_size, 4 * 784)
        header = file.read_bytes()[8:4096]
        self.assertIn(b'"step":"20"', header)
        self.assertIn(b'"shape":[', header)

    def test_wrong_calls_are_named(self):
        for arguments, words in ((("diff", self.runs["whole"]), "diff takes 2 checkpoints, got 1"),
                                 (("info", self.folder), "is no checkpoint, and has none that is called ckpt-STEP"),
                                 (("info", self.runs["whole"], "--output=x"), "info writes none"),
                                 (("consolidate", self.runs["whole"]), "is missing"),
                                 (("consolidate", self.runs["whole"], "--group=other", "--output=x"), 'has no tensors "other", only ')):
            done = cohort("checkpoint", *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr + done.stdout)
        broken = self.folder / "broken"
        shutil.copytree(self.runs["whole"] / "ckpt-20", broken)
        with (broken / "model.safetensors").open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"abcd")
        done = cohort("checkpoint", "info", broken)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("model.safetensors: its bytes do not have the manifest's checksum", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
