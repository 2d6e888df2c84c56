"""cohort launch: real processes, ended and killed for real."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from processes import free_port, marked

COHORT = os.environ["COHORT"]


def launch(*arguments, limit=120, variables=None):
    done = subprocess.run([COHORT, "launch", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=limit,
                          env={**os.environ, **(variables or {})})
    return done.returncode, done.stdout, done.stderr


def shell(script):
    return ["--", "sh", "-c", script]


class Workers(unittest.TestCase):
    def test_each_is_told_who_it_is(self):
        code, out, err = launch("--nproc=3", "-x", "COLOUR=blue",
                                *shell('echo "$RANK of $WORLD_SIZE, local $LOCAL_RANK, $COLOUR"; echo "$TF_CONFIG"; echo warned >&2'))
        self.assertEqual(code, 0, err)
        for rank in range(3):
            self.assertIn(f"[worker {rank}] {rank} of 3, local {rank}, blue\n", out)
            self.assertIn(f"[worker {rank}] warned\n", out)
        configs = [json.loads(line.split("] ", 1)[1]) for line in out.splitlines() if '"cluster"' in line]
        self.assertEqual(sorted(each["task"]["index"] for each in configs), [0, 1, 2])
        addresses = configs[0]["cluster"]["worker"]
        self.assertEqual(len(set(addresses)), 3)
        self.assertTrue(all(each["cluster"]["worker"] == addresses for each in configs))
        self.assertTrue(all(address.startswith("127.0.0.1:") for address in addresses))

    def test_nodes_started_by_hand_number_their_workers(self):
        code, out, err = launch("--nproc=2", "--nnodes=3", "--node_rank=2", "--master_addr=10.0.0.1", "--master_port=4000",
                                *shell('echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT, node $GROUP_RANK, ${TF_CONFIG-none}"'))
        self.assertEqual(code, 0, err)
        self.assertIn("[worker 4] 4 of 6 at 10.0.0.1:4000, node 2, none\n", out)
        self.assertIn("[worker 5] 5 of 6", out)

    def test_variables_of_torchrun_stand_for_flags_that_are_not_given(self):
        node = {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "29500"}
        script = shell('echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT, node $GROUP_RANK"')
        code, out, err = launch(*script, variables=node)
        self.assertEqual(code, 0, err)
        self.assertIn("[worker 4] 4 of 6 at 10.0.0.1:29500, node 2\n", out)
        code, out, err = launch("--nproc=1", *script, variables=node)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "[worker 2] 2 of 3 at 10.0.0.1:29500, node 2\n")
        code, _, err = launch(*script, variables={**node, "PET_NNODES": "many"})
        self.assertEqual(code, 2)
        self.assertIn("--nnodes: many", err)

    def test_workers_are_counted_as_torchrun_counts_them(self):
        core = str(min(os.sched_getaffinity(0)))
        for flag in ("--nproc=cpu", "--nproc_per_node=cpu", *([] if os.path.exists("/dev/nvidiactl") else ["--nproc=auto"])):
            command = ["taskset", "-c", core, COHORT, "launch", flag, *shell("echo $WORLD_SIZE")]
            out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
            self.assertEqual(out, "[worker 0] 1\n")
        code, _, err = launch("--nproc=gpus", *shell("true"))
        self.assertEqual(code, 2)
        self.assertIn("--nproc", err)

    def test_output_goes_to_files_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            code, _, err = launch("--nproc=2", f"--log_dir={folder}/logs", *shell('printf "rank $RANK\\nno newline"'))
            self.assertEqual(code, 0, err)
            self.assertEqual(pathlib.Path(folder, "logs/attempt_0/worker_1.log").read_text(encoding="utf-8"), "rank 1\nno newline")

    def test_a_log_on_a_full_disk_is_told_once(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "attempt_0/worker_0.log")
            log.parent.mkdir()
            log.symlink_to("/dev/full")
            code, out, _ = launch("--nproc=1", f"--log_dir={folder}", *shell("echo one; sleep 0.3; echo two"))
            self.assertEqual(code, 0)
            self.assertEqual(out.count("the log of worker 0 cannot be written any more: No space left on device"), 1, out)
            self.assertIn("[worker 0] two\n", out)

    def test_the_first_failure_ends_all_and_is_told(self):
        begin = time.monotonic()
        code, _, err = launch("--nproc=3", *shell('if [ $RANK = 1 ]; then echo "no luck" >&2; exit 3; fi; exec sleep 100'))
        self.assertEqual(code, 3)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertRegex(err, r"worker 1 \(pid \d+\) exited with status 3 after")
        self.assertIn("[launch]   no luck\n", err)
        self.assertNotIn("worker 0 (pid", err)

    def test_a_killed_worker_is_told_with_its_signal(self):
        code, _, err = launch("--nproc=2", *shell("if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 60"))
        self.assertEqual(code, 128 + 9)
        self.assertIn("was killed by signal 9 (Killed)", err)

    def test_who_does_not_listen_is_killed_after_the_grace_period(self):
        begin = time.monotonic()
        code, _, _ = launch("--nproc=2", "--grace_period=1", *shell('if [ $RANK = 1 ]; then sleep 1; exit 5; fi; trap "" TERM; while :; do sleep 1; done'))
        self.assertEqual(code, 5)
        self.assertLess(time.monotonic() - begin, 60)

    def test_restarts(self):
        script = 'echo "attempt $COHORT_RESTART_COUNT"; [ $COHORT_RESTART_COUNT = 2 ]'
        code, out, err = launch("--nproc=2", "--max_restarts=3", *shell(script))
        self.assertEqual(code, 0, err)
        self.assertIn("[worker 1] attempt 2", out)
        self.assertIn("restart 2 of 3", err)
        code, _, err = launch("--nproc=2", "--max_restarts=1", *shell(script))
        self.assertEqual(code, 1)
        self.assertIn("given up after 1 restart(s)", err)

    def test_a_program_that_is_not_there(self):
        code, _, err = launch("--nproc=2", "--", "/nowhere/train")
        self.assertEqual(code, 127)
        self.assertIn("/nowhere/train cannot be started: No such file or directory", err)


class Ends(unittest.TestCase):
    """Whatever happens to the launcher, nothing stays behind."""

    def start(self, script, trap=":", before=()):
        mark = f"COHORT_TEST_MARK={time.time_ns()}_{os.getpid()}"
        # This test may run in a script's background, under nohup.
        process = subprocess.Popen(["env", "--default-signal=INT,HUP", *before, COHORT, "launch", "--nproc=2", "-x", mark,
                                    *shell(f"{trap}; echo ready; {script}")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        return process, mark

    def expect_none(self, mark):
        for _ in range(600):
            left = marked(mark)
            if not left:
                return
            time.sleep(0.1)
        self.fail(f"still there: {left}")

    def test_signals_reach_the_workers(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process, mark = self.start("while :; do sleep 0.1; done", trap='trap "exit 7" TERM INT HUP')
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 7, err)
            self.assertNotIn("its last lines", err.lower())
            self.expect_none(mark)

    def test_what_was_ignored_stays_so(self):
        listens = """exec env --default-signal=INT,HUP sh -c 'trap "echo heard" INT HUP; while :; do sleep 0.1; done'"""
        for number, library in ((signal.SIGHUP, ""), (signal.SIGINT, ""), (signal.SIGHUP, os.environ["SETS_HANDLERS"])):
            # As nohup does, and a script's &.
            process, mark = self.start(listens, before=["env", "--ignore-signal=INT,HUP", f"LD_PRELOAD={library}"])
            process.send_signal(number)
            time.sleep(1)
            self.assertIsNone(process.poll())
            process.terminate()
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
            self.assertNotIn("heard", out)
            self.expect_none(mark)

    def test_workers_are_waited_for_where_their_end_was_ignored(self):
        done = subprocess.run(["env", "--ignore-signal=CHLD", COHORT, "launch", "--nproc=2", "--", "sh", "-c", "exit 3"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_a_signal_that_is_only_passed_on(self):
        process, mark = self.start("while :; do sleep 0.1; done", trap='trap "echo heard; exit 0" USR1')
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(out.count("heard"), 2)
        self.expect_none(mark)

    def test_a_second_signal_kills(self):
        process, mark = self.start("while :; do sleep 0.1; done", trap='trap "echo heard" TERM')
        process.send_signal(signal.SIGTERM)
        heard = 0
        while heard < 2:  # both workers: two signals at once would be one
            heard += "heard" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + 9)
        self.expect_none(mark)

    def test_a_killed_launcher_takes_all_along(self):
        process, mark = self.start("sleep 1000 & wait")
        end = time.monotonic() + 60
        while len(marked(mark)) < 4:  # two shells, and what they start after their word
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=60)
        self.expect_none(mark)

    def test_what_a_worker_leaves_behind_is_ended(self):
        process, mark = self.start("sleep 1000 > /dev/null 2>&1 & exit 0")
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.expect_none(mark)


class Floods(unittest.TestCase):
    """Workers that write more than anybody reads."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, script, stdout):
        """Returns once a worker has begun."""
        begun = self.folder / f"begun.{time.monotonic_ns()}"
        process = subprocess.Popen([COHORT, "launch", "--nproc=2", *shell(f"touch {begun}; {script}")],
                                   stdout=stdout, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        end = time.monotonic() + 60
        while not begun.exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return process

    def test_a_worker_that_writes_without_end_is_no_reason_to_ignore_a_signal(self):
        for stdout in (subprocess.DEVNULL, subprocess.PIPE):  # a pipe that nobody reads
            process = self.start("exec yes", stdout)
            time.sleep(0.5)
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)

    def test_a_line_without_end_comes_in_pieces(self):
        code, out, err = launch("--nproc=1", f"--log_dir={self.folder}",
                                *shell("head -c 200000 /dev/zero | tr '\\0' x; echo; echo end"))
        self.assertEqual(code, 0, err)
        piece = 64 << 10
        self.assertEqual([len(line) - len("[worker 0] ") for line in out.splitlines()],
                         [piece, piece, piece, 200000 - 3 * piece, 3])
        self.assertEqual((self.folder / "attempt_0/worker_0.log").stat().st_size, 200005)

    @unittest.skipIf(os.environ.get("COHORT_SANITIZER"), "a sanitizer keeps memory that was freed")
    def test_a_line_without_end_takes_no_memory(self):
        process = self.start("yes | tr -d '\\n'", subprocess.DEVNULL)
        time.sleep(0.5)
        before = self.memory(process.pid)
        time.sleep(1.5)
        self.assertLess(self.memory(process.pid) - before, 20_000)
        process.terminate()
        process.wait(timeout=60)

    @staticmethod
    def memory(pid):  # in KiB
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0])

    def test_workers_have_their_grace_period_when_nobody_reads_any_more(self):
        process = self.start(f"trap 'sleep 0.5; touch {self.folder}/saved.$RANK; exit 0' TERM; while :; do echo line $RANK; sleep 0.05; done",
                             subprocess.PIPE)
        for rank in (0, 1):  # whoever has said something has set its trap
            while f"line {rank}" not in process.stdout.readline():
                pass
        process.stdout.close()  # as head -1 does
        process.stdout = None
        self.assertEqual(process.wait(timeout=60), 128 + signal.SIGPIPE)
        self.assertEqual(sorted(path.name for path in self.folder.glob("saved.*")), ["saved.0", "saved.1"])
        self.assertIn("nobody reads the output any more", process.stderr.read())

    def test_workers_have_their_own_end_by_a_broken_pipe(self):
        # The launcher catches SIGPIPE; its workers must not find it ignored.
        code, out, err = launch("--nproc=1", *shell("(yes; echo $? >&2) | head -1"))
        self.assertEqual(code, 0, err)
        self.assertIn(f"[worker 0] {128 + signal.SIGPIPE}\n", out)


class Hosts(unittest.TestCase):
    """A stand-in for ssh that runs the command here: what matters is what it is called with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ssh = pathlib.Path(folder.name, "ssh")
        self.ssh.write_text('#!/bin/sh\necho "connected to $1"\nexec sh -c "$2"\n', encoding="utf-8")
        self.ssh.chmod(0o755)

    def test_a_launcher_on_each(self):
        port = free_port()
        code, out, err = launch("--hosts=127.0.0.1,someone@127.0.0.2", "--nproc=2", f"--master_port={port}", f"--ssh={self.ssh}",
                                "-x", "MESSAGE=it's a \"quote\"", *shell('echo "$RANK: $MESSAGE"; echo "$TF_CONFIG"'))
        self.assertEqual(code, 0, out + err)
        self.assertIn("connected to someone@127.0.0.2", out)
        for rank in range(4):
            self.assertIn(f"[worker {rank}] {rank}: it's a \"quote\"", out)
        self.assertIn(f'"worker":["127.0.0.1:{port}","127.0.0.1:{port + 1}","127.0.0.2:{port}","127.0.0.2:{port + 1}"]', out)

    def test_a_lost_connection_ends_the_other_side(self):
        mark = f"COHORT_TEST_MARK={time.time_ns()}"
        process = subprocess.Popen([COHORT, "launch", "--hosts=127.0.0.1", f"--master_port={free_port()}", f"--ssh={self.ssh}",
                                    "-x", mark, *shell("echo ready; exec sleep 1000")], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while "ready" not in process.stdout.readline():
            pass
        self.await_marked(mark, 1)  # a process that is just becoming another program does not show its variables
        process.kill()
        self.await_marked(mark, 0)

    def await_marked(self, mark, count):
        for _ in range(600):
            if len(marked(mark)) == count:
                return
            time.sleep(0.1)
        self.fail(f"wanted {count}, there are {marked(mark)}")


class ParameterServers(unittest.TestCase):
    def test_each_is_told_who_it_is(self):
        code, out, err = launch("--ps=2", "--workers=3", "--evaluator", *shell('echo "$COHORT_RESTART_COUNT $TF_CONFIG"'))
        self.assertEqual(code, 0, err)
        configs = [json.loads(line.split("] 0 ", 1)[1]) for line in out.splitlines()]
        names = sorted(f"{each['task']['type']} {each['task']['index']}" for each in configs)
        self.assertEqual(names, ["chief 0", "evaluator 0", "ps 0", "ps 1", "worker 0", "worker 1", "worker 2"])
        cluster = configs[0]["cluster"]
        self.assertTrue(all(each["cluster"] == cluster for each in configs))
        self.assertEqual({job: len(addresses) for job, addresses in cluster.items()}, {"chief": 1, "ps": 2, "worker": 3})
        self.assertEqual(len({address for addresses in cluster.values() for address in addresses}), 6)
        self.assertIn("[chief] 0 ", out)
        self.assertIn("[worker 2] 0 ", out)

    def test_a_task_that_fails_is_started_again_by_itself(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server, worker = (pathlib.Path(folder.name, name) for name in ("server", "worker"))
        # The chief, whose end is that of all, waits for both.
        script = (f'case "$TF_CONFIG:$COHORT_RESTART_COUNT" in *\'"type":"ps"\'*:[01]) exit 7;; *\'"type":"ps"\'*) file={server};; '
                  f'*\'"type":"worker"\'*) file={worker};; *) while ! [ -e {server} -a -e {worker} ]; do sleep 0.05; done;; esac; '
                  'echo "ends at $COHORT_RESTART_COUNT"; [ -z "$file" ] || touch $file')
        code, out, err = launch("--ps=1", "--workers=1", "--max_restarts=2", *shell(script))
        self.assertEqual(code, 0, err)
        server.unlink()
        self.assertIn("[ps 0] ends at 2", out)
        self.assertIn("[worker 0] ends at 0", out)
        self.assertIn("exited with status 7; it is started again, restart 2 of 2", err)
        code, out, err = launch("--ps=1", "--workers=1", "--max_restarts=1", *shell(script))
        self.assertEqual(code, 7)
        self.assertIn("[launch] ps 0", err)
        self.assertIn("so the others are ended", err)

    def test_the_end_of_the_chief_is_the_end_of_all(self):
        begin = time.monotonic()
        code, _, err = launch("--ps=1", "--workers=1", "--grace_period=2",
                              *shell('case "$TF_CONFIG" in *\'"type":"chief"\'*) exit 0;; esac; sleep 100'))
        self.assertEqual(code, 0, err)
        self.assertLess(time.monotonic() - begin, 60)

    def test_flags_that_do_not_fit_are_refused(self):
        for flags, problem in ((["--ps=1", "--nproc=2"], "--nproc"), (["--ps=-1"], "--ps is -1"), (["--ps=1", "--workers=0"], "--workers is 0")):
            code, _, err = launch(*flags, *shell("true"))
            self.assertNotEqual(code, 0)
            self.assertIn(problem, err)


if __name__ == "__main__":
    unittest.main()
