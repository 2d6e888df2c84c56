"""Runs each test of a GoogleTest executable in a process of its own, so that one that crashes, hangs or breaks its card leaves the others
as they are."""
import concurrent.futures
import json
import pathlib
import re
import tempfile

from gpu_check import processes

LISTING_SECONDS = 120
WAITS_FOR_A_CARD = re.compile(r"^(needs \d+ CUDA cards.*)$", re.MULTILINE)


def names_of(listing):
    """The names of the tests in what --gtest_list_tests prints."""
    names, suite = [], None
    for line in listing.splitlines():
        text = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", text):
            suite = text
        elif suite and re.fullmatch(r"  \S+", text):
            names.append(suite + text.strip())
    return [name for name in names if ".DISABLED_" not in name and not name.startswith("DISABLED_")]


class Tests:
    def __init__(self, program, report, environment, seconds, jobs):
        self.program = program
        self.report = report
        self.environment = environment
        self.seconds = seconds  # of one test
        self.jobs = jobs
        self.counts = {"passed": 0, "waiting": 0, "skipped": 0, "failed": 0}

    def run(self, budget):
        """Runs all tests while there is time, and says what each did."""
        listed = processes.run([self.program, "--gtest_list_tests"], min(LISTING_SECONDS, budget.left()), self.environment)
        names = names_of(listed.output) if listed.good() else []
        if not names:
            self.report.verdict(False, f"the list of tests: {listed.how()}: {listed.last_line()}")
            return
        again = []
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(self.one, name, budget): name for name in names}
            for future in concurrent.futures.as_completed(futures):
                name = futures[future]
                ended, result = future.result()
                # A test that fails beside others gets another chance alone.
                if self.jobs > 1 and ended is not None and not ended.hung and self.kind(ended, result) == "failed":
                    again.append(name)
                else:
                    self.say(name, ended, result)
        for name in again:
            self.say(name, *self.one(name, budget))
        self.report.say(f"\n{len(names)} tests: {self.counts['passed']} passed, {self.counts['waiting']} wait for a card, "
                        f"{self.counts['skipped']} skipped, {self.counts['failed']} failed")

    def one(self, name, budget):
        """(how its process ended, its entry in GoogleTest's results); nothing where the time is over or it has left none."""
        if budget.left() <= 0:
            return None, None
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "results.json"
            ended = processes.run([self.program, "--gtest_color=no", f"--gtest_filter={name}", f"--gtest_output=json:{results}"],
                                  min(self.seconds, max(1, budget.left())), self.environment)
            try:
                suite = json.loads(results.read_text(encoding="utf-8"))["testsuites"][0]
                return ended, suite["testsuite"][0]
            except (OSError, ValueError, LookupError):
                return ended, None

    @staticmethod
    def kind(ended, result):
        if ended is None or ended.hung or ended.status not in (0, 1) or result is None:
            return "failed"
        if result["result"] == "SKIPPED":
            return "waiting" if WAITS_FOR_A_CARD.search(ended.output) else "skipped"
        return "failed" if ended.status != 0 or result.get("failures") else "passed"

    def say(self, name, ended, result):
        kind = self.kind(ended, result)
        self.counts[kind] += 1
        if ended is None:
            self.report.verdict(False, f"{name}: not run, the time for tests is over")
        elif kind == "passed":
            self.report.verdict(True, f"{name} ({ended.seconds:.1f} s)")
        elif kind == "waiting":
            self.report.say(f"- waits for a card: {name}: {WAITS_FOR_A_CARD.search(ended.output)[1]}")
        elif kind == "skipped":
            reason = re.search(r": Skipped\n([^\n]*)", ended.output)
            self.report.say(f"- skipped: {name}{': ' + reason[1] if reason else ''}")
        elif ended.hung or result is None or not result.get("failures"):
            self.report.verdict(False, f"{name}: {ended.how()}: {ended.last_line()}")
        else:
            self.report.verdict(False, f"{name} ({ended.seconds:.1f} s)", "\n".join(each["failure"] for each in result["failures"]))
