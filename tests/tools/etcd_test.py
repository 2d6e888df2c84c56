"""Whole runs whose membership etcd keeps: they go on, with the same bits, when the chief or a member of etcd is killed."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import etcd
import multi_worker_test
from etcd_runs import TRAIN, Run
from processes import records_of

COHORT = os.environ["COHORT"]


@unittest.skipIf(etcd.MISSING, etcd.MISSING)
class EtcdRuns(unittest.TestCase):
    def setUp(self):
        self.servers = etcd.EtcdServers(3)
        self.addCleanup(self.servers.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_of(self, name, epochs=2):
        pathlib.Path(self.folder, name).mkdir()
        run = Run(COHORT, self.servers.coordination, pathlib.Path(self.folder, name), epochs)
        self.addCleanup(run.close)
        return run

    def test_a_chief_and_a_member_of_etcd_that_are_killed(self):
        whole = self.run_of("whole").end()
        cut = self.run_of("cut")
        cut.wait_for_checkpoint(100)
        self.servers.kill(0)
        cut.wait_for_checkpoint(250)
        cut.kill(0)
        result = cut.end()
        said = cut.said()
        self.assertGreaterEqual(cut.workers[0].starts, 2)
        self.assertIn("goes on with the run that was interrupted", said)
        self.assertRegex(said, r"worker 0 \(pid \d+ on .*\) is lost|worker 0 .*was killed")
        for key in ("step", "epoch", "loss", "accuracy"):
            self.assertEqual(whole[0][key], result[0][key])
        self.assertEqual(whole[1], result[1], "bit for bit")

    def test_a_member_of_etcd_that_is_killed_is_not_noticed(self):
        run = self.run_of("run")
        run.wait_for_checkpoint(50)
        self.servers.kill(1)
        run.end()
        self.assertEqual([worker.starts for worker in run.workers], [1, 1], run.said())

    def test_launched(self):
        """cohort launch hands the variable on, and starts both workers again."""
        kill = "import os, sys, time; [time.sleep(0.002) for _ in iter(lambda: os.path.exists(sys.argv[2]), True)]; os.kill(int(sys.argv[1]), 9)"
        die = ('if [ $COHORT_RESTART_COUNT = 0 ] && [ $RANK = 0 ]; then '
               f'{sys.executable} -c "{kill}" $$ {self.folder}/run/ckpt-100 & fi; exec "$@"')
        done = subprocess.run([COHORT, "launch", "--nproc=2", "--max_restarts=1", "--", "sh", "-c", die, "sh", COHORT, *TRAIN, "--epochs=2",
                               f"--model_dir={self.folder}/run"], capture_output=True, text=True, check=False, timeout=400,
                              env={**os.environ, "COHORT_COORDINATION": self.servers.coordination + "/launched"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("restart 1 of 1", done.stderr)
        self.assertIn("goes on with the run that was interrupted", done.stdout)
        self.assertEqual(records_of(f"{self.folder}/run")[-1]["epoch"], 2)

    def test_an_etcd_that_is_lost_ends_the_run_and_is_named(self):
        run = self.run_of("run", epochs=1000)
        run.wait_for_checkpoint(50)
        for worker in run.workers:
            worker.starts = 100  # it is not started again
        for member in range(3):
            self.servers.kill(member)
        for worker in run.workers:
            worker.thread.join(60)
            self.assertEqual(worker.code, 1, run.said())
            self.assertRegex(worker.said(), r"etcd at 127\.0\.0\.1:\d+, .* is lost: nothing was heard of it for 5 s")


@unittest.skipIf(etcd.MISSING, etcd.MISSING)
class ElasticOnEtcd(unittest.TestCase):
    """The rounds of an elastic run, each of which is a cluster of its own, under one job."""

    def test_goes_on_with_who_is_there(self):
        servers = etcd.EtcdServers(3)
        self.addCleanup(servers.close)
        with unittest.mock.patch.dict(os.environ, COHORT_COORDINATION=servers.coordination + "/elastic"):
            result = unittest.TestResult()
            unittest.TestSuite([multi_worker_test.Elastic("test_goes_on_with_who_is_there")]).run(result)
        self.assertEqual((result.testsRun, result.errors, result.failures), (1, [], []))


if __name__ == "__main__":
    unittest.main()
