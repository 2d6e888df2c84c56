"""cohort train as the Model Garden's articles call it: experiments, files, flags, modes; and cohort report."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from PIL import Image

COHORT = os.environ["COHORT"]


def cohort(*arguments, env=None):
    done = subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=250,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def records_of(folder):
    return [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


def weights_of(folder):
    """The bytes of each tensor of model.safetensors."""
    whole = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:begin])
    header.pop("__metadata__", None)
    return {name: whole[begin + at["data_offsets"][0]:begin + at["data_offsets"][1]] for name, at in header.items()}


def make_photographs(folder, count=20):
    """Two classes that differ in colour, as JPEG files of different sizes."""
    draw = random.Random(1)
    for name, strong in (("cat", 0), ("dog", 2)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = (draw.randint(40, 70), draw.randint(40, 70))
            colour = [draw.randint(0, 90) for _ in range(3)]
            colour[strong] += 150
            Image.new("RGB", size, tuple(colour)).save(folder / name / f"{i}.jpg", quality=90)


SMALL = "task.model.num_classes=2,task.model.input_size=[32,32,3],trainer.train_steps=3,trainer.checkpoint_interval=2"
# With a small backbone, for tests that are about something else: checkpoints of 1 MB instead of 100.
BACKBONE = "task.model.backbone.type=resnet_cifar,task.model.backbone.resnet_cifar.model_id=14"
LITTLE = f"{SMALL},{BACKBONE}"


class Experiments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        make_photographs(cls.folder / "photographs")

    def model_dir(self):
        return tempfile.mkdtemp(dir=self.folder)

    def train(self, experiment, *flags, override=SMALL, env=None, folder=None):
        folder = folder or self.model_dir()
        code, out, err = cohort("train", f"--experiment={experiment}", f"--data_dir={self.folder}/photographs",
                                f"--model_dir={folder}", "--batch_size=8", f"--params_override={override}", *flags, env=env)
        self.assertEqual(code, 0, out + err)
        return folder, out

    def test_models_on_replicas(self):
        for experiment in ("resnet18", "efficientnet_b0", "vit_tiny"):
            with self.subTest(experiment):
                folder, out = self.train(experiment, "--distribution_strategy=mirrored", "--num_gpus=0", "--num_replicas=2",
                                         "--mode=train_and_eval")
                self.assertIn(f"{experiment} under mirrored, 2 replica(s)", out)
                last = records_of(folder)[-1]
                self.assertEqual((last["mode"], last["step"]), ("eval", 3))
                self.assertIn("accuracy", last)

    def test_gpus_that_are_not_there(self):
        _, devices, _ = cohort("devices")
        for gpus in (1, 4):
            if f"GPU:{gpus - 1}" in devices:
                continue
            code, _, err = cohort("train", "--experiment=vit_base", "--num_gpus", gpus, f"--model_dir={self.folder}/gpu",
                                  f"--data_dir={self.folder}/photographs", "--params_override=trainer.train_steps=1")
            self.assertEqual(code, 2, err)
            self.assertRegex(err, r"there is no /device:GPU:\d here")

    def test_workers_by_tf_config(self):
        with open(self.folder / "two.gin", "w", encoding="utf-8") as gin:
            gin.write("STEPS = 2  # enough\ntrainer.train_steps = %STEPS\n")
        launch = [COHORT, "launch", "--nproc=2", "--", COHORT, "train", "--experiment=efficientnet_b0",
                  "--distribution_strategy=multi_worker_mirrored", f"--data_dir={self.folder}/photographs", "--batch_size=8",
                  f"--model_dir={self.folder}/workers", f"--gin_file={self.folder}/two.gin", "--gin_param=train_data.aug_rand_hflip = False",
                  f"--params_override={SMALL}", "--mode=train_and_eval"]
        done = subprocess.run(launch, capture_output=True, text=True, check=False, timeout=250)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(records_of(self.folder / "workers")[-1]["step"], 2)
        self.assertIn("aug_rand_hflip: false", (self.folder / "workers/params.yaml").read_text())
        self.assertRegex(done.stdout, r"trainer.train_steps: 2  \(.*two.gin\)")

    def test_layers_of_the_configuration(self):
        (self.folder / "a.yaml").write_text("trainer:\n  train_steps: 9\n  validation_interval: 2\nruntime: {num_replicas: 2}\n")
        (self.folder / "b.json").write_text('{"trainer": {"validation_interval": 3}}')
        override = f"trainer.train_steps=4,task.model.num_classes=2,task.model.input_size=[32,32,3],{BACKBONE}"
        folder, out = self.train("resnet18", f"--config_file={self.folder}/a.yaml", f"--config_file={self.folder}/b.json",
                                 "--num_replicas=1", "--gin_param=trainer.max_to_keep = 1", override=override)
        self.assertIn("under mirrored, 1 replica(s)", out)
        self.assertRegex(out, r"validation_interval: 3  \(.*b.json, line 1\)")
        self.assertRegex(out, r"train_steps: 4  \(--params_override\)")
        self.assertEqual([r["step"] for r in records_of(folder) if r["mode"] == "eval"], [3, 4])
        self.assertEqual(len(list(pathlib.Path(folder).glob("ckpt-*"))), 1)
        again = self.model_dir()
        code, out, err = cohort("train", "--experiment=resnet18", f"--config_file={folder}/params.yaml", f"--model_dir={again}")
        self.assertEqual(code, 0, out + err)
        self.assertEqual((pathlib.Path(folder) / "params.yaml").read_text(), (pathlib.Path(again) / "params.yaml").read_text())
        self.assertEqual((pathlib.Path(folder) / "model.safetensors").read_bytes(),
                         (pathlib.Path(again) / "model.safetensors").read_bytes(), "the written configuration is the whole one")

    def test_modes(self):
        folder, _ = self.train("resnet18", "--mode=train_and_post_eval", override=LITTLE)
        self.assertEqual([r["mode"] for r in records_of(folder)], ["train", "eval"])
        for mode, evaluations in (("eval", 1), ("continuous_eval", 1)):
            before = len(records_of(folder))
            code, out, err = cohort("train", "--experiment=resnet18", f"--mode={mode}", f"--model_dir={folder}",
                                    f"--data_dir={self.folder}/photographs", f"--params_override={LITTLE}", "--batch_size=8")
            self.assertEqual(code, 0, out + err)
            self.assertEqual(len(records_of(folder)) - before, evaluations)
        folder, _ = self.train("resnet18", "--mode=continuous_train_and_eval", override=LITTLE)
        self.assertEqual([r["step"] for r in records_of(folder) if r["mode"] == "eval"], [2, 3])

    def test_a_frozen_backbone_is_thawed(self):
        base, _ = self.train("resnet18", "--mode=train", override=LITTLE)
        override = LITTLE + f",task.init_checkpoint={base}/model.safetensors,task.init_checkpoint_modules=backbone,task.freeze_backbone_steps=2"
        rate = "--gin_param=trainer.optimizer_config.learning_rate.cosine.decay_steps = 3"
        no_warmup = "--gin_param=trainer.optimizer_config.warmup.type = ''"
        whole, _ = self.train("resnet18", rate, no_warmup, override=override)
        cut, left = self.model_dir(), []
        for steps in (2, 3):  # left at the very step, and gone on with
            code, out, err = cohort("train", "--experiment=resnet18", f"--data_dir={self.folder}/photographs", f"--model_dir={cut}",
                                    "--batch_size=8", f"--params_override={override}", f"--gin_param=trainer.train_steps = {steps}",
                                    rate, no_warmup)
            self.assertEqual(code, 0, out + err)
            left.append(weights_of(cut))
        given = weights_of(base)
        backbone = [name for name in given if not name.startswith("fc.") and name.endswith("weight")]
        self.assertGreater(len(backbone), 20)
        for name in backbone:
            self.assertEqual(left[0][name], given[name], name)
        self.assertNotEqual(left[0]["fc.weight"], given["fc.weight"])
        self.assertNotEqual(left[1]["conv1.weight"], given["conv1.weight"])
        self.assertEqual(left[1], weights_of(whole))
        (pathlib.Path(cut) / "ckpt-3/model.safetensors").write_bytes(b"damaged")  # what is whole is of the stage before
        _, out = self.train("resnet18", rate, no_warmup, override=override, folder=cut)
        self.assertIn("goes on with the run that was interrupted after step 2", out)
        self.assertEqual(left[1], weights_of(cut))

    def test_with_parameter_servers_nothing_thaws(self):
        launch = [COHORT, "launch", "--ps=1", "--workers=1", "--", COHORT, "train", "--experiment=resnet18", "--batch_size=8",
                  "--distribution_strategy=parameter_server", f"--data_dir={self.folder}/photographs", f"--model_dir={self.folder}/servers"]
        done = subprocess.run([*launch, f"--params_override={LITTLE},task.freeze_backbone_steps=2"], capture_output=True, text=True, check=False, timeout=250)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("the training changes after step 2 and the strategy is parameter_server", done.stdout + done.stderr)

    def test_best_checkpoint_and_summaries(self):
        folder, _ = self.train("resnet18", override=LITTLE + ",trainer.validation_interval=1,trainer.best_checkpoint_export_subdir=best,"
                               "trainer.best_checkpoint_eval_metric=accuracy,trainer.summary_histograms=true,trainer.summary_images=2")
        info = json.loads((pathlib.Path(folder) / "best/info.json").read_text())
        best = max(r["accuracy"] for r in records_of(folder) if r["mode"] == "eval")
        self.assertEqual(info["accuracy"], best)
        self.assertEqual(len(list((pathlib.Path(folder) / "best").glob("best_ckpt-*.safetensors"))), 1)
        for part in ("train", "validation"):
            self.assertTrue(list((pathlib.Path(folder) / part).glob("events.out.tfevents.*")))

    def test_precision(self):
        _, out = self.train("resnet18", "--mixed_precision=bfloat16")
        self.assertIn("runtime.mixed_precision_dtype: \"bfloat16\"", out)
        code, _, err = cohort("train", "--experiment=resnet18", "--mixed_precision=float16", f"--data_dir={self.folder}/photographs",
                              f"--model_dir={self.folder}/half", f"--params_override={SMALL}", "--batch_size=8")
        self.assertEqual(code, 2, err)
        self.assertIn("does not compute mixed_float16 on the device cpu", err)

    def test_killed_at_any_moment_it_ends_with_the_same_bits(self):
        flags = ["train", "--experiment=resnet18", f"--data_dir={self.folder}/photographs", "--batch_size=8", "--num_replicas=2",
                 "--params_override=" + SMALL + ",trainer.train_steps=12,trainer.validation_interval=5"]
        whole, cut = self.model_dir(), self.model_dir()
        begin = time.monotonic()
        code, out, err = cohort(*flags, f"--model_dir={whole}")
        self.assertEqual(code, 0, out + err)
        length = time.monotonic() - begin
        draw = random.Random(2)
        kills = 0
        for _ in range(30):
            with subprocess.Popen([COHORT, *flags, f"--model_dir={cut}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                try:
                    code = process.wait(timeout=draw.uniform(0.4, 0.9) * length if kills < 4 else 200)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    continue
            self.assertEqual(code, 0)
            if kills > 0:
                break
            shutil.rmtree(cut)  # the machine is faster than it was
            length /= 2
        self.assertGreater(kills, 0)
        self.assertEqual((pathlib.Path(whole) / "model.safetensors").read_bytes(), (pathlib.Path(cut) / "model.safetensors").read_bytes())

    def test_wrong_configurations(self):
        (self.folder / "bad.yaml").write_text("trainer:\n  trian_steps: 9\n")
        for message, flags in (
                ("bad.yaml, line 2: there is no key trainer.trian_steps; did you mean trainer.train_steps?", [f"--config_file={self.folder}/bad.yaml"]),
                ("there is no key task.modle.num_classes", ["--params_override=task.modle.num_classes=2"]),
                ("task.model.num_classes is \"two\", wanted integer", ["--params_override=task.model.num_classes=two"]),
                ("none.gin: cannot be opened", ["--gin_file=none.gin"]),
                ("would run code", ["--gin_param=import os"]),
                ("runtime.enable_xla is true, but a replica of mirrored is on cpu", [f"--data_dir={self.folder}/photographs", "--batch_size=8", "--params_override=runtime.enable_xla=true"]),
                ("runtime.use_cuda_graph is true, but a replica of mirrored is on cpu, which has no graphs", [f"--data_dir={self.folder}/photographs", "--batch_size=8", "--use_cuda_graph=true"]),
                ("has 2 classes, but task.model.num_classes is 1", [f"--data_dir={self.folder}/photographs", "--params_override=task.model.num_classes=1"]),
                ("--data_dir (task.train_data.input_path) is empty", []),
                ("is not a folder", ["--data_dir=/there/is/none"]),
                ("resnet.model_id is 19, wanted one of 18, 34", [f"--data_dir={self.folder}/photographs", "--batch_size=8", "--params_override=task.model.backbone.resnet.model_id=19"]),
        ):
            code, out, err = cohort("train", "--experiment=resnet18", f"--model_dir={self.folder}/wrong", *flags)
            self.assertEqual(code, 2, out + err)
            self.assertIn(message, err)

    def test_help_of_an_experiment(self):
        code, out, _ = cohort("train", "--help_experiment=vit_base")
        self.assertEqual(code, 0)
        self.assertIn("trainer.optimizer_config.optimizer.adamw.weight_decay  (number, default 0.1)\n    decoupled decay", out)
        self.assertGreater(out.count("\n"), 250)

    def test_a_damaged_photograph(self):
        spoiled = self.folder / "spoiled"
        shutil.copytree(self.folder / "photographs", spoiled)
        for photograph in sorted((spoiled / "dog").iterdir())[:2]:
            photograph.write_bytes(photograph.read_bytes()[:300])
        flags = ["train", "--experiment=resnet18", f"--data_dir={spoiled}", "--batch_size=8", f"--model_dir={self.folder}/spoiled_run"]
        code, _, err = cohort(*flags, f"--params_override={LITTLE},task.train_data.held_out=0.1")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"spoiled/dog/\d+\.jpg")
        code, _, err = cohort(*flags, f"--params_override={LITTLE},task.train_data.skip_damaged=true")
        self.assertEqual(code, 0, err)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, rate in (("slow", "1e-4"), ("fast", "2e-3")):
            code, out, err = cohort("train", "--experiment=mnist_mlp", f"--model_dir={cls.folder}/{name}", "--epochs=2", "--num_replicas=2",
                                    f"--trace={cls.folder}/{name}.json",
                                    f"--params_override=trainer.optimizer_config.learning_rate.cosine.initial_learning_rate={rate}")
            assert code == 0, out + err
        code, out, err = cohort("report", cls.folder / "slow", cls.folder / "fast", f"--output={cls.folder}/report.html")
        assert code == 0, out + err
        cls.page = (cls.folder / "report.html").read_text()

    def test_the_page_holds_the_runs_and_needs_nothing_else(self):
        data = json.loads(re.search(r'id="data">(.*?)</script>', self.page, re.S)[1])
        self.assertEqual([len(run["records"]) for run in data], [4, 4])
        key = "trainer.optimizer_config.learning_rate.cosine.initial_learning_rate"
        self.assertEqual([float(run["params"][key]) for run in data], [1e-4, 2e-3])
        self.assertIn("compute", data[0]["timeline"]["threads"]["replica 1"])
        self.assertNotRegex(self.page, r'(src|href)="http')

    @unittest.skipUnless(shutil.which("chromium"), "there is no chromium")
    def test_a_browser_draws_it(self):
        done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={self.folder}/profile",
                               f"file://{self.folder}/report.html"], capture_output=True, text=True, check=False, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        # loss, accuracy, learning rate, examples per second; training and evaluation, but for the rate; two runs
        self.assertEqual(done.stdout.count('class="curve"'), 14)
        self.assertIn('class="differs"', done.stdout)
        self.assertIn('aria-label="learning_rate"', done.stdout)
        self.assertIn("replica 1", done.stdout)

    def test_the_trace_has_names_for_what_was_done(self):
        events = json.loads((self.folder / "slow.json").read_text())["traceEvents"]
        threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertLessEqual({"replica 0", "replica 1", "distributed input", "checkpoint writer"}, threads)
        spans = {(event["cat"], event["name"]) for event in events if event["ph"] == "X"}
        self.assertLessEqual({("compute", "forward"), ("compute", "backward"), ("communication", "meet the other replicas"),
                              ("input", "prepare a step"), ("checkpoint", "write")}, spans)

    def test_wrong_calls_and_half_lines(self):
        code, _, err = cohort("report", self.folder / "nothing", f"--output={self.folder}/x.html")
        self.assertEqual(code, 2)
        self.assertIn("is this the model_dir of a run?", err)
        half = self.folder / "half"
        half.mkdir()
        whole = (self.folder / "slow/metrics.jsonl").read_text()
        (half / "metrics.jsonl").write_text(whole + whole[:20])
        code, out, err = cohort("report", half, f"--output={self.folder}/x.html")
        self.assertEqual(code, 0, out + err)
        self.assertIn("line 5: this is no record", err)
        (half / "params.yaml").write_text("a: [1")
        code, _, err = cohort("report", half, f"--output={self.folder}/x.html")
        self.assertEqual(code, 1)
        self.assertIn("params.yaml, line", err)


if __name__ == "__main__":
    unittest.main()
