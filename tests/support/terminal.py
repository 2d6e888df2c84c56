"""Programs in a terminal: a pseudo-terminal of some width, and what its screen shows."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time


class Screen:
    """The rows that a terminal of so many columns would show. Knows carriage returns, ends of lines and wrapping."""

    def __init__(self, columns):
        self.columns = columns
        self.rows = [""]
        self.column = 0
        self.wrapped = 0

    def show(self, text):
        for letter in text:
            if letter == "\r":
                self.column = 0
            elif letter == "\n":
                self.rows.append("")
                self.column = 0
            else:
                if self.column == self.columns:
                    self.rows.append("")
                    self.column = 0
                    self.wrapped += 1
                row = self.rows[-1].ljust(self.column)
                self.rows[-1] = row[:self.column] + letter + row[self.column + 1:]
                self.column += 1
        return self


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def run_in_terminal(command, columns, env=None, on_output=None, limit=120):
    """Runs a command with its output in a terminal; returns its status and everything that it wrote.
    on_output(terminal, text so far) is called as text comes."""
    terminal, end = pty.openpty()
    resize(terminal, columns)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=end, stderr=end, env=env) as process:
        os.close(end)
        data = b""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                some = os.read(terminal, 65536)
            except OSError:  # the program has ended
                break
            if not some:
                break
            data += some
            if on_output:
                on_output(terminal, data.decode())
        else:
            process.kill()
    os.close(terminal)
    # A terminal makes the end of a line two characters.
    return process.returncode, data.decode().replace("\r\n", "\n")
