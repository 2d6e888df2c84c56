"""Clusters of names and addresses that are late, lead to loopback, or are of two families. Each task has an /etc/hosts of its own."""
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest

from processes import free_ports

COHORT = os.environ["COHORT"]
OWN_HOSTS = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /etc/hosts && shift && exec "$@"', "sh"]


def can_have_own_hosts():
    with tempfile.NamedTemporaryFile() as file:
        try:
            return subprocess.run([*OWN_HOSTS, file.name, "true"], capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as place:
            place.bind(("::1", 0))
            return True
    except OSError:
        return False


class Tasks:
    """The tasks of a test."""

    def __init__(self, test):
        self.test = test
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def hosts(self, *lines):
        file = self.folder / f"hosts{len(list(self.folder.iterdir()))}"
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return file

    def start(self, strategy, cluster, hosts=None):
        """Starts all tasks of a cluster, in the order of its jobs."""
        tasks = []
        for job, addresses in cluster.items():
            for index in addresses if isinstance(addresses, dict) else range(len(addresses)):
                config = {"cluster": cluster, "task": {"type": job, "index": int(index)}}
                prefix = [*OWN_HOSTS, str(hosts[len(tasks)])] if hosts else []
                log = open(self.folder / f"{job}.{index}.log", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
                self.test.addCleanup(log.close)
                process = subprocess.Popen(
                    [*prefix, COHORT, "train", "--experiment=mnist_mlp", "--mode=train", f"--model_dir={self.folder}/run", "--train_steps=3",
                     "--batch_size=32", f"--distribution_strategy={strategy}"],
                    env={**os.environ, "TF_CONFIG": json.dumps(config)}, stdout=log, stderr=subprocess.STDOUT)
                self.test.addCleanup(process.wait)
                self.test.addCleanup(process.kill)
                tasks.append((process, pathlib.Path(log.name)))
        return tasks

    def expect_success(self, tasks):
        for process, log in tasks:
            self.test.assertEqual(process.wait(timeout=300), 0, log.read_text(encoding="utf-8"))

    def expect_one_error(self, tasks, text):
        for process, log in tasks:
            status = process.wait(timeout=300)
            said = log.read_text(encoding="utf-8")
            self.test.assertEqual(status, 2, said)
            self.test.assertIn(text, said)


class Indices(unittest.TestCase):
    """Indices and families that cannot work together are one error on all tasks, at once."""

    def setUp(self):
        self.tasks = Tasks(self)

    def test_a_gap_in_the_indices_of_workers(self):
        first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
        tasks = self.tasks.start("multi_worker_mirrored", {"worker": {"0": first, "2": second}})
        self.tasks.expect_one_error(tasks, "the 2 task(s) of job worker have the indices 0, 2, wanted 0 to 1 without a gap")

    def test_a_gap_in_the_indices_of_servers(self):
        chief, worker, first, second = (f"127.0.0.1:{port}" for port in free_ports(4))
        tasks = self.tasks.start("parameter_server", {"chief": [chief], "worker": [worker], "ps": {"0": first, "2": second}})
        self.tasks.expect_one_error(tasks, "the 2 task(s) of job ps have the indices 0, 2, wanted 0 to 1 without a gap")

    @unittest.skipUnless(has_ipv6(), "no IPv6 here")
    def test_workers_without_a_common_family(self):
        first, second = free_ports(2)
        tasks = self.tasks.start("multi_worker_mirrored", {"worker": [f"[::1]:{first}", f"127.0.0.1:{second}"]})
        self.tasks.expect_one_error(tasks, 'the workers have no common family of addresses, IPv4 or IPv6: worker 0 ["::1"], worker 1 ["127.0.0.1"]')


@unittest.skipUnless(can_have_own_hosts(), "an /etc/hosts of one's own needs root")
class Names(unittest.TestCase):
    """Names that lead to several places, to the wrong one, or nowhere yet."""

    def setUp(self):
        self.tasks = Tasks(self)

    @staticmethod
    def workers():
        first, second = free_ports(2)
        return {"worker": [f"one:{first}", f"two:{second}"]}

    @unittest.skipUnless(has_ipv6(), "no IPv6 here")
    def test_workers_that_know_each_other_by_different_families(self):
        both = self.tasks.hosts("::1 one two", "127.0.0.1 one two localhost")
        one = self.tasks.hosts("127.0.0.1 one two localhost")
        self.tasks.expect_success(self.tasks.start("multi_worker_mirrored", self.workers(), [both, one]))

    def test_machines_whose_own_name_leads_to_loopback(self):
        # 127.0.0.1 is the network here. Debian's and Ubuntu's installers write 127.0.1.1.
        first = self.tasks.hosts("127.0.0.1 localhost", "127.0.1.1 one", "127.0.0.1 two")
        second = self.tasks.hosts("127.0.0.1 localhost", "127.0.0.1 one", "127.0.1.1 two")
        self.tasks.expect_success(self.tasks.start("multi_worker_mirrored", self.workers(), [first, second]))

    def test_servers_whose_own_name_leads_to_loopback(self):
        chief, server, worker = free_ports(3)
        cluster = {"chief": [f"one:{chief}"], "ps": [f"two:{server}"], "worker": [f"one:{worker}"]}
        first = self.tasks.hosts("127.0.0.1 localhost", "127.0.1.1 one", "127.0.0.1 two")
        second = self.tasks.hosts("127.0.0.1 localhost", "127.0.0.1 one", "127.0.1.1 two")
        self.tasks.expect_success(self.tasks.start("parameter_server", cluster, [first, second, first]))

    def expect_success_with_late_names(self, strategy, cluster, waiting):
        late = self.tasks.hosts("127.0.0.1 localhost")
        tasks = self.tasks.start(strategy, cluster, [late] * sum(len(job) for job in cluster.values()))
        end = time.monotonic() + 120
        while not all("the address of its own host" in tasks[i][1].read_text(encoding="utf-8") for i in waiting):
            self.assertLess(time.monotonic(), end, [log.read_text(encoding="utf-8") for _, log in tasks])
            time.sleep(0.2)
        with open(late, "a", encoding="utf-8") as file:
            file.write("127.0.0.1 one two\n")
        self.tasks.expect_success(tasks)

    def test_workers_whose_names_come_late(self):
        self.expect_success_with_late_names("multi_worker_mirrored", self.workers(), [0, 1])

    def test_servers_whose_names_come_late(self):
        chief, server, worker = free_ports(3)
        cluster = {"chief": [f"one:{chief}"], "ps": [f"two:{server}"], "worker": [f"one:{worker}"]}
        self.expect_success_with_late_names("parameter_server", cluster, [1])
