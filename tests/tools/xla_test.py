"""cohort devices and cohort compile with plugins of XLA: the tests' own one, and libtpu where it is."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]
FAKE = os.environ["FAKE_PLUGIN"]
LIBTPU = pathlib.Path(os.environ["PLUGINS"], "libtpu/libtpu.so")
STEP = """module @step attributes {mhlo.num_replicas = 4 : i32} {
  func.func public @main(%w: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<1024xf32>) -> tensor<1024xf32> {
    %s = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %t = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %t : tensor<f32>
    }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<1024xf32>) -> tensor<1024xf32>
    %v = stablehlo.add %w, %s : tensor<1024xf32>
    return %v : tensor<1024xf32>
  }
}
"""


def cohort(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH")}
    done = subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300, env={**kept, **environment})
    return done.returncode, done.stdout, done.stderr


class Devices(unittest.TestCase):
    def test_plugins_are_listed_without_being_loaded(self):
        code, out, err = cohort("devices", PJRT_NAMES_AND_LIBRARY_PATHS=f"mine:{__file__}")  # no plugin could be loaded from there
        self.assertEqual(code, 0, err)
        self.assertIn(f"plugin    mine  {__file__}, named by PJRT_NAMES_AND_LIBRARY_PATHS; --xla_plugin=mine opens its devices", out)

    def test_a_plugin_that_is_named_is_opened(self):
        for arguments, environment in ((f"--xla_plugin={FAKE}", {}), ("--xla_plugin=mine", {"PJRT_NAMES_AND_LIBRARY_PATHS": f"mine:{FAKE}"})):
            code, out, err = cohort("devices", arguments, **environment)
            self.assertEqual(code, 0, err)
            self.assertIn(f"{FAKE}, PJRT 0.81\n", out)
            self.assertIn("xla       1  Fake v1  coordinates [1,0,0], core 1  memory 1.0 GiB\n", out)

    def test_a_topology_is_listed(self):
        code, out, err = cohort("devices", f"--xla_plugin={FAKE}", "--tpu_topology=fake:2x1")
        self.assertEqual(code, 0, err)
        self.assertIn("xla       0  Fake v1  coordinates [0,0,0], core 1  memory 1.0 GiB\n", out)
        code, _, err = cohort("devices", f"--xla_plugin={FAKE}", "--tpu_topology=none:2x2")
        self.assertEqual(code, 2)
        self.assertIn('PJRT_TopologyDescription_Create of "none:2x2" failed (INVALID_ARGUMENT): there is no such topology', err)

    def test_what_is_wrong_is_named(self):
        for arguments, message in ((["--xla_plugin=/none.so"], '--xla_plugin names "/none.so", which is no file'),
                                   (["--xla_plugin=abacus"], "--xla_plugin=abacus: "),
                                   ([f"--xla_plugin={__file__}"], "cannot be loaded"),
                                   ([f"--xla_plugin={FAKE}", "--xla_options=count"], '"count" is no name=value')):
            code, _, err = cohort("devices", *arguments)
            self.assertEqual(code, 2, err)
            self.assertIn(message, err)


class Compile(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        self.program = self.folder / "step.mlir"

    def compile(self, *flags, text="module"):
        self.program.write_text(text)
        return cohort("compile", f"--mlir={self.program}", f"--xla_plugin={FAKE}", "--tpu_topology=fake:2x1", *flags)

    def test_prints_and_saves(self):
        code, out, err = self.compile(f"--save={self.folder}/saved")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"program     fake: 1 replica\(s\) of 1 partition\(s\); compiled in [0-9.]+ s\n")
        self.assertIn("devices     fake:2x1, 2 of Fake v1; the figures are those of one\nmemory      not told\n", out)
        self.assertIn("unknown floating-point operations", out)
        self.assertEqual((self.folder / "saved").read_text(), "serialized fake")

    def test_a_program_that_does_not_fit(self):
        code, out, err = self.compile(text="// peak 1073741824")
        self.assertEqual(code, 0, err)
        self.assertIn("memory      1.0 GiB of 1.0 GiB, it fits;", out)
        code, out, _ = self.compile(text="// peak 1610612736")
        self.assertEqual(code, 1)
        self.assertIn("memory      1.5 GiB of 1.0 GiB, it DOES NOT FIT;", out)

    def test_keeps_programs(self):
        cache = f"--compilation_cache={self.folder}/cache"
        self.assertIn("; compiled in", self.compile(cache)[1])
        self.assertIn("; kept from an earlier compilation of", self.compile(cache)[1])
        self.assertIn("; compiled in", self.compile(cache, text="other")[1])

    def compile_experiment(self, *flags, batch_size=64):
        return cohort("compile", "--experiment=mnist_mlp", f"--batch_size={batch_size}", f"--xla_plugin={FAKE}", "--tpu_topology=fake:2x1", *flags)

    def test_a_step_of_an_experiment(self):
        step = self.folder / "step.mlir"
        code, out, err = self.compile_experiment(f"--save_mlir={step}")
        self.assertEqual(code, 0, err)
        self.assertIn("experiment  mnist_mlp, a global batch of 64, 32 a replica\n", out)
        text = step.read_text()
        head, arguments = text.splitlines()[:2]
        self.assertIn("module @train_step attributes {mhlo.num_replicas = 2 : i32", head)
        self.assertIn("tensor<32x28x28xf32>", arguments)
        self.assertEqual(text.count('"stablehlo.all_reduce"'), 6)  # the weights and biases of three layers
        # Weights, both moments of Adam and the states of loss and accuracy are written where they were read.
        self.assertEqual(text.count("tf.aliasing_output"), 6 + 2 * 6 + 2)
        code, _, err = self.compile_experiment(f"--save_mlir={step}", "--num_replicas=1")
        self.assertEqual(code, 0, err)
        self.assertIn("tensor<64x28x28xf32>", step.read_text().splitlines()[1])

    def test_the_precision_of_a_step(self):
        step = self.folder / "step.mlir"
        for flags, wanted in (([], "DEFAULT"), (["--matmul_precision=highest"], "HIGHEST"),
                              (["--matmul_precision=highest", "--params_override=runtime.matmul_precision=high"], "HIGH")):
            code, _, err = self.compile_experiment(f"--save_mlir={step}", *flags)
            self.assertEqual(code, 0, err)
            self.assertEqual(set(re.findall("precision = .*?]", step.read_text())), {f"precision = [{wanted}, {wanted}]"})

    def test_a_step_that_is_divided_among_cores(self):
        step = self.folder / "step.mlir"
        code, out, err = self.compile_experiment(f"--save_mlir={step}", "--params_override=task.train_input_partition_dims=[1,2,1,1]")
        self.assertEqual(code, 0, err)
        self.assertIn("a global batch of 64, 64 a replica\n", out)
        text = step.read_text()
        self.assertIn("mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 2 : i32", text)
        self.assertIn('sdy.sharding_constraint %arg', text)
        self.assertIn('<@cores, [{}, {"core"}, {}]> : tensor<64x28x28xf32>', text)

    def test_a_loop_of_steps(self):
        step = self.folder / "step.mlir"
        code, out, err = self.compile_experiment(f"--save_mlir={step}", "--steps_per_loop=3")
        self.assertEqual(code, 0, err)
        self.assertIn("a global batch of 64, 32 a replica, 3 steps in a loop\n", out)
        text = step.read_text()
        self.assertEqual(text.count("stablehlo.while"), 1)
        self.assertIn("func.func private @step(", text)
        main = text.split("func.func public @main(")[1].split("->")[0]
        self.assertEqual(main.count("tensor<32x28x28xf32>"), 3)  # a batch for each step
        self.assertEqual(main.count("tensor<784x256xf32>") + main.count("tensor<256x784xf32>"), 3)  # a weight and its moments once

    def test_a_step_with_a_loss_scale(self):
        step = pathlib.Path(self.folder) / "scaled.mlir"
        code, out, err = self.compile_experiment(f"--save_mlir={step}", "--params_override=runtime.loss_scale=dynamic")
        self.assertEqual(code, 0, out + err)
        text = step.read_text()
        self.assertIn("all_reduce", text)
        self.assertEqual(text.count(": tensor<256x784xi1>, tensor<256x784xf32>"), 3)  # a weight and its moments, or what they were

    def test_an_experiment_that_cannot_be_compiled(self):
        for flags, size, message in (([], 63, "a global batch of 63 is for 2 replica(s)"),
                                     (["--params_override=runtime.loss_scale=dynamic,trainer.train_tf_function=false"], 64, "it is no single program"),
                                     (["--params_override=runtime.loss_scale=dynamic", "--steps_per_loop=3"], 64, "they are no loop"),
                                     (["--params_override=runtime.num_replicas=4"], 64, "has no use for what was set:\n  runtime.num_replicas is 4"),
                                     (["--gin_param=task.train_data.aug_rand_hflip=False"], 64, "task.train_data.aug_rand_hflip is false (--gin_param)"),
                                     (["--matmul_precision=low"], 64, "matmul_precision is low, wanted default, high or highest"),
                                     (["--num_partitions=2"], 64, "--num_partitions=2, but the step of the experiment is divided in 1 by"),
                                     (["--params_override=task.train_input_partition_dims=[1,1,1,2]"], 64, "wanted numbers of 1 or more for batch"),
                                     (["--params_override=task.eval_input_partition_dims=[2,1]"], 64, "task.eval_input_partition_dims is [2, 1] (--params"),
                                     (["--steps_per_loop=0"], 64, "a loop of 0 steps, wanted 1 or more"),
                                     ([f"--mlir={__file__}"], 64, "both --mlir and --experiment are given")):
            code, _, err = self.compile_experiment(*flags, batch_size=size)
            self.assertEqual(code, 2, err)
            self.assertIn(message, err)

    def test_what_is_wrong_is_named(self):
        for arguments, message in (([], "nothing to compile"), (["--batch_size=8", "--mlir=x"], "but no --experiment"),
                                   ([f"--mlir={__file__}"], "--tpu_topology is missing"),
                                   (["--mlir=/none", "--tpu_topology=x"], "--mlir=/none cannot be opened"),
                                   (["--mlir=/none", "--steps_per_loop=2"], "the text of --mlir says what runs how often"),
                                   (["--mlir=/none", "--matmul_precision=high"], "the text of --mlir says how it multiplies")):
            code, _, err = cohort("compile", *arguments)
            self.assertEqual(code, 2, err)
            self.assertIn(message, err)
        code, _, err = self.compile(text=STEP)
        self.assertEqual(code, 2)
        self.assertIn("the program says mhlo.num_replicas = 4, but the options of its compilation 1", err)
        code, _, err = self.compile("--num_replicas=4", text=STEP)
        self.assertEqual(code, 2)
        self.assertIn('does not fit the topology "fake:2x1", which has 2 device(s)', err)


@unittest.skipUnless(LIBTPU.is_file(), "libtpu is not here; scripts/install-deps.sh tpu brings it")
class Tpu(unittest.TestCase):
    def test_compiles_for_a_tpu_that_is_not_here(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "step.mlir")
            program.write_text(STEP)
            code, out, err = cohort("compile", f"--mlir={program}", f"--xla_plugin={LIBTPU}", "--tpu_topology=v5e:2x2", "--num_replicas=4",
                                    f"--save={folder}/saved")
            self.assertEqual(code, 0, err)
            self.assertIn("program     step: 4 replica(s) of 1 partition(s); compiled in", out)
            self.assertIn("devices     v5e:2x2, 4 of TPU v5 lite", out)
            self.assertRegex(out, r"memory      [0-9.]+ [KM]iB of 15.7 GiB, it fits")
            self.assertIn("collective  all-reduce 1, 4.0 KiB come to each device", out)
            self.assertGreater(pathlib.Path(folder, "saved").stat().st_size, 1000)

    def test_compiles_the_steps_of_experiments(self):
        for experiment in ("mnist_mlp", "mnist_cnn"):
            code, out, err = cohort("compile", f"--experiment={experiment}", "--batch_size=64", f"--xla_plugin={LIBTPU}", "--tpu_topology=v5e:2x2")
            self.assertEqual(code, 0, err)
            self.assertIn(f"experiment  {experiment}, a global batch of 64, 16 a replica", out)
            self.assertRegex(out, r"memory      [0-9.]+ MiB of 15.7 GiB, it fits")
            self.assertRegex(out, r"collective  all-reduce 1, [0-9.]+ [KM]iB come to each device")

    def test_compiles_a_loop_of_steps(self):
        code, out, err = cohort("compile", "--experiment=mnist_mlp", "--batch_size=64", f"--xla_plugin={LIBTPU}", "--tpu_topology=v5e:2x2",
                                "--steps_per_loop=7")
        self.assertEqual(code, 0, err)
        self.assertIn("7 steps in a loop", out)
        self.assertRegex(out, r"operations .* while 1,")
        self.assertRegex(out, r"collective  all-reduce 1, [0-9.]+ [KM]iB come to each device")
