"""scripts/gpu-check survives tests that crash, hang and fail, and says in one line what each did."""
import json
import pathlib
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from gpu_check import processes, speed, tests  # noqa: E402
from gpu_check.report import Budget, Report  # noqa: E402

# Speaks as an executable of GoogleTest does.
PROGRAM = r'''#!{python}
import json, os, re, signal, subprocess, sys, time
flags = dict(flag.lstrip("-").split("=", 1) if "=" in flag else (flag.lstrip("-"), "") for flag in sys.argv[1:])
if "gtest_list_tests" in flags:
    print("Running main() from main.cpp\nCard.\n  Passes\n  Crashes\n  Hangs\n  Fails\n  Exits\n  DISABLED_Sleeps\nBoth/Card.\n  Waits/0  # GetParam() = 4\n  Skips/1")
    sys.exit(0)
name = flags["gtest_filter"]
result = {{"name": name, "result": "COMPLETED", "failures": []}}
if name == "Card.Crashes":
    print("about to crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
if name == "Card.Hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("{folder}/child", "w").write(str(child.pid))
    print("about to hang", flush=True)
    time.sleep(600)
if name == "Card.Exits":
    print("CUDA error: an illegal memory access was encountered", flush=True)
    sys.exit(3)
if name == "Card.Fails":
    result["failures"] = [{{"failure": "card.cpp:7\nexpected 1\nwas 2"}}]
if name.startswith("Both/Card."):
    result["result"] = "SKIPPED"
    print("card.cpp:1: Skipped\n" + ("needs 2 CUDA cards that are real" if "Waits" in name else "a real card has too much"))
path = flags["gtest_output"].split(":", 1)[1]
json.dump({{"testsuites": [{{"name": "s", "testsuite": [result]}}]}}, open(path, "w"))
sys.exit(1 if result["failures"] else 0)
'''


def gone(pid):
    """Whether the process has ended; one that nobody has waited for has."""
    try:
        return (pathlib.Path("/proc") / pid / "stat").read_text(encoding="utf-8").split()[2] == "Z"
    except OSError:
        return True


class Children(unittest.TestCase):
    def assert_gone(self, pid):
        end = time.monotonic() + 60
        while not gone(pid) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(gone(pid))


class Isolation(Children):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "gpu_tests"
        self.program.write_text(PROGRAM.format(python=sys.executable, folder=self.folder), encoding="utf-8")
        self.program.chmod(0o755)
        self.file = self.folder / "report.md"

    def lines(self, jobs=1, seconds=20, minutes=10):
        report = Report(self.file)
        suite = tests.Tests(self.program, report, None, seconds, jobs)
        suite.run(Budget(minutes))
        return report, suite, self.file.read_text(encoding="utf-8").splitlines()

    def test_each_test_is_a_line_whatever_it_does(self):
        for jobs in (1, 3):
            with self.subTest(jobs=jobs):
                self.file.unlink(missing_ok=True)
                report, suite, lines = self.lines(jobs)
                one = lambda name: [line for line in lines if name in line]  # noqa: E731
                self.assertRegex(one("Card.Passes")[0], r"^- ok: Card.Passes \([0-9.]+ s\)$")
                self.assertEqual(one("Card.Crashes"), ["- FAILED: Card.Crashes: crashed: SIGSEGV: about to crash"])
                self.assertEqual(one("Card.Hangs"), ["- FAILED: Card.Hangs: hung: killed at its deadline of 20 s: about to hang"])
                self.assertEqual(one("Card.Exits"), ["- FAILED: Card.Exits: exit status 3: CUDA error: an illegal memory access was encountered"])
                self.assertRegex(one("Card.Fails")[0], r"^- FAILED: Card.Fails \(")
                self.assertIn("      was 2", lines)
                self.assertEqual(one("Waits"), ["- waits for a card: Both/Card.Waits/0: needs 2 CUDA cards that are real"])
                self.assertEqual(one("Skips"), ["- skipped: Both/Card.Skips/1: a real card has too much"])
                self.assertEqual(one("DISABLED"), [])
                self.assertEqual(suite.counts, {"passed": 1, "waiting": 1, "skipped": 1, "failed": 4})
                self.assertEqual(report.failures, 4)
                self.assertEqual(lines[-1], "7 tests: 1 passed, 1 wait for a card, 1 skipped, 4 failed")
                self.assert_gone((self.folder / "child").read_text(encoding="utf-8"))

    def test_what_there_is_no_time_for_is_said(self):
        report = Report(self.file)
        suite = tests.Tests(self.program, report, None, 20, 1)
        listed = suite.one  # so that the list is made within the time, and no test is
        suite.one = lambda name, budget: listed(name, Budget(0))
        suite.run(Budget(10))
        self.assertEqual(report.failures, 7)
        self.assertIn("- FAILED: Card.Passes: not run, the time for tests is over", self.file.read_text(encoding="utf-8").splitlines())

    def test_a_program_that_does_not_start_is_a_line(self):
        self.program.write_text("#!/bin/sh\necho no libtorch.so\nexit 127\n", encoding="utf-8")
        report, _, lines = self.lines()
        self.assertEqual(lines, ["- FAILED: the list of tests: exit status 127: no libtorch.so"])
        self.assertEqual(report.failures, 1)

    def test_lines_are_there_when_they_are_said(self):
        report = Report(self.file)
        report.say("first")
        self.assertEqual(self.file.read_text(encoding="utf-8"), "first\n")
        report.verdict(False, "second", "a\nb")
        self.assertEqual(self.file.read_text(encoding="utf-8"), "first\n- FAILED: second\n      a\n      b\n")


class Deadlines(Children):
    def test_output_that_nobody_reads_holds_nothing_up(self):
        ended = processes.run([sys.executable, "-c", "print('x' * 3_000_000)"], 60)
        self.assertTrue(ended.good())
        self.assertEqual(len(ended.output), 3_000_001)

    def test_a_program_that_is_not_there_is_an_end(self):
        ended = processes.run(["/nowhere/gpu_tests"], 60)
        self.assertFalse(ended.good())
        self.assertIn("No such file or directory: '/nowhere/gpu_tests'", ended.last_line())

    def test_a_command_that_ends_leaves_no_children(self):
        ended = processes.run(["/bin/sh", "-c", "sleep 600 & echo $!"], 60)
        self.assertTrue(ended.good())
        self.assert_gone(ended.output.strip())


class Speed(unittest.TestCase):
    """With programs that print what they are told to."""

    def run_with(self, ours, theirs):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.md"
            report = Report(file)
            check = speed.Speed(report, "ours", "theirs", None, on_cpu=True)
            check.command = lambda case, way: ["/bin/sh", "-c", ours if way.of_cohort else theirs]
            check.run(Budget(10))
            return report, file.read_text(encoding="utf-8").splitlines()

    @staticmethod
    def says(**figures):
        return f"echo '{json.dumps({'parameters': 5, 'us': 2000, 'host_us': 500, **figures})}'"

    def test_figures_and_their_ratio(self):
        report, lines = self.run_with(self.says(peak_bytes=2**31, launches=12, waits=0), self.says(us=3000))
        self.assertIn("- mlp, fp32, batch 64: Cohort: 2.000 ms a step, the host 0.500 ms, peak 2.00 GiB, 12 launches, 0.0 waits", lines)
        self.assertIn("- mlp, fp32, batch 64: PyTorch: 3.000 ms a step, the host 0.500 ms", lines)
        self.assertIn("| mlp, fp32, batch 64 | 2.000 |  | 3.000 |  |  |  | 1.50 |", lines)
        self.assertEqual(report.failures, 0)

    def test_models_that_are_not_the_same_are_a_failure(self):
        report, lines = self.run_with(self.says(), self.says(parameters=6))
        self.assertIn("- FAILED: mlp, fp32, batch 64: Cohort's model has 5 parameters, PyTorch's has 6", lines)
        self.assertEqual(report.failures, len(speed.ON_THE_CPU))

    def test_a_crash_after_the_figures_leaves_them(self):
        report, lines = self.run_with(self.says() + "; kill -ABRT $$", "echo no GPU; exit 1")
        self.assertIn("- mlp, fp32, batch 64: Cohort: 2.000 ms a step, the host 0.500 ms", lines)
        self.assertTrue(any(line.startswith("- FAILED: mlp, fp32, batch 64: Cohort: crashed: SIGABRT") for line in lines), lines)
        self.assertIn("- PyTorch fails: mlp, fp32, batch 64: PyTorch: exit status 1: no GPU", lines)
        self.assertEqual(report.failures, len(speed.ON_THE_CPU))

    def test_what_decides_comes_first(self):
        order = speed.plan(on_cpu=False)
        self.assertEqual(len(order), len(set(order)))
        self.assertEqual(set(order), {(case, way) for case in speed.ON_A_CARD for way in speed.WAYS})
        self.assertTrue(all(way in (speed.OURS, speed.EAGER, speed.OURS_IN_GRAPHS, speed.GRAPHS) for _, way in order[:4 * len(speed.ON_A_CARD)]))


if __name__ == "__main__":
    unittest.main()
