"""The report: lines that are printed, and added to a file, as soon as they are known."""
import os
import threading
import time

SOME = 8  # lines of a failure, from its beginning and from its end


class Report:
    def __init__(self, file=None):
        self.file = file
        self.failures = 0
        self.lock = threading.Lock()
        self.begin = time.monotonic()

    def say(self, line=""):
        """Writes a line; it is on the disk when this returns, whatever happens to the machine next."""
        with self.lock:
            print(line, flush=True)
            if self.file:
                with open(self.file, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
                    file.flush()
                    os.fsync(file.fileno())

    def verdict(self, good, what, details=""):
        """One line of a verdict, with the first and the last lines of the details behind it if it is a failure."""
        with self.lock:
            self.failures += 0 if good else 1
        lines = details.splitlines()
        if len(lines) > 2 * SOME:
            lines = [*lines[:SOME], f"... {len(lines) - 2 * SOME} lines ...", *lines[-SOME:]]
        indented = "".join("\n      " + line[:300] for line in lines)
        self.say(f"- {'ok' if good else 'FAILED'}: {what}{'' if good else indented}")


class Budget:
    """The time that a part of the check may take."""

    def __init__(self, minutes):
        self.end = time.monotonic() + minutes * 60

    def left(self):
        return self.end - time.monotonic()
