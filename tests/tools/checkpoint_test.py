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


def tensors_of(weights):
    return weights[8 + int.from_bytes(weights[:8], "little"):]


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = pathlib.Path(made.name)
        cls.runs = {}
        workers = ["launch", "--nproc=2", "--", COHORT]
        shared = ["--distribution_strategy=multi_worker_mirrored", "--sharding_stage=3", "--sharding_min_unit_bytes=0"]
        for name, prefix, flags in (("whole", [], ["--num_replicas=2"]), ("sharded", workers, shared),
                                    ("shards", workers, [*shared, "--sharded_checkpoints=true", "--params_override=trainer.summary_histograms=true"])):
            cls.runs[name] = cls.folder / name
            done = cohort(*prefix, "train", "--experiment=mnist_mlp", "--train_steps=20", "--save_freq=10", "--batch_size=32", "--seed=3",
                          f"--model_dir={cls.runs[name]}", *flags)
            assert done.returncode == 0, done.stdout + done.stderr

    def test_info_prints_every_tensor_of_the_newest_one(self):
        done = cohort("checkpoint", "info", self.runs["sharded"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step        20\n", done.stdout)
        self.assertRegex(done.stdout, r"tensors     model: \d+ of \d+ bytes")
        self.assertRegex(done.stdout, r"Float\[\d+, 784\]")
        self.assertRegex(done.stdout, r"bytes       worker-0: \d+")

    def test_info_says_where_the_pieces_are(self):
        done = cohort("checkpoint", "info", self.runs["shards"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"tensors     model: \d+ of \d+ bytes, in the shards of 2 workers")
        self.assertRegex(done.stdout, r"Float\[\d+, 784\]\n +model\.shard-[01]-of-2\.safetensors: elements 0 to \d+\n")
        self.assertRegex(done.stdout, r"iterations  Long\[\]\n +optimizer\.shard-[01]-of-2\.safetensors: whole")

    def test_diff_of_shards_and_wholes(self):
        same = cohort("checkpoint", "diff", self.runs["shards"], self.runs["sharded"])
        self.assertEqual(same.returncode, 0, same.stdout + same.stderr)
        self.assertRegex(same.stdout, r"the same: \d+ tensors")

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
        self.assertIn('value workers: "1" and "2"', near.stdout)
        self.assertNotRegex(near.stdout, r"(?m)^(model|optimizer)/")

    def test_consolidate_makes_the_file_of_weights(self):
        made = []
        for name in ("sharded", "shards"):
            file = self.folder / f"{name}.safetensors"
            done = cohort("checkpoint", "consolidate", self.runs[name], f"--output={file}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(file.stat().st_size, 4 * 784)
            made.append(file.read_bytes())
            # What the workers have sent the chief at the end.
            self.assertEqual(tensors_of(made[-1]), tensors_of((self.runs[name] / "model.safetensors").read_bytes()))
        self.assertIn(b'"step":"20"', made[0][8:4096])
        self.assertIn(b'"shape":[', made[0][8:4096])
        self.assertEqual(made[0], made[1])

    def test_wrong_calls_are_named(self):
        for arguments, words in ((("diff", self.runs["whole"]), "diff takes 2 checkpoints, got 1"),
                                 (("info", self.folder), "is no checkpoint, and has none that is called ckpt-STEP"),
                                 (("info", self.runs["whole"], "--output=x"), "info writes none"),
                                 (("consolidate", self.runs["whole"]), "is missing"),
                                 (("consolidate", self.runs["whole"], "--group=other", "--output=x"), 'has no tensors "other", only ')):
            done = cohort("checkpoint", *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr + done.stdout)
        for run, name in (("whole", "model.safetensors"), ("shards", "model.shard-1-of-2.safetensors")):
            broken = self.folder / f"broken-{run}"
            shutil.copytree(self.runs[run] / "ckpt-20", broken)
            with (broken / name).open("r+b") as file:
                file.seek(-4, os.SEEK_END)
                file.write(b"abcd")
            done = cohort("checkpoint", "info", broken)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"{name}: its bytes do not have the manifest's checksum", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
