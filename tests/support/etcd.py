"""An etcd cluster of real processes in temporary folders, for the tests of whole runs."""
import pathlib
import shutil
import subprocess
import tempfile

from processes import free_ports

MISSING = "" if shutil.which("etcd") else "etcd is not here: apt-get install etcd-server"


class EtcdServers:
    def __init__(self, count):
        self.folder = tempfile.TemporaryDirectory()
        ports = free_ports(2 * count)
        self.clients, self.peers = ports[:count], ports[count:]
        self.processes = [None] * count
        for member in range(count):
            self.start(member)

    @property
    def coordination(self):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def start(self, member):
        client, peer = (f"http://127.0.0.1:{ports[member]}" for ports in (self.clients, self.peers))
        cluster = ",".join(f"member{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        with pathlib.Path(self.folder.name, f"member{member}.log").open("a", encoding="utf-8") as log:
            self.processes[member] = subprocess.Popen(
                ["etcd", f"--name=member{member}", f"--data-dir={self.folder.name}/member{member}", f"--listen-client-urls={client}",
                 f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                 f"--initial-cluster={cluster}", "--initial-cluster-token=cohort-test", "--unsafe-no-fsync=true"], stdout=log, stderr=log)

    def kill(self, member):
        self.processes[member].kill()
        self.processes[member].wait()

    def close(self):
        for member in range(len(self.processes)):
            self.kill(member)
        self.folder.cleanup()
