"""Commands in processes of their own, each with a deadline."""
import dataclasses
import os
import signal
import subprocess
import tempfile
import time

SECONDS_TO_DIE = 10  # a process that a driver holds may never die


@dataclasses.dataclass
class Ended:
    status: int  # the exit status; negative: the signal that killed it
    hung: bool  # whether it was killed at its deadline
    output: str
    seconds: float

    def good(self):
        return self.status == 0 and not self.hung

    def how(self):
        """How it ended, in words."""
        if self.hung:
            return f"hung: killed at its deadline of {self.seconds:.0f} s"
        if self.status < 0:
            try:
                name = signal.Signals(-self.status).name
            except ValueError:
                name = f"signal {-self.status}"
            return f"crashed: {name}"
        return f"exit status {self.status}"

    def last_line(self):
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""


def kill_group(child):
    """Kills the child and whatever it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, seconds, environment=None):
    """Runs the command as a process group of its own, which is killed after so many seconds, and returns how it ended."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        # Not a context manager: leaving it would wait for a process that cannot die.
        try:
            child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                     env=environment, start_new_session=True)
        except OSError as error:  # such as a program that is not there
            return Ended(127, False, str(error), 0)
        hung = False
        try:
            status = child.wait(timeout=max(0.1, seconds))
        except subprocess.TimeoutExpired:
            hung, status = True, 124
        taken = time.monotonic() - begin
        kill_group(child)
        if hung:
            try:
                child.wait(timeout=SECONDS_TO_DIE)
            except subprocess.TimeoutExpired:
                pass
        log.seek(0)
        return Ended(status, hung, log.read(), taken)
