"""cohort launch --elastic and --join: real processes, ended and killed for real."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from processes import free_port

COHORT = os.environ["COHORT"]


class Elastic(unittest.TestCase):
    """Runs that go on with the workers that are left, and take in others."""

    def setUp(self):
        self.port = free_port()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.end = pathlib.Path(folder.name, "end")
        # A worker that is preempted, or ends well once there is such a file.
        self.worker = f'trap "exit 42" TERM; echo "$RANK of $WORLD_SIZE"; while ! [ -e {self.end} ]; do sleep 0.05; done'

    def start(self, *flags, script, variables=()):
        process = subprocess.Popen([COHORT, "launch", *flags, "--", "sh", "-c", script], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, **dict(variables)})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def lead(self, bounds, nproc, script, *flags):
        return self.start(f"--elastic={bounds}", f"--nproc={nproc}", f"--master_port={self.port}", *flags, script=script)

    def join(self, nproc, script, *flags, **more):
        return self.start(f"--join=127.0.0.1:{self.port}", f"--nproc={nproc}", *flags, script=script, **more)

    def lead_and_join(self, bounds):
        leader = self.lead(bounds, 1, self.worker)
        self.expect_next(leader, "0 of 1")
        other = self.join(1, self.worker)
        self.expect_next(leader, "0 of 2")
        return leader, other

    def expect_next(self, process, text):
        line = process.stdout.readline()
        while "Terminated" in line:  # what a shell says of its child
            line = process.stdout.readline()
        self.assertIn(text, line)

    def expect_lines(self, process, code, *lines):
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, out + err)
        for line in lines:
            self.assertIn(line, out + err)

    def test_the_rest_goes_on_without_a_killed_worker(self):
        script = ('echo "round $COHORT_RESTART_COUNT: $RANK of $WORLD_SIZE"; '
                  'if [ $WORLD_SIZE = 3 ]; then if [ $RANK = 2 ]; then kill -9 $$; fi; exec sleep 200; fi')
        self.expect_lines(self.lead("2:3", 3, script), 0, "[worker 2] round 0: 2 of 3", "was killed by signal 9",
                          "goes on with 2 worker(s)", "[worker 1] round 1: 1 of 2")

    def test_a_round_that_fails_before_all_have_begun_it(self):
        script = f"if [ $WORLD_SIZE = 2 ]; then touch {self.end}; if [ $RANK = 0 ]; then kill -9 $$; fi; else {self.worker}; fi"
        leader = self.lead("1:2", 1, script)
        other = self.join(1, script)
        self.expect_lines(other, 0)
        self.expect_lines(leader, 0, "was killed by signal 9", "goes on with 0 worker(s)")

    def test_launchers_with_a_secret_speak_to_nobody_else(self):
        secret, other_secret = self.end.with_name("secret"), self.end.with_name("other")
        secret.write_text("0123456789abcdef", encoding="utf-8")
        other_secret.write_text("0123456789abcdeg", encoding="utf-8")
        leader = self.lead("1:2", 1, self.worker, f"--secret_file={secret}")
        self.expect_next(leader, "0 of 1")
        for flags in ((), (f"--secret_file={other_secret}",)):
            self.expect_lines(self.join(1, "true", "--join_timeout=1", *flags), 1, "the leader is lost")
        other = self.join(1, self.worker, f"--secret_file={secret}")
        self.expect_next(other, "1 of 2")
        self.end.touch()
        self.expect_lines(other, 0)
        self.expect_lines(leader, 0)

    def test_a_leader_that_comes_late_is_waited_for(self):
        other = self.join(1, "true")
        self.assertRegex(other.stderr.readline(), r"waits for the leader \(\d+ of 600 s\)")
        self.expect_lines(self.lead("2:2", 1, "true"), 0)
        self.expect_lines(other, 0)

    def test_a_leader_that_does_not_come_is_given_up(self):
        self.expect_lines(self.join(1, "true", "--join_timeout=1"), 1, "the leader is lost: nothing was heard of it for 1 s")

    def test_too_few_are_waited_for_and_given_up(self):
        script = "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 200"
        self.expect_lines(self.lead("2:2", 2, script, "--join_timeout=1"), 137, "given up: 1 worker(s) are there, 2 are needed")

    def test_others_are_taken_in(self):
        leader, other = self.lead_and_join("1:3")
        self.expect_next(other, "1 of 2")
        self.end.touch()
        self.expect_lines(other, 0)
        self.expect_lines(leader, 0, "its workers save and end, to begin again with more")

    def test_a_lost_launcher_is_a_lost_machine(self):
        leader, other = self.lead_and_join("1:2")
        other.kill()
        self.expect_next(leader, "0 of 1")
        self.end.touch()
        self.expect_lines(leader, 0, "is lost: nothing was heard of it for 5 s")

    def test_a_stopped_launcher_has_no_workers_when_the_next_round_begins(self):
        pid_of_1 = self.end.with_name("pid")
        self.worker = f"[ $RANK = 0 ] || echo $$ > {pid_of_1}; " + self.worker
        leader, other = self.lead_and_join("1:2")
        self.expect_next(other, "1 of 2")
        worker = int(pid_of_1.read_text())
        os.kill(other.pid, signal.SIGSTOP)
        self.expect_next(leader, "0 of 1")
        stat = pathlib.Path(f"/proc/{worker}/stat")
        self.assertIn(") Z ", stat.read_text(encoding="utf-8"), "killed, and left for the launcher, which is stopped")
        os.kill(other.pid, signal.SIGCONT)  # and is taken in again
        self.expect_next(leader, "0 of 2")
        self.end.touch()
        self.expect_lines(other, 0)
        self.expect_lines(leader, 0, "is lost: nothing was heard of it for 5 s")

    def check_stop_at_first_fork(self, place):
        """A launcher that is stopped where it starts its worker: that one does not run beside a later round."""
        folder = self.end.parent
        self.worker = f'echo $$ > {folder}/round$COHORT_RESTART_COUNT.rank$RANK; ' + self.worker
        leader = self.lead("1:2", 1, self.worker)
        self.expect_next(leader, "0 of 1")
        other = self.join(1, self.worker, variables={"LD_PRELOAD": os.environ["STOPS_AT_FORK"], "STOP_AT_FORK": place})
        self.expect_next(leader, "0 of 2")
        self.expect_next(leader, "0 of 1")  # the other launcher was lost
        began = pathlib.Path(folder, "round1.rank1")
        if began.exists():
            stat = pathlib.Path(f"/proc/{began.read_text(encoding='utf-8').strip()}/stat")
            self.assertIn(") Z ", stat.read_text(encoding="utf-8"), "its worker runs beside the next round")
        before = began.exists()
        os.kill(other.pid, signal.SIGCONT)  # and is taken in again
        self.expect_next(leader, "0 of 2")
        self.assertEqual(began.exists(), before, "its worker has begun after the end of the lease")
        self.expect_next(other, "1 of 2")
        self.end.touch()
        self.expect_lines(other, 0)
        self.expect_lines(leader, 0, "is lost: nothing was heard of it for 5 s")
        return before

    def test_a_launcher_that_is_stopped_before_it_starts_a_worker_does_not_start_it_later(self):
        self.assertFalse(self.check_stop_at_first_fork("before"))

    def test_a_launcher_that_is_stopped_after_it_has_started_a_worker_leaves_it_to_its_guard(self):
        self.assertTrue(self.check_stop_at_first_fork("after"))

    def test_a_lost_leader_ends_all(self):
        script = "echo here; exec sleep 200"
        leader = self.lead("2:2", 1, script)
        other = self.join(1, script)
        self.expect_next(other, "here")
        leader.kill()
        self.expect_lines(other, 1, "the leader is lost")

    def test_who_is_told_to_leave_leaves(self):
        leader, other = self.lead_and_join("1:2")
        self.expect_next(other, "1 of 2")
        other.terminate()
        self.expect_lines(other, 42)
        self.expect_next(leader, "0 of 1")
        leader.terminate()
        self.expect_lines(leader, 42)
