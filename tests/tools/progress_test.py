"""What cohort train shows while it runs: in terminals of all widths, in files, on several workers."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

from processes import free_ports
from terminal import Screen, resize, run_in_terminal

COHORT = os.environ["COHORT"]
BAR = re.compile(r"^ *(\d+)/(\d+) \[=*>?\.*\]")


def train(folder, *flags):
    return [COHORT, "train", "--experiment=mnist_mlp", f"--model_dir={folder}", *flags]


def read_json(file):
    return [json.loads(line) for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()]


def metadata_of(file):
    data = pathlib.Path(file).read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


class Terminals(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    def test_a_bar_in_terminals_of_any_width(self):
        for columns in (40, 80, 200):
            with self.subTest(columns=columns):
                code, text = run_in_terminal(train(f"{self.folder}/{columns}", "--epochs=2", "--batch_size=64"), columns)
                self.assertEqual(code, 0, text)
                drawn = text[text.index("Epoch 1/2\n"):text.index("loss: ", text.rindex("Evaluation"))]
                self.assertGreaterEqual(drawn.count("\r"), 4, text)
                self.assertEqual(Screen(columns).show(drawn).wrapped, 0, drawn)
                rows = Screen(columns).show(text).rows
                for title in ("Epoch 1/2", "Epoch 2/2"):
                    bar = BAR.match(rows[rows.index(title) + 1])
                    self.assertIsNotNone(bar, rows)
                    self.assertEqual(bar.groups(), ("312", "312"))
                    self.assertIn("=" * (25 if columns == 40 else 30) + "]", rows[rows.index(title) + 1])
                self.assertEqual(rows.count("Evaluation"), 2)

    def test_a_terminal_that_becomes_narrower(self):
        narrow = []

        def shrink(terminal, text):
            if not narrow and text.count("\r") > text.count("\r\n") + 2:
                resize(terminal, 40)
                narrow.append(0)
            elif narrow == [0]:  # what comes first may have been written before
                narrow[0] = len(text.replace("\r\n", "\n"))

        code, text = run_in_terminal(train(self.folder, "--epochs=3", "--batch_size=24"), 200, on_output=shrink)
        self.assertEqual(code, 0, text)
        self.assertTrue(narrow, text)
        # One may have been under way.
        later = text[narrow[0]:].replace("\n", "\r").split("\r")[2:]
        bars = [line for line in later if BAR.match(line)]
        self.assertGreater(len(bars), 2, text)
        self.assertLess(max(len(line) for line in bars), 40, bars)

    def test_a_stretch_at_the_end_that_is_not_whole(self):
        flags = ("--train_steps=250", "--params_override=trainer.summary_interval=100")
        code, text = run_in_terminal(train(f"{self.folder}/bar", *flags), 100)
        self.assertEqual(code, 0, text)
        rows = Screen(100).show(text).rows
        at = rows.index("Steps 201 to 250 of 250")
        self.assertTrue(rows[at + 1].startswith("50/50 [==============================] - "), rows)
        done = subprocess.run(train(f"{self.folder}/lines", *flags), capture_output=True, text=True, check=True, timeout=120)
        self.assertRegex(done.stdout, r"\nSteps 201 to 250 of 250 - 50/50 - .* - loss: 0\.\d+ - accuracy: 0\.\d+ - ")

    def test_no_carriage_return_where_it_is_no_terminal(self):
        code, text = run_in_terminal(train(f"{self.folder}/dumb", "--epochs=1"), 80, env={**os.environ, "TERM": "dumb"})
        self.assertEqual(code, 0, text)
        self.assertNotIn("\r", text)
        done = subprocess.run(train(f"{self.folder}/pipe", "--epochs=1"), capture_output=True, check=True, timeout=120)
        self.assertNotIn(b"\r", done.stdout + done.stderr)
        self.assertRegex(done.stdout.decode(), r"\nEpoch 1/1 - (\d+)/\1 - .*loss: ")
        code, text = run_in_terminal([COHORT, "launch", "--nproc=2", "--", *train(f"{self.folder}/launched", "--epochs=1"),
                                      "--distribution_strategy=multi_worker_mirrored"], 80)
        self.assertEqual(code, 0, text)
        self.assertNotIn("\r", text)
        self.assertRegex(text, r"\n\[worker 0\] Epoch 1/1 - (\d+)/\1 - ")
        self.assertNotIn("[worker 1] Epoch", text)

    def test_the_chief_alone_draws(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
        results = [None, None]

        def work(rank):
            results[rank] = run_in_terminal(
                train(self.folder, "--epochs=1", "--distribution_strategy=multi_worker_mirrored", f"--worker_hosts={hosts}",
                      f"--task_index={rank}"), 80)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([code for code, _ in results], [0, 0], results)
        self.assertIn("\r", results[0][1])
        self.assertNotIn("\r", results[1][1])
        self.assertNotIn("Epoch", results[1][1])

    def test_a_warning_gets_a_line_of_its_own(self):
        # Recovery goes back to a checkpoint again and again.
        flags = ("--train_steps=60", "--save_freq=10", "--seed=2",
                 "--params_override=trainer.steps_per_loop=10,trainer.loss_upper_bound=1e-9,trainer.recovery_begin_steps=15,"
                 "trainer.recovery_max_trials=1")
        _, text = run_in_terminal(train(self.folder, *flags), 80)
        rows = Screen(400).show(re.sub(r"\x1b\[[0-9;]*m", "", text)).rows
        warned = [row for row in rows if "[warning]" in row]
        self.assertTrue(warned, text)
        self.assertTrue(all(row.startswith("[2") for row in warned), rows)


class Epochs(unittest.TestCase):
    """The epochs that are counted are those that are done."""

    def run_to(self, folder, steps, *flags):
        done = subprocess.run(train(folder, f"--train_steps={steps}", "--batch_size=2000", *flags), capture_output=True, text=True,
                              check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return metadata_of(f"{folder}/model.safetensors")

    def test_counts_whole_epochs(self):
        # 20,000 drawn digits: an epoch is 10 steps.
        for loop, summary in ((0, 0), (3, 4), (25, 5), (7, 16)):
            with self.subTest(loop=loop, summary=summary), tempfile.TemporaryDirectory() as folder:
                flags = (f"--params_override=trainer.steps_per_loop={loop},trainer.summary_interval={summary},"
                         "trainer.validation_interval=8,trainer.checkpoint_interval=6",)
                made = self.run_to(folder, 16, *flags)
                self.assertEqual((made["global_step"], made["epoch"]), ("16", "1"))
                made = self.run_to(folder, 36, *flags)
                self.assertEqual((made["global_step"], made["epoch"]), ("36", "3"))
                records = read_json(f"{folder}/metrics.jsonl")
                self.assertGreater(len(records), 5)
                for record in records:
                    self.assertEqual(record["epoch"], record["step"] // 10, record)

    def test_nothing_that_is_not_finite_breaks_the_json(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_to(folder, 4, "--params_override=trainer.optimizer_config.learning_rate.type=constant,"
                        "trainer.optimizer_config.learning_rate.constant.learning_rate=1e30,trainer.recovery_max_trials=-1")

            def refuse(word):
                raise AssertionError(f"{word} is no JSON")

            for line in pathlib.Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines():
                self.assertIsNone(json.loads(line, parse_constant=refuse)["loss"])


if __name__ == "__main__":
    unittest.main()
