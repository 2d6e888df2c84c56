"""Training by several real processes: the same result as one, and what happens when one of them is lost."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from processes import free_port, free_ports, records_of

COHORT = os.environ["COHORT"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ["train", "--experiment=mnist_mlp", "--batch_size=96", "--seed=3"]
# Workers that share states send them also on one machine, where others add up gradients in common memory.
GLOO = ("--all_reduce_alg=gloo", "--sharding_stage=2")
MANY = "--distribution_strategy=multi_worker_mirrored"
OPEN_MPI = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
MPICH = shutil.which("mpiexec.mpich")
TORCHRUN_PYTHON = os.environ.get("COHORT_TORCHRUN_PYTHON", "/usr/bin/python3")
RAY_PYTHON = os.environ.get("COHORT_RAY_PYTHON", "python3")
# Kills a process as soon as there is a file; not by sleep, which has to be started each time, and comes late on a busy machine.
KILL_AT = ("import os, sys, time; [time.sleep(0.002) for _ in iter(lambda: os.path.exists(sys.argv[2]), True)]; "
           "os.kill(int(sys.argv[1]), 9)")
LOST = r"worker 0 in .*: worker 1 \(pid \d+ on .*\) is lost|worker 1 .*was killed|worker 1 .*signal 9"


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


class SameResult(unittest.TestCase):
    """Whoever starts the workers, and however many there are."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.alone = cls.run_and_read("alone", [COHORT], "--distribution_strategy=one_device")

    @classmethod
    def run_and_read(cls, name, prefix, *flags, environment=None):
        folder = pathlib.Path(cls.folder.name, name)
        command = [*prefix, *TRAIN, f"--model_dir={folder}", "--epochs=1", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env={**os.environ, **(environment or {})})
        assert done.returncode == 0, done.stdout + done.stderr
        return records_of(folder)[-1]

    def expect_same(self, result, delta=2e-3):
        self.assertEqual(result["step"], self.alone["step"])
        self.assertAlmostEqual(result["loss"], self.alone["loss"], delta=delta)
        self.assertAlmostEqual(result["accuracy"], self.alone["accuracy"], delta=delta)

    def test_launched(self):
        for workers, replicas, algorithm in ((2, 1, "auto"), (2, 2, "direct"), (4, 1, "tree")):
            with self.subTest(workers=workers, replicas=replicas, algorithm=algorithm):
                name = f"launched_{workers}_{replicas}"
                self.expect_same(self.run_and_read(name, [COHORT, "launch", f"--nproc={workers}", "--", COHORT], MANY, f"--num_replicas={replicas}",
                                                   f"--collective_algorithm={algorithm}"))

    def test_workers_of_different_algorithms(self):
        other = 'if [ $RANK = 1 ]; then set -- "$@" --collective_algorithm=tree; fi; exec "$@"'
        done = subprocess.run([COHORT, "launch", "--nproc=2", "--", "sh", "-c", other, "sh", COHORT, *TRAIN, MANY,
                               f"--model_dir={self.folder.name}/different"], capture_output=True, text=True, check=False, timeout=240)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r'the workers differ in algorithm: \S.* has "auto", \S.* has "tree"')

    def test_gradients_that_travel_as_bfloat16(self):
        # Workers that share states send messages, also on one machine.
        self.expect_same(self.run_and_read("bfloat16", [COHORT, "launch", "--nproc=2", "--", COHORT], MANY, "--sharding_stage=2",
                                           "--gradient_compression=bfloat16"), delta=5e-3)  # ten of the 2,000 examples

    @unittest.skipUnless(OPEN_MPI, "no mpirun of Open MPI here")
    def test_under_mpirun(self):
        self.expect_same(self.run_and_read("mpi", [OPEN_MPI, "--allow-run-as-root", "--oversubscribe", "-n", "2", COHORT], MANY))

    @unittest.skipUnless(MPICH, "no mpiexec of MPICH here")
    def test_under_mpiexec_of_mpich(self):
        # The build has the library of Open MPI, so MPI has no way between these processes.
        done = subprocess.run([MPICH, "-n", "2", COHORT, *TRAIN, MANY, "--insecure", f"--model_dir={self.folder.name}/mpich_alone"],
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"has started 2 processes, but MPI sees 1: this build has Open MPI.*export MASTER_ADDR and MASTER_PORT")
        leader = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        self.expect_same(self.run_and_read("mpich", [MPICH, "-n", "2", COHORT], MANY, "--insecure", "--all_reduce_alg=ring", environment=leader))

    @unittest.skipUnless(has(TORCHRUN_PYTHON, "torch.distributed.run"), f"{TORCHRUN_PYTHON} has no torch.distributed.run (COHORT_TORCHRUN_PYTHON)")
    def test_under_torchrun(self):
        agent = [TORCHRUN_PYTHON, "-m", "torch.distributed.run", "--no_python", f"--master_port={free_port()}", "--nproc_per_node=2", "--nnodes=1"]
        agent += ["--redirects=1", "--tee=1", f"--log_dir={self.folder.name}/torchrun_logs"]  # torch 1.13 does not know their defaults under Python 3.11
        self.expect_same(self.run_and_read("torchrun", [*agent, COHORT], MANY, "--insecure"))

    @unittest.skipUnless(has(RAY_PYTHON, "ray"), f"{RAY_PYTHON} has no ray (COHORT_RAY_PYTHON)")
    def test_under_ray(self):
        starter = [RAY_PYTHON, str(ROOT / "examples/ray/train.py"), "--workers=2", "--"]
        self.expect_same(self.run_and_read("ray", [*starter, COHORT], MANY))

    def test_collectives_of_gloo(self):
        for workers in (2, 4):
            with self.subTest(workers=workers):
                self.expect_same(self.run_and_read(f"gloo_{workers}", [COHORT, "launch", f"--nproc={workers}", "--insecure", "--", COHORT], MANY,
                                                   *GLOO))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_collectives_of_mpi(self):
        for workers in (2, 4):
            with self.subTest(workers=workers):
                self.expect_same(self.run_and_read(f"mpi_{workers}", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(workers), COHORT],
                                                   MANY, "--all_reduce_alg=mpi", "--sharding_stage=2"))

    def test_gloo_in_a_job_with_a_secret(self):
        done = subprocess.run([COHORT, "launch", "--nproc=2", "--", COHORT, *TRAIN, MANY, "--all_reduce_alg=gloo", f"--model_dir={self.folder.name}/secret"],
                              capture_output=True, text=True, check=False, timeout=240)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("[collective] gloo: this job has a secret or certificates", done.stdout + done.stderr)

    def test_by_hand(self):
        hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
        second = {"TF_CONFIG": json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 1}})}
        other = subprocess.Popen([COHORT, *TRAIN, MANY, "--epochs=1", f"--model_dir={self.folder.name}/second"],
                                 env={**os.environ, **second}, stdout=subprocess.PIPE, text=True)
        self.expect_same(self.run_and_read("first", [COHORT], MANY, f"--worker_hosts={','.join(hosts)}", "--task_index=0"))
        out, _ = other.communicate(timeout=120)
        self.assertEqual((other.returncode, out), (0, ""), "who is not the chief says nothing")
        self.assertEqual(list(pathlib.Path(self.folder.name, "second").iterdir()), [], "and writes nothing")


class Losses(unittest.TestCase):
    """Workers that are gone are named within seconds, and nobody waits for them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
        self.workers = []
        self.logs = [pathlib.Path(folder.name, f"{i}.log") for i in range(3)]
        self.folder = folder.name

    def start(self, index, *flags):
        with self.logs[index].open("w", encoding="utf-8") as log:
            worker = subprocess.Popen([COHORT, *TRAIN, MANY, "--epochs=1000", f"--model_dir={self.folder}/{index}",
                                       f"--worker_hosts={self.hosts}", f"--task_index={index}", *flags], stdout=log, stderr=log)
        self.workers.append(worker)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        timer = threading.Timer(400, worker.kill)  # so that no failure hangs the test
        timer.start()
        self.addCleanup(timer.cancel)

    def train(self, *flags):
        for i in range(3):
            self.start(i, *flags)
        self.wait_for_training()

    def wait_for_training(self):
        for _ in range(1800):
            if "Epoch 2/" in self.logs[0].read_text(encoding="utf-8"):
                return
            self.assertIsNone(self.workers[0].poll(), self.logs[0].read_text(encoding="utf-8"))
            time.sleep(0.1)
        self.fail("no training: " + self.logs[0].read_text(encoding="utf-8"))

    def expect_named(self, survivors, lost, seconds):
        begin = time.monotonic()
        for index in survivors:
            self.assertEqual(self.workers[index].wait(timeout=60), 1)
            self.assertLess(time.monotonic() - begin, seconds)
            self.assertRegex(self.logs[index].read_text(encoding="utf-8"), lost)

    def expect_the_killed_to_be_named(self, *flags):
        self.train(*flags)
        self.workers[1].kill()
        self.expect_named((0, 2), r"\[collective\] worker [02] in .*: worker 1 \(pid \d+ on .*\) is lost", 40)

    def expect_the_stopped_to_be_named(self, *flags):
        self.train(*flags)
        self.workers[2].send_signal(signal.SIGSTOP)
        self.expect_named((0, 1), r"worker 2 \(pid \d+ on .*\) is lost: nothing was heard of it for 5 s", 40)
        self.workers[2].send_signal(signal.SIGCONT)
        self.expect_named((2,), r"worker 2", 40)

    def test_a_killed_worker(self):
        self.expect_the_killed_to_be_named()

    def test_a_worker_killed_in_a_collective_of_gloo(self):
        self.expect_the_killed_to_be_named(*GLOO)

    def test_a_stopped_worker(self):
        self.expect_the_stopped_to_be_named()

    def test_a_worker_stopped_in_a_collective_of_gloo(self):
        self.expect_the_stopped_to_be_named(*GLOO)

    def test_a_killed_leader(self):
        self.train()
        self.workers[0].kill()
        self.expect_named((1, 2), r"the coordination leader worker 0 at .* is lost", 40)


class Restarts(unittest.TestCase):
    def test_a_run_goes_on_where_its_checkpoint_was(self):
        self.expect_the_same_bits()

    # Each worker writes and reads what it has; stage 1 is a part of stage 2.
    def test_a_run_whose_workers_share_the_slots_and_the_gradients_does_so_too(self):
        self.expect_the_same_bits("--sharding_stage=2", "--sharded_checkpoints=true")

    def test_a_run_whose_workers_share_the_parameters_does_so_too(self):
        self.expect_the_same_bits("--sharding_stage=3", "--sharding_min_unit_bytes=0", "--sharded_checkpoints=true")

    # Each worker keeps what its gradients have lost.
    def test_a_run_that_approximates_gradients_does_so_too(self):
        self.expect_the_same_bits("--gradient_compression=power_sgd", "--power_sgd_rank=2", "--power_sgd_start_iter=20")

    # Each worker has parameters of its own when the others lose it.
    def test_a_run_of_local_steps_does_so_too(self):
        self.expect_the_same_bits("--local_sgd_every=30", "--local_sgd_start_iter=10", "--outer_learning_rate=0.7", "--outer_momentum=0.9")

    def test_a_worker_that_does_not_see_the_folder_is_named(self):
        # Each worker resolves the path in its own way, as machines do that have no file system in common.
        with tempfile.TemporaryDirectory() as folder:
            apart = f'mkdir -p {folder}/$RANK && cd {folder}/$RANK && exec "$@"'
            done = subprocess.run([COHORT, "launch", "--nproc=2", "--", "sh", "-c", apart, "sh", os.path.abspath(COHORT), *TRAIN, MANY,
                                   "--sharded_checkpoints=true", "--model_dir=/proc/self/cwd/run", "--epochs=1"],
                                  capture_output=True, text=True, check=False, timeout=240)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout + done.stderr, r"worker 1 does not see /proc/self/cwd/run/\.writer-\S+, which the chief has made: "
                             r"sharded checkpoints want a directory on a file system that all workers reach")

    def expect_the_same_bits(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            # Worker 1 of the first attempt dies in the second epoch.
            die = ('if [ "$1" = die ] && [ $COHORT_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then '
                   f'{sys.executable} -c "{KILL_AT}" $$ {folder}/cut/ckpt-250 & fi; shift; exec "$@"')
            results = []
            for name, wish in (("whole", "live"), ("cut", "die")):
                done = subprocess.run([COHORT, "launch", "--nproc=2", "--max_restarts=1", "--", "sh", "-c", die, "sh", wish,
                                       COHORT, *TRAIN, MANY, *flags, f"--model_dir={folder}/{name}", "--epochs=2", "--save_freq=50"],
                                      capture_output=True, text=True, check=False, timeout=240)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                results.append(records_of(f"{folder}/{name}")[-1])
            self.assertIn("restart 1 of 1", done.stderr)
            self.assertRegex(done.stdout + done.stderr, LOST)
            self.assertIn("goes on with the run that was interrupted", done.stdout)
            if "--sharded_checkpoints=true" in flags:
                self.assertTrue(list(pathlib.Path(folder, "cut").glob("ckpt-*/optimizer.shard-1-of-2.safetensors")))
            for key in ("step", "epoch", "loss", "accuracy"):
                self.assertEqual(results[0][key], results[1][key])
            self.assertEqual(pathlib.Path(folder, "whole/model.safetensors").read_bytes(),
                             pathlib.Path(folder, "cut/model.safetensors").read_bytes(), "bit for bit")


class Meshes(unittest.TestCase):
    """Workers that have parts of one model's parameters, of the positions of its inputs, or stages of its layers."""

    TINY = ["train", "--experiment=lm_tiny", "--batch_size=8", "--seed=3",
            "--params_override=task.seq_length=16,task.model.hidden_size=16,task.model.intermediate_size=24,task.model.num_hidden_layers=2"]
    UNET = ["train", "--experiment=unet_small", "--batch_size=3", "--seed=3",
            "--params_override=task.model.backbone.unet.filters=2,task.model.backbone.unet.levels=2,task.train_input_partition_dims=[2, 1]"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_and_read(self, name, prefix, *flags, steps=6, experiment=None):
        done = subprocess.run([*prefix, *(experiment or self.TINY), "--mode=train", f"--train_steps={steps}", f"--model_dir={self.folder}/{name}", *flags],
                              capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return records_of(f"{self.folder}/{name}")[-1], done.stdout + done.stderr

    def test_the_same_loss_as_one_device(self):
        alone, _ = self.run_and_read("alone", [COHORT], "--distribution_strategy=one_device")
        for mesh, *flags in (("model=2", "--sequence_parallel", "--vocab_parallel", "--collective_algorithm=tree"),
                             ("batch=2,model=2",), ("stage=2",)):
            with self.subTest(mesh=mesh):
                meshed, _ = self.run_and_read(mesh, [COHORT, "launch", "--nproc=2", "--", COHORT], MANY, f"--mesh={mesh}", *flags)
                self.assertEqual(meshed["step"], alone["step"])
                self.assertAlmostEqual(meshed["loss"], alone["loss"], delta=1e-4 * alone["loss"])

    def test_a_killed_worker_is_named_and_the_run_goes_on_with_the_same_bits(self):
        self.expect_the_same_bits("model=2", steps=120)

    def test_a_killed_worker_of_a_pipeline_is_named_and_the_run_goes_on_with_the_same_bits(self):
        self.expect_the_same_bits("stage=2", steps=60)

    def test_a_killed_worker_of_divided_tokens_is_named_and_the_run_goes_on_with_the_same_bits(self):
        self.expect_the_same_bits("sequence=2", steps=60)

    def test_a_killed_worker_of_divided_images_is_named_and_the_run_goes_on_with_the_same_bits(self):
        self.expect_the_same_bits("space=2", steps=40, experiment=self.UNET)

    def expect_the_same_bits(self, mesh, steps, experiment=None):
        die = ('if [ "$1" = die ] && [ $COHORT_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then '
               f'{sys.executable} -c "{KILL_AT}" $$ {self.folder}/cut/ckpt-20 & fi; shift; exec "$@"')
        for wish, name in (("live", "whole"), ("die", "cut")):
            _, said = self.run_and_read(name, [COHORT, "launch", "--nproc=2", "--max_restarts=1", "--", "sh", "-c", die, "sh", wish, COHORT],
                                        MANY, f"--mesh={mesh}", "--save_freq=20", "--sharded_checkpoints=true", steps=steps, experiment=experiment)
        self.assertIn("restart 1 of 1", said)
        self.assertRegex(said, LOST)
        self.assertTrue(list(pathlib.Path(self.folder, "cut").glob("ckpt-*/model.shard-1-of-2.safetensors")))
        self.assertEqual(pathlib.Path(self.folder, "whole/model.safetensors").read_bytes(),
                         pathlib.Path(self.folder, "cut/model.safetensors").read_bytes(), "bit for bit")


class Preemptions(unittest.TestCase):
    """SIGTERM on one worker: all save the same step, exit with 42 and go on, started again, with the same bits."""

    FLAGS = [*TRAIN, MANY, "--epochs=2", "--save_freq=50"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, hosts, index):
        out = open(f"{self.folder}/{index}.log", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.addCleanup(out.close)
        worker = subprocess.Popen([COHORT, *self.FLAGS, f"--model_dir={self.folder}/cut", f"--worker_hosts={hosts}",
                                   f"--task_index={index}"], stdout=out, stderr=out)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        return worker

    def log(self, index):
        return pathlib.Path(self.folder, f"{index}.log").read_text(encoding="utf-8")

    def wait_for_training(self, worker):
        end = time.monotonic() + 180
        while not list(pathlib.Path(self.folder, "cut").glob("ckpt-*")):
            self.assertIsNone(worker.poll(), self.log(0))
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_sigterm_to_one_of_three(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
        workers = [self.start(hosts, i) for i in range(3)]
        self.wait_for_training(workers[0])
        begin = time.monotonic()
        workers[1].send_signal(signal.SIGTERM)
        self.assertEqual([worker.wait(timeout=60) for worker in workers], [42, 42, 42], self.log(0))
        self.assertLess(time.monotonic() - begin, 45)
        left = {re.search(r"training was left after step (\d+)", self.log(i))[1] for i in range(3)}
        self.assertEqual(len(left), 1, left)
        done = subprocess.run([COHORT, "launch", "--nproc=3", "--", COHORT, *self.FLAGS, f"--model_dir={self.folder}/cut"],
                              capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"goes on with the run that was interrupted after step {left.pop()};", done.stdout)
        whole = subprocess.run([COHORT, "launch", "--nproc=3", "--", COHORT, *self.FLAGS, f"--model_dir={self.folder}/whole"],
                               capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        self.assertEqual(pathlib.Path(self.folder, "whole/model.safetensors").read_bytes(),
                         pathlib.Path(self.folder, "cut/model.safetensors").read_bytes(), "bit for bit")

    def test_sigterm_to_the_launcher(self):
        launcher = subprocess.Popen([COHORT, "launch", "--nproc=2", f"--log_dir={self.folder}/logs", "--", COHORT, *TRAIN, MANY, "--epochs=1000",
                                     "--save_freq=100000", f"--model_dir={self.folder}/run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(launcher.wait)
        self.addCleanup(launcher.kill)
        log = pathlib.Path(self.folder, "logs/attempt_0/worker_0.log")
        end = time.monotonic() + 180
        while not log.exists() or "Epoch 1/" not in log.read_text(encoding="utf-8"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        launcher.terminate()
        self.assertEqual(launcher.wait(timeout=60), 42)
        self.assertTrue(list(pathlib.Path(self.folder, "run").glob("ckpt-*/manifest.json")))


class Elastic(unittest.TestCase):
    """Three workers on a machine each (a launcher), one lost for good, another one joins: the training ends well."""

    # Of 16 epochs: a launcher that comes late still finds the others at work.
    def launcher(self, folder, *flags):
        return subprocess.Popen([COHORT, "launch", *flags, "--nproc=1", "--", COHORT, *TRAIN, MANY, "--mode=train", "--epochs=16",
                                 "--save_freq=50", f"--model_dir={folder}/run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for(self, process, text, said):
        for line in process.stdout:
            said.append(line)
            if text in line:
                return
        self.fail(f"no {text}: " + "".join(said))

    def test_goes_on_with_who_is_there(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            said = []
            leader = self.launcher(folder, "--elastic=2:3", f"--master_port={port}")
            others = [self.launcher(folder, f"--join=127.0.0.1:{port}") for _ in range(2)]
            for process in (leader, *others):
                self.addCleanup(process.communicate)
                self.addCleanup(process.kill)
            self.wait_for(leader, ": 3 worker(s) on 3 agent(s)", said)
            self.wait_for(leader, "Epoch ", said)
            others[0].kill()
            self.wait_for(leader, ": 2 worker(s) on 2 agent(s)", said)
            self.wait_for(leader, "Epoch ", said)
            others.append(self.launcher(folder, f"--join=127.0.0.1:{port}"))
            self.addCleanup(others[-1].communicate)
            self.addCleanup(others[-1].kill)
            self.wait_for(leader, ": 3 worker(s) on 3 agent(s)", said)
            self.wait_for(leader, "goes on with the run that was interrupted", said)
            out, _ = leader.communicate(timeout=120)
            self.assertEqual(leader.returncode, 0, "".join(said) + out)
            self.assertEqual([process.wait(timeout=60) for process in others[1:]], [0, 0])
            epochs = [record["epoch"] for record in records_of(f"{folder}/run")]
            self.assertEqual(epochs[-1], 16)
            self.assertGreater(records_of(f"{folder}/run")[-1]["accuracy"], 0.97)


class Evaluators(unittest.TestCase):
    def test_one_beside_the_training(self):
        with tempfile.TemporaryDirectory() as folder:
            for attempt in range(2):  # the second one is not taken in by the end of the first
                done = subprocess.run([COHORT, "launch", "--nproc=2", "--evaluator", "--", COHORT, *TRAIN, MANY, "--mode=train",
                                       f"--model_dir={folder}/run", f"--epochs={2 * (attempt + 1)}"],
                                      capture_output=True, text=True, check=False, timeout=240)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, r"\[evaluator\] [12] checkpoint\(s\) of .* evaluated")
                records = records_of(f"{folder}/run")
                self.assertEqual(records[-1]["mode"], "eval")
                self.assertEqual(records[-1]["step"], max(record["step"] for record in records))
                self.assertEqual(sum(record["mode"] == "train" for record in records), 2 * (attempt + 1))


class StartUp(unittest.TestCase):
    def test_who_is_missing_is_said(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
        with tempfile.TemporaryDirectory() as folder:
            worker = subprocess.Popen([COHORT, *TRAIN, MANY, f"--model_dir={folder}", f"--worker_hosts={hosts}", "--task_index=0"],
                                      stderr=subprocess.PIPE, text=True)
            self.addCleanup(worker.stderr.close)
            said = worker.stderr.readline()
            worker.kill()
            worker.wait()
        self.assertTrue(re.search(r"worker 0 waits in start-up for worker 1 \(\d+ s of 600 s\)", said), said)


if __name__ == "__main__":
    unittest.main()
