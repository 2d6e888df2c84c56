"""What goes wrong in a run is told in a sentence, never as a stack trace."""
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]


def cohort(*arguments, prefix=(), limit=None):
    done = subprocess.run([*prefix, COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120, preexec_fn=limit)
    return done.returncode, done.stdout, done.stderr


def train(*flags, experiment="mnist_mlp", **options):
    return cohort("train", f"--experiment={experiment}", "--train_steps=4", *flags, **options)


class Errors(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def one_sentence(self, outcome, status, *parts):
        code, out, err = outcome
        self.assertEqual(code, status, out + err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("["), err)
        for part in parts:
            self.assertIn(part, err)

    def test_libtorchs_errors_have_no_stack_trace(self):
        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

        outcome = train(f"--model_dir={self.folder}", "--batch_size=20000", experiment="mnist_cnn", limit=little_memory)
        self.one_sentence(outcome, 1, "allocate")
        self.assertNotIn("frame #", outcome[2])
        self.assertNotIn("Exception raised from", outcome[2])

    def test_nothing_to_evaluate_with_is_said_before_training(self):
        clicks = self.folder / "clicks.tsv"
        clicks.write_text("\t".join(["1"] + ["3"] * 13 + ["ff"] * 26) + "\n")
        flags = ["--mode=train_and_eval", f"--data_dir={clicks}", "--batch_size=1", f"--model_dir={self.folder}/run"]
        self.one_sentence(train(*flags, experiment="dlrm_small"), 2, "clicks.tsv has no batch to evaluate with: task.train_data.held_out")

    def test_a_folder_of_another_experiment(self):
        code, _, err = train(f"--model_dir={self.folder}")
        self.assertEqual(code, 0, err)
        before = (self.folder / "params.yaml").read_bytes()
        checkpoint = str(self.folder / "ckpt-4")
        self.one_sentence(train(f"--model_dir={self.folder}", experiment="mnist_cnn"), 2, checkpoint, "conv2d.weight")
        self.assertEqual((self.folder / "params.yaml").read_bytes(), before, "the other run's configuration is gone")
        self.one_sentence(train(f"--model_dir={self.folder}", "--mode=eval", experiment="mnist_cnn"), 2,
                          str(self.folder / "params.yaml"), "is of a training of mnist_mlp, wanted mnist_cnn")

    def test_what_stands_where_a_file_is_to_be(self):
        for name, said in (("params.yaml", "Is a directory"), ("metrics.jsonl", "is a folder, wanted a file"), ("model.safetensors", "Is a directory")):
            folder = self.folder / name
            (folder / name).mkdir(parents=True)
            self.one_sentence(train(f"--model_dir={folder}"), 1, str(folder / name), said)
        for name in ("train", "validation"):
            folder = self.folder / name
            folder.mkdir()
            (folder / name).touch()
            self.one_sentence(train(f"--model_dir={folder}"), 1, str(folder / name), "Not a directory")
        (self.folder / "file").touch()
        self.one_sentence(train(f"--model_dir={self.folder}/file"), 2, "--model_dir", "Not a directory")

    def test_a_loss_that_is_not_a_number(self):
        outcome = train(f"--model_dir={self.folder}",
                        "--params_override=trainer.optimizer_config.learning_rate.type=constant,"
                        "trainer.optimizer_config.learning_rate.constant.learning_rate=1e30")
        self.one_sentence(outcome, 1, "the loss is nan after step 4")

    @unittest.skipUnless(shutil.which("unshare"), "unshare is not here")
    def test_process_1_of_a_container_starts_again(self):
        prefix = ("unshare", "--pid", "--fork", "--mount-proc")
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user cannot make a namespace of processes")
        # What earlier versions left when they were killed; the next one was process 1 as well.
        for name in ("params.yaml", "model.safetensors", "checkpoint.json"):
            for number in range(20):
                (self.folder / f"{name}.tmp.1.{number}").write_text("half")
        code, out, err = train(f"--model_dir={self.folder}", prefix=prefix)
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    unittest.main()
