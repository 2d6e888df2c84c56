"""Machines for tests: network namespaces on a bridge, which need root and ip of iproute2."""
import itertools
import os
import subprocess

NEED = "network namespaces need root, and ip of iproute2"
numbers = itertools.count()


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def can_make():
    name = f"cohort-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
        bridge = made and subprocess.run(["ip", "-n", name, "link", "add", "br0", "type", "bridge"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return bridge


class Machines:
    """`count` of them, numbered from 0, until the end of the test."""

    def __init__(self, test, count=2):
        self.test = test
        number = next(numbers)
        self.switch = f"cohort-{os.getpid()}-{number}-switch"
        self.names = [f"cohort-{os.getpid()}-{number}-{i}" for i in range(count)]
        for name in [self.switch, *self.names]:
            test.addCleanup(subprocess.run, ["ip", "netns", "del", name], capture_output=True, check=False)
            ip("netns", "add", name)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        self.connect(True)
        for i, name in enumerate(self.names):
            ip("-n", self.switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", self.switch, "link", "set", f"port{i}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "address", self.hardware(i))
            for link in ("eth0", "lo"):
                ip("-n", name, "link", "set", link, "up")
            # Nobody asks for these addresses again, a second after an outage at the earliest.
            for other in range(count):
                if other != i:
                    ip("-n", name, "neigh", "replace", self.address(other), "lladdr", self.hardware(other), "dev", "eth0", "nud", "permanent")

    @staticmethod
    def address(i):
        return f"10.78.0.{i + 1}"

    @staticmethod
    def hardware(i):
        return f"02:00:00:00:00:{i + 1:02x}"

    def connect(self, on):
        """Whether anything passes between the machines, which see nothing of it but that."""
        ip("-n", self.switch, "link", "set", "br0", "up" if on else "down")

    def inside(self, which, command, **options):
        """Starts a command on a machine; its output can be read."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        process = subprocess.Popen(["ip", "netns", "exec", self.names[which], *command], **options)
        if process.stdout:
            self.test.addCleanup(process.stdout.close)
        self.test.addCleanup(process.wait)
        self.test.addCleanup(process.kill)
        return process
