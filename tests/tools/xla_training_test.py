"""cohort train on XLA's plugin for CPUs: what MNIST comes to, runs that are killed, and runs that go on under other strategies."""
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

COHORT = os.environ["COHORT"]
PLUGIN = pathlib.Path(os.environ["PLUGINS"], "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
QUICK = os.environ["QUICK_XLA_FLAGS"]
MNIST = pathlib.Path(os.environ["COHORT_TEST_DATA"], "mnist")
TPU = ["--distribution_strategy=tpu", "--tpu=local", f"--xla_plugin={PLUGIN}"]


def command(folder, steps, *flags):
    return [COHORT, "train", "--experiment=mnist_mlp", f"--model_dir={folder}", f"--train_steps={steps}", *map(str, flags)]


def weights_of(folder):
    """The bytes of each tensor of model.safetensors."""
    whole = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:begin])
    header.pop("__metadata__", None)
    return {name: whole[begin + at["data_offsets"][0]:begin + at["data_offsets"][1]] for name, at in header.items()}


@unittest.skipUnless(PLUGIN.is_file(), "XLA's plugin for CPUs is not here; scripts/install-deps.sh xla brings it")
class Training(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def train(self, folder, steps, *flags, xla_flags=QUICK):
        done = subprocess.run(command(folder, steps, *flags), capture_output=True, text=True, check=False, timeout=200,
                              env=os.environ | {"XLA_FLAGS": xla_flags})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    @unittest.skipUnless(MNIST.is_dir(), "MNIST is not in ../shared/data")
    def test_mnist_on_eight_devices(self):
        out = self.train(self.folder / "run", 468, *TPU, "--num_replicas=8", f"--data_dir={MNIST}", "--mode=train_and_post_eval", xla_flags="")
        self.assertIn("8 replica(s)", out)
        self.assertGreaterEqual(float(out.rsplit("accuracy: ", 1)[1].split()[0]), 0.955)

    def test_killed_at_any_moment_it_ends_with_the_same_bits(self):
        flags = [*TPU, "--num_replicas=4", "--batch_size=32", "--params_override=trainer.checkpoint_interval=21,trainer.steps_per_loop=7"]
        begin = time.monotonic()
        self.train(self.folder / "whole", 126, *flags)
        length = time.monotonic() - begin
        draw, kills = random.Random(3), 0
        for _ in range(20):
            run = command(self.folder / "cut", 126, *flags)
            with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"XLA_FLAGS": QUICK}) as process:
                try:
                    code = process.wait(timeout=draw.uniform(0.4, 0.95) * length if kills < 2 else 200)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    continue
            self.assertEqual(code, 0)
            if kills >= 2:
                break
            (self.folder / "cut").rename(self.folder / f"ended{length}")  # the machine is faster than it was
            length /= 2
        self.assertEqual(kills, 2)
        self.assertEqual(weights_of(self.folder / "whole"), weights_of(self.folder / "cut"))

    def test_a_checkpoint_goes_on_under_mirrored_and_back(self):
        strategies = (["--distribution_strategy=mirrored", "--num_replicas=2"], [*TPU, "--num_replicas=2"])
        common = ["--batch_size=32", "--params_override=trainer.checkpoint_interval=20"]
        losses = []
        for order in ((1, 0, 1), (0, 0, 0)):
            run = self.folder / "".join(map(str, order))
            for i, which in enumerate(order):
                out = self.train(run, 20 * (i + 1), *strategies[which], *common)
                if i > 0:
                    self.assertIn(f"goes on with the run that was interrupted after step {20 * i};", out)
            last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
            self.assertEqual(last["step"], 60)
            losses.append(last["loss"])
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-3 * losses[1])  # the steps are the same but for rounding


if __name__ == "__main__":
    unittest.main()
