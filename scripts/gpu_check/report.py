"""The report: lines that are printed, and added to a file, as soon as they are known."""
import os
import threading
import time


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
        """One line of a verdict, with the last lines of the details behind it if it is a failure."""
        with self.lock:
            self.failures += 0 if good else 1
        indented = "".join("\n      " + line[:300] for line in details.splitlines()[-15:])
        self.say(f"- {'ok' if good else 'FAILED'}: {what}{'' if good else indented}")


class Budget:
    """The time that a part of the check may take."""

    def __init__(self, minutes):
        self.end = time.monotonic() + minutes * 60

    def left(self):
        return self.end - time.monotonic()
