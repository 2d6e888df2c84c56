"""A pod as two real processes with two devices each, over the tests' own pod (tests/wings/xla/device/pod_plugin.h): the same result as one
process, one that is killed, one that is preempted, and what becomes of variables that contradict each other."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from processes import free_ports, records_of

COHORT = os.environ["COHORT"]
POD_TESTS = os.environ["POD_TESTS"]
PLUGIN = os.environ["POD_PLUGIN_OF_TESTS"]
CPU = pathlib.Path(os.environ["PLUGINS"], "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
TRAIN = ["train", "--experiment=mnist_mlp", "--batch_size=384", "--seed=3"]
TPU = ["--distribution_strategy=tpu", "--tpu=local", f"--xla_plugin={PLUGIN}", "--xla_options=cpu_device_count=4"]


@unittest.skipUnless(CPU.is_file(), "XLA's plugin for CPUs is not here")
class Pods(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = []

    def environment(self, index, **more):
        return {**os.environ, "POD_PLUGIN": str(CPU), "POD_FOLDER": str(self.folder / "launches"), "CLOUD_TPU_TASK_ID": str(index),
                "TPU_PROCESS_ADDRESSES": "127.0.0.1:8476,127.0.0.1:8477", "TPU_PROCESS_BOUNDS": "2,1,1", **more}

    def start(self, command, index, log, **more):
        (self.folder / "launches").mkdir(exist_ok=True)
        with (self.folder / log).open("w", encoding="utf-8") as out:
            process = subprocess.Popen(command, env=self.environment(index, **more), stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train(self, name, epochs=3):
        """Starts both processes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
        return [self.start([COHORT, *TRAIN, *TPU, f"--worker_hosts={hosts}", f"--task_index={index}", f"--model_dir={self.folder}/{name}",
                            f"--epochs={epochs}"], index, f"{name}_{index}.log") for index in (0, 1)]

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def wait_for(self, text, name, process):
        end = time.monotonic() + 120
        while text not in self.log(name):
            self.assertIsNone(process.poll(), self.log(name))
            self.assertLess(time.monotonic(), end, self.log(name))
            time.sleep(0.05)

    def expect_ends(self, processes, code, name):
        for index, process in enumerate(processes):
            self.assertEqual(process.wait(timeout=200), code, self.log(f"{name}_{index}"))

    def test_trains_as_one_process_and_goes_on_with_the_same_bits(self):
        alone = subprocess.run([COHORT, *TRAIN, "--epochs=3", "--distribution_strategy=one_device", f"--model_dir={self.folder}/alone"],
                               capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)
        wanted = records_of(self.folder / "alone")[-1]
        self.expect_ends(self.train("whole"), 0, "whole")
        got = records_of(self.folder / "whole")[-1]
        self.assertEqual(got["step"], wanted["step"])
        self.assertAlmostEqual(got["loss"], wanted["loss"], delta=2e-3)
        self.assertAlmostEqual(got["accuracy"], wanted["accuracy"], delta=2e-3)
        self.assertEqual(self.log("whole_1"), "", "who is not the chief says nothing")

        processes = self.train("cut")
        self.wait_for("Epoch 1/", "cut_0", processes[0])
        processes[1].send_signal(signal.SIGTERM)
        self.expect_ends(processes, 42, "cut")
        said = {re.search(r"training was left after step \d+", self.log(f"cut_{index}"))[0] for index in (0, 1)}
        self.assertEqual(len(said), 1, said)
        self.expect_ends(self.train("cut"), 0, "cut")
        self.assertIn("goes on with the run that was interrupted", self.log("cut_0"))
        self.assertEqual((self.folder / "whole/model.safetensors").read_bytes(), (self.folder / "cut/model.safetensors").read_bytes(), "bit for bit")

    def test_a_killed_process_is_named(self):
        processes = self.train("killed", epochs=1000)
        self.wait_for("Epoch 2/", "killed_0", processes[0])
        begin = time.monotonic()
        processes[1].kill()
        self.assertEqual(processes[0].wait(timeout=60), 1)
        self.assertLess(time.monotonic() - begin, 45)
        self.assertRegex(self.log("killed_0"), r"worker 1 \(pid \d+ on .*\) is lost")

    def test_a_launch_that_waits_for_a_killed_process_ends_with_its_own(self):
        hosts = free_ports(2)
        cluster = ",".join(f'"127.0.0.1:{port}"' for port in hosts)
        command = [POD_TESTS, "--gtest_also_run_disabled_tests", "--gtest_filter=Pod.DISABLED_AProcessIsLost"]
        processes = [self.start(command, index, f"lost_{index}.log", POD_HANGS="1", **({"POD_DIES": "3"} if index == 1 else {}),
                                TF_CONFIG='{"cluster": {"worker": [%s]}, "task": {"type": "worker", "index": %d}}' % (cluster, index))
                     for index in (0, 1)]
        self.assertEqual(processes[1].wait(timeout=100), -signal.SIGKILL, self.log("lost_1"))
        begin = time.monotonic()
        self.assertEqual(processes[0].wait(timeout=60), 1, self.log("lost_0"))
        self.assertLess(time.monotonic() - begin, 45)
        self.assertRegex(self.log("lost_0"), r"a launch cannot end, because worker 1 \(pid \d+ on .*\) is lost.*; this process ends now")

    def documented(self, index, address, *more, leave_out=""):
        """Starts the command that docs/tpu.md has for every host of a pod, in a folder that stands for /shared."""
        text = (pathlib.Path(__file__).parents[2] / "docs/tpu.md").read_text(encoding="utf-8")
        command = re.search(r"# on every host\n    (cohort train .*)\n", text)[1].replace("/shared", str(self.folder)).split()
        command = [word for word in command[1:] if not leave_out or not word.startswith(leave_out)]
        self.assertIn("--tpu=local", command)
        (self.folder / "secret").write_text("the secret of the pod's hosts")
        return self.start([COHORT, *command, f"--xla_plugin={PLUGIN}", "--xla_options=cpu_device_count=4", "--epochs=1", *more], index,
                          f"documented_{index}.log", TPU_PROCESS_ADDRESSES=f"{address}:8476,{address}:8477")

    def test_the_documented_command_starts_on_hosts_that_others_reach(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing
            except OSError:
                self.skipTest("this machine has no address that other machines reach")
            address = probe.getsockname()[0]
        refused = self.documented(0, address, leave_out="--secret_file")
        self.assertNotEqual(refused.wait(timeout=100), 0)
        self.assertIn("give all tasks a secret or certificates", self.log("documented_0"))
        # The ports of a pod are fixed, and another program may have them for a while.
        end = time.monotonic() + 120
        while True:
            processes = [self.documented(index, address) for index in (0, 1)]
            while None in (codes := [process.poll() for process in processes]) and not any(codes):
                time.sleep(0.05)
            for process in processes:
                process.kill()  # one that waits for the other
                process.wait()
            if "in use" not in self.log("documented_0") + self.log("documented_1") or time.monotonic() > end:
                break
            time.sleep(1)
        self.assertEqual(codes, [0, 0], self.log("documented_0") + self.log("documented_1"))
        self.assertGreater(records_of(self.folder / "run")[-1]["step"], 0)

    def test_contradictions_name_the_variable(self):
        for more, message in (({"CLOUD_TPU_TASK_ID": "2"}, 'CLOUD_TPU_TASK_ID is "2", wanted 0 to 1, because TPU_PROCESS_ADDRESSES names 2 processes'),
                              ({"TPU_PROCESS_BOUNDS": "2,2,1"}, "TPU_PROCESS_BOUNDS is 2,2,1, which is 4 processes, but TPU_PROCESS_ADDRESSES names 2")):
            done = subprocess.run([COHORT, *TRAIN, *TPU, f"--model_dir={self.folder}/none"], env=self.environment(0, **more),
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
