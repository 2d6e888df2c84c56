"""The command line, as a user types it."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

COHORT = os.environ["COHORT"]


def cohort(*arguments):
    done = subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=250)
    return done.returncode, done.stdout, done.stderr


class WrongCalls(unittest.TestCase):
    """Those of train are in tests/models/command/train_command_test.cpp."""

    def test_commands_and_flags(self):
        for message, flags in (("subcommand is required", []), ("subcommand is required", ["fly"]), ("not expected", ["train", "--speed=3"])):
            code, out, err = cohort(*flags)
            self.assertEqual(code, 2, out + err)
            self.assertIn(message, err)


class SettingsWithoutEffect(unittest.TestCase):
    """What is set has its effect or is an error before the training, by name, with who has set it."""

    def refused(self, messages, *flags):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = cohort("train", "--experiment=mnist_mlp", f"--model_dir={folder}/run", *flags)
            self.assertFalse(pathlib.Path(folder, "run/params.yaml").exists(), "nothing has begun")
        self.assertEqual(code, 2, out + err)
        for message in messages:
            self.assertIn(message, err)

    def test_by_every_layer(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "a.yaml")
            file.write_text("task:\n  validation_data:\n    held_out: 0.5\n", encoding="utf-8")
            rule = "trainer.optimizer_config.optimizer"
            self.refused(["a run of mnist_mlp under mirrored, 1 replica(s), drawn digits has no use for what was set",
                          f"task.validation_data.held_out is 0.5 ({file}, line 3)",
                          'task.train_data.aug_crop is "none" (--params_override)', 'its default is "resized"',
                          f"{rule}.adamw.beta_1 is 0.8 (--gin_param): that is for {rule}.type adamw, and the type is adam"],
                         f"--config_file={file}", "--params_override=task.train_data.aug_crop=none", f"--gin_param={rule}.adamw.beta_1=0.8")

    def test_two_lengths(self):
        self.refused(["trainer.train_epochs is 2 (--params_override)"], "--params_override=trainer.train_epochs=2,trainer.train_steps=3")

    def test_a_best_checkpoint_by_what_is_not_measured(self):
        override = "--params_override=trainer.best_checkpoint_export_subdir=best"
        self.refused(['best_checkpoint_eval_metric is "acuracy", but evaluations have loss, accuracy'],
                     f"{override},trainer.best_checkpoint_eval_metric=acuracy")
        self.refused(["best_checkpoint_eval_metric does not say"], override)
        self.refused(["trainer.best_checkpoint_eval_metric is"], "--params_override=trainer.best_checkpoint_eval_metric=accuracy")

    def test_many_workers_who_do_not_know_each_other(self):
        environment = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})}
        with tempfile.TemporaryDirectory() as folder:
            flags = [COHORT, "train", "--experiment=mnist_mlp", f"--model_dir={folder}", "--train_steps=1"]
            done = subprocess.run(flags, capture_output=True, text=True, check=False, timeout=250, env={**os.environ, **environment})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the environment (tf_config) names 2 workers, but --distribution_strategy=mirrored knows this process only", done.stdout + done.stderr)
            flags += ["--distribution_strategy=multi_worker_mirrored", "--worker_hosts=c:1,d:1", "--task_index=0"]
            done = subprocess.run(flags, capture_output=True, text=True, check=False, timeout=250, env={**os.environ, **environment})
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("is another cluster than TF_CONFIG's", done.stderr)

    def test_params_of_a_run_are_accepted_by_it(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = ["train", "--experiment=mnist_mlp", f"--model_dir={folder}/a", "--params_override=trainer.train_epochs=3", "--train_steps=1"]
            code, out, err = cohort(*flags)
            self.assertEqual(code, 2, "the override comes after the flag")
            code, out, err = cohort(*flags[:3], "--train_steps=1", "--seed=3")
            self.assertEqual(code, 0, out + err)
            for mode in ("train", "eval"):
                code, out, err = cohort("train", "--experiment=mnist_mlp", f"--model_dir={folder}/a", f"--config_file={folder}/a/params.yaml", f"--mode={mode}")
                self.assertEqual(code, 0, out + err)


class OwnPrograms(unittest.TestCase):
    """Programs that users write: with train_main, and with make_strategy."""

    def run_program(self, program, *arguments):
        return subprocess.run([os.environ[program], *arguments], capture_output=True, text=True, check=False, timeout=250)

    def test_train_main_has_every_flag_of_train(self):
        theirs = re.findall(r"^ +(--[a-z_,-]+)", cohort("train", "--help")[1], re.M)
        own = self.run_program("OWN_EXPERIMENT", "--help")
        self.assertEqual(own.returncode, 0)
        self.assertEqual(re.findall(r"^ +(--[a-z_,-]+)", own.stdout, re.M), theirs)
        self.assertGreater(len(theirs), 20)
        self.assertIn("small_digits: a dense network", own.stdout)

    def test_train_main_trains_and_tells_wrong_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.json"
            done = self.run_program("OWN_EXPERIMENT", "--experiment=small_digits", f"--model_dir={folder}/run", "--num_replicas=2", f"--trace={trace}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("small_digits under mirrored, 2 replica(s)", done.stdout)
            self.assertGreater(float(re.search(r"^accuracy: (.*)$", done.stdout, re.M)[1]), 0.6)
            self.assertTrue(trace.exists())
        self.assertEqual(self.run_program("OWN_EXPERIMENT", "--speed=3").returncode, 2)
        missing = self.run_program("OWN_EXPERIMENT", "--experiment=small_digits")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("--model_dir is missing", missing.stderr)

    def test_make_strategy_takes_flags(self):
        done = self.run_program("CONFIGURED", "runtime.distribution_strategy=mirrored,runtime.num_replicas=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mirrored, 2 replica(s)", done.stdout)
        wrong = self.run_program("CONFIGURED", "runtime.distribution_strategy=off,runtime.num_replicas=2")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("has one replica, but --num_replicas is 2", wrong.stderr)


class Descriptions(unittest.TestCase):
    """What the command line says of itself: describe, --help, completion."""

    def test_every_plain_flag_has_the_meaning_and_the_default_of_its_key(self):
        code, out, err = cohort("describe")
        self.assertEqual(code, 0, err)
        described = json.loads(out)
        self.assertEqual(set(described["commands"]), {"checkpoint", "compile", "describe", "devices", "export", "launch", "report", "run", "train"})
        flags = {name: flag for flag in described["commands"]["train"] for name in flag["names"]}
        keys = [key for key in described["keys"] if key["flag"]]
        self.assertGreater(len(keys), 15)
        for key in keys:
            flag = flags[key["flag"]]
            self.assertTrue(flag["meaning"].startswith(key["meaning"]), key)
            self.assertIn(flag["default"], ("", key["default"].strip('"')))
        staleness = next(key for key in keys if key["path"] == "runtime.staleness")
        self.assertEqual((staleness["type"], staleness["default"], staleness["flag"]), ("integer", "4", "--staleness"))
        epochs = next(key for key in keys if key["flag"] == "--epochs")
        self.assertEqual((epochs["path"], epochs["bounds"]), ("trainer.train_epochs", [">= 0"]))

    def test_help_has_every_command(self):
        out = cohort("--help")[1]
        for command in json.loads(cohort("describe")[1])["commands"]:
            self.assertRegex(out, rf"\n  {command} ")

    def test_the_version_is_that_of_the_headers_and_of_the_project(self):
        root = pathlib.Path(__file__).parents[2]
        header = (root / "include/cohort/version.h").read_text(encoding="utf-8")
        parts = [re.search(rf"#define COHORT_VERSION_{part} (\d+)\n", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
        version = ".".join(parts)
        self.assertIn(f'#define COHORT_VERSION "{version}"\n', header)
        self.assertIn(f"project(cohort VERSION {version} ", (root / "CMakeLists.txt").read_text(encoding="utf-8"))
        code, out, err = cohort("--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, rf"^cohort {version}, LibTorch \d+\.\d+")

    def completions(self, *words):
        script = pathlib.Path(__file__).parents[2] / "tools" / "cohort" / "completion.bash"
        line = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cohort; printf "%s\\n" "${{COMPREPLY[@]}}"'
        environment = {**os.environ, "PATH": f"{os.path.dirname(COHORT)}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", line, "bash", "cohort", *words], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.split()

    def test_completion(self):
        self.assertEqual(self.completions("tr"), ["train"])
        self.assertEqual(self.completions("train", "--num_rep"), ["--num_replicas"])
        self.assertEqual(self.completions("train", "--params_override", "=", "runtime.stale"), ["runtime.staleness="])
        self.assertEqual(self.completions("train", "--experiment", "=", "mnist_mlp", "--gin_param", "=", "trainer.train_e"), ["trainer.train_epochs="])


class Runs(unittest.TestCase):
    def test_devices(self):
        code, out, _ = cohort("devices")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"/physical_device:CPU:0  memory [0-9.]+ GiB, available [0-9.]+ GiB")

    def test_train_then_evaluate(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = cohort("train", "--experiment=mnist_mlp", "--num_replicas=2", f"--model_dir={folder}", "--epochs=1")
            self.assertEqual(code, 0, err)
            code, out, err = cohort("train", "--experiment=mnist_mlp", "--mode=eval", "--distribution_strategy=off", f"--model_dir={folder}")
            self.assertEqual(code, 0, err)
            lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["mode"] for line in lines], ["train", "eval", "eval"])
            self.assertAlmostEqual(lines[1]["accuracy"], lines[2]["accuracy"], places=6)
            self.assertGreater(lines[1]["accuracy"], 0.8)
            for key in ("step", "epoch", "loss", "examples_per_second"):
                self.assertIn(key, lines[0])
            for damaged in (*pathlib.Path(folder).glob("ckpt-*/model.safetensors"), pathlib.Path(folder) / "model.safetensors"):
                damaged.write_bytes(damaged.read_bytes()[:1000])
            code, out, err = cohort("train", "--experiment=mnist_mlp", "--mode=eval", f"--model_dir={folder}")
            self.assertEqual(code, 1)
            self.assertIn("model.safetensors", err)

    def test_the_same_seed_gives_the_same_weights_and_another_strategy_the_same_accuracy(self):
        weights, accuracy = [], []
        for flags in (["--num_replicas=2"], ["--num_replicas=2"], ["--distribution_strategy=one_device"],
                      ["--distribution_strategy=central_storage", "--num_replicas=2"]):
            with tempfile.TemporaryDirectory() as folder:
                code, _, err = cohort("train", "--experiment=mnist_mlp", f"--model_dir={folder}", "--epochs=1", "--seed=3", *flags)
                self.assertEqual(code, 0, err)
                weights.append((pathlib.Path(folder) / "model.safetensors").read_bytes())
                accuracy.append(json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[1])["accuracy"])
        self.assertEqual(weights[0], weights[1])
        for value in accuracy[1:]:
            self.assertAlmostEqual(value, accuracy[0], delta=0.02)

    def test_a_second_run_in_the_same_folder_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder, "run")
            command = ["train", "--experiment=mnist_mlp", f"--model_dir={run}"]
            with subprocess.Popen([COHORT, *command, "--epochs=100000", "--save_freq=50"], stdout=subprocess.DEVNULL) as first:
                self.addCleanup(first.kill)
                end = time.monotonic() + 120
                while not list(run.glob("ckpt-*")):
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                code, _, err = cohort(*command, "--train_steps=1", "--seed=77")
                self.assertEqual(code, 1, err)
                self.assertIn(f"is written by pid {first.pid} on ", err)
                self.assertNotIn("77", (run / "params.yaml").read_text(encoding="utf-8"))
                self.assertEqual(cohort(*command, "--mode=eval")[0], 0)
                self.assertIsNone(first.poll())
                first.kill()
            code, out, err = cohort(*command, "--train_steps=1")
            self.assertEqual(code, 0, out + err)
            self.assertFalse((run / ".writer").exists())

    @unittest.skipUnless(os.path.isdir(os.environ["COHORT_TEST_DATA"] + "/mnist"), "the real MNIST is not here")
    def test_real_mnist(self):
        with tempfile.TemporaryDirectory() as folder:
            code, _, err = cohort("train", "--experiment=mnist_mlp", "--num_replicas=2", f"--model_dir={folder}",
                                  "--data_dir=" + os.environ["COHORT_TEST_DATA"] + "/mnist", "--epochs=5", "--batch_size=128")
            self.assertEqual(code, 0, err)
            lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
            self.assertGreaterEqual(json.loads(lines[-1])["accuracy"], 0.977)


if __name__ == "__main__":
    unittest.main()
