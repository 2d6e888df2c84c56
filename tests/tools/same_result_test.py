"""Training by several real processes gives the result of one, whoever starts them: cohort launch, mpirun, torchrun, Ray."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
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


if __name__ == "__main__":
    unittest.main()
