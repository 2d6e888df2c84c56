"""Training by several real processes, of which some are lost, restarted or asked to end."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from processes import free_port, free_ports, records_of

COHORT = os.environ["COHORT"]
TRAIN = ["train", "--experiment=mnist_mlp", "--batch_size=96", "--seed=3"]
# Workers that share states send them also on one machine, where others add up gradients in common memory.
GLOO = ("--all_reduce_alg=gloo", "--sharding_stage=2")
MANY = "--distribution_strategy=multi_worker_mirrored"
# Kills a process as soon as there is a file; not by sleep, which has to be started each time, and comes late on a busy machine.
KILL_AT = ("import os, sys, time; [time.sleep(0.002) for _ in iter(lambda: os.path.exists(sys.argv[2]), True)]; "
           "os.kill(int(sys.argv[1]), 9)")
LOST = r"worker 0 in .*: worker 1 \(pid \d+ on .*\) is lost|worker 1 .*was killed|worker 1 .*signal 9"


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
