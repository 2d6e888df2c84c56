"""Machines for tests: network namespaces, which need root and ip of iproute2."""
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
    """`count` machines, numbered from 0, until close(). Something else gives each of them its eth0."""

    def __init__(self, count, network="10.78.0"):
        self.network = network
        prefix = f"cohort-{os.getpid()}-{next(numbers)}"
        self.names = [f"{prefix}-{i}" for i in range(count)]
        self.spaces = []  # all namespaces
        for name in self.names:
            self.add_space(name)

    def add_space(self, name):
        ip("netns", "add", name)
        self.spaces.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def address(self, i):
        return f"{self.network}.{i + 1}"

    @staticmethod
    def hardware(i):
        return f"02:00:00:00:00:{i + 1:02x}"

    def address_of(self, machine, number):
        """Gives a machine the address of this number and no other; it may have it in the place of another machine."""
        name = self.names[machine]
        ip("-n", name, "link", "set", "eth0", "address", self.hardware(number))
        ip("-n", name, "addr", "flush", "dev", "eth0")  # or what it sends would come from the first one that it had
        ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        # Nobody asks for these addresses again, a second after an outage at the earliest.
        for other in range(len(self.names)):
            if other != number:
                ip("-n", name, "neigh", "replace", self.address(other), "lladdr", self.hardware(other), "dev", "eth0", "nud", "permanent")

    def inside(self, machine, command, **options):
        """Starts a command on a machine."""
        return subprocess.Popen(["ip", "netns", "exec", self.names[machine], *command], **options)

    def processes(self):
        """The processes on all machines."""
        return [int(pid) for name in self.names
                for pid in subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True).stdout.split()]

    def close(self):
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class BridgedMachines(Machines):
    """Machines on a bridge, which has a namespace of its own."""

    def __init__(self, count, network="10.78.0"):
        super().__init__(count, network)
        try:
            self.bridge = f"{self.names[0]}-bridge"
            self.add_space(self.bridge)
            ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
            self.connect(True)
            for i, name in enumerate(self.names):
                ip("-n", self.bridge, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("-n", self.bridge, "link", "set", f"port{i}", "master", "br0", "up")
                self.address_of(i, i)
        except BaseException:
            self.close()
            raise

    def connect(self, on, machine=None):
        """Whether anything passes to and from a machine, or between any; they see nothing of it but that."""
        ip("-n", self.bridge, "link", "set", "br0" if machine is None else f"port{machine}", "up" if on else "down")


class MachinesOfTest(BridgedMachines):
    """Two machines, until the end of a test; so are the commands on them, whose output can be read."""

    def __init__(self, test):
        super().__init__(2)
        self.test = test
        test.addCleanup(self.close)

    def inside(self, machine, command, **options):
        process = super().inside(machine, command, **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options})
        if process.stdout:
            self.test.addCleanup(process.stdout.close)
        self.test.addCleanup(process.wait)
        self.test.addCleanup(process.kill)
        return process
