"""Who may speak to the tasks of a job: strangers at every listening socket, and eyes on the wire between two machines."""
import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import machines
from processes import free_port, marked, records_of

COHORT = os.environ["COHORT"]
TRAIN = [COHORT, "train", "--experiment=mnist_mlp", "--seed=3", "--batch_size=96"]
LISTENS = "0A"
ACCEPTS = 0x10000  # the flag of a Unix socket that listens
ALERT = 0x15  # the type of a TLS record that refuses

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # with empty settings, as plain gRPC begins
GLOO = struct.pack("<6Q", 48 + 8, 1, 0, 0, 8, 0) + b"\0" * 8  # the head of a message to a buffer


def listening(processes):
    """The addresses on which these processes listen."""
    inodes = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(descriptor))
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            words = line.split()
            if words[3] != LISTENS or f"socket:[{words[9]}]" not in inodes:
                continue
            host, port = words[1].split(":")
            raw = b"".join(struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8))
            found.add((family, socket.inet_ntop(family, raw), int(port, 16)))
    return found


def local_ears(processes):
    """The files at which these processes listen; one that is no file, but a name alone, begins with "@"."""
    inodes = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(descriptor))
    found = set()
    for line in pathlib.Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & ACCEPTS and f"socket:[{words[6]}]" in inodes:
            found.add(words[7])
    return found


def heard(connection):
    """All that comes until the other end closes."""
    connection.settimeout(20)
    said = b""
    try:
        while True:
            part = connection.recv(4096)
            if not part:
                return said
            said += part
    except ConnectionError:
        return said


def tls_without_certificate(connection):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection) as secured:
            secured.sendall(HTTP2)
            said = heard(secured)
    except (ssl.SSLError, ConnectionError):
        return b""
    return said


def in_the_open(words):
    def talk(connection):
        with contextlib.suppress(ConnectionError):
            connection.sendall(words)
        return heard(connection)
    return talk


STRANGERS = {"garbage": in_the_open(bytes(range(256)) * 16), "web": in_the_open(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
             "plain gRPC": in_the_open(HTTP2), "Gloo": in_the_open(GLOO), "TLS without a certificate": tls_without_certificate}


def answers(address):
    """What each stranger is told there, but for refusals."""
    family, host, port = address
    told = {}
    for name, talk in STRANGERS.items():
        with socket.socket(family) as connection:
            try:
                connection.settimeout(20)
                connection.connect((host, port))
            except ConnectionError:
                continue  # it listens no more
            said = talk(connection)
            if said and said[0] != ALERT:
                told[name] = said
    return told


class Strangers(unittest.TestCase):
    """With the defaults of the launcher every port refuses everybody else, and the job goes on."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def scan(self, command, least, end=None):
        """Talks to all ports of a job until it ends; the ports. A job that waits for the file `end` gets it once so many are known."""
        mark = f"COHORT_MARK={self.folder}"
        job = subprocess.Popen(command, env={**os.environ, "COHORT_MARK": self.folder}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.kill)
        reader = threading.Thread(target=lambda: setattr(self, "said", job.stdout.read()))
        reader.start()
        done, self.local = set(), set()
        begin = time.monotonic()
        while job.poll() is None:
            passed = time.monotonic() - begin
            if end and passed > (2 if len(done) >= least else 100):
                end.touch()
            for address in listening(marked(mark)) - done:
                self.assertEqual(answers(address), {}, address)
                done.add(address)
            for file in local_ears(marked(mark)) - self.local:
                with contextlib.suppress(FileNotFoundError):
                    folder = pathlib.Path(file).parent.stat()
                    self.assertEqual((folder.st_mode & 0o777, folder.st_uid), (0o700, os.getuid()), file)
                self.local.add(file)
            time.sleep(0.02)
        reader.join()
        job.stdout.close()
        self.assertEqual(job.returncode, 0, self.said)
        self.assertGreaterEqual(len(done), least, self.said)
        return done

    def test_find_no_ear_among_workers(self):
        self.scan([COHORT, "launch", "--nproc=2", "--", *TRAIN, "--train_steps=200", f"--model_dir={self.folder}/run",
                   "--distribution_strategy=multi_worker_mirrored"], 1)
        self.assertEqual(records_of(f"{self.folder}/run")[-1]["step"], 200)

    def test_find_no_ear_among_servers(self):
        self.scan([COHORT, "launch", "--ps=2", "--workers=2", "--", *TRAIN, "--train_steps=200", f"--model_dir={self.folder}/run",
                   "--distribution_strategy=parameter_server"], 3)
        self.assertEqual(max(record["step"] for record in records_of(f"{self.folder}/run")), 200)
        self.assertGreaterEqual(len(self.local), 3, "the tasks of this machine do not go by the network")

    def test_find_no_ear_among_launchers(self):
        end = pathlib.Path(self.folder, "end")
        self.scan([COHORT, "launch", "--elastic=1:2", f"--master_port={free_port()}", "--", "sh", "-c", f"while ! [ -e {end} ]; do sleep 0.05; done"], 1, end)


class Secrets(unittest.TestCase):
    """The secret of a job stands where its tasks find it, and nowhere else."""

    def launch(self, *arguments, **options):
        return subprocess.run([COHORT, "launch", *arguments], capture_output=True, text=True, check=False, timeout=60, **options)

    def test_is_handed_over_by_a_descriptor(self):
        script = 'cat /proc/self/fd/$COHORT_SECRET_FD; echo; env; tr "\\0" " " < /proc/$PPID/cmdline'
        jobs = [self.launch("--nproc=1", "--", "sh", "-c", script).stdout for _ in range(2)]
        secrets = []
        for said in jobs:
            secret = said.splitlines()[0].removeprefix("[worker 0] ")
            self.assertRegex(secret, "^[0-9a-f]{64}$")
            self.assertEqual(said.count(secret), 1, "neither variables nor arguments have it")
            secrets.append(secret)
        self.assertNotEqual(*secrets)

    def test_goes_to_other_machines_by_standard_input(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder, "ssh")
            ssh.write_text(f'#!/bin/sh\necho "$2" >> {folder}/commands\nexec sh -c "$2"\n', encoding="utf-8")
            ssh.chmod(0o755)
            done = self.launch("--hosts=127.0.0.1,localhost", f"--master_port={free_port()}", f"--ssh={ssh}", "-x", "API_TOKEN", "--", "sh", "-c",
                               'echo "secret $(cat /proc/self/fd/$COHORT_SECRET_FD) $API_TOKEN"', env={**os.environ, "API_TOKEN": "tell-nobody"})
            self.assertEqual(done.returncode, 0, done.stderr)
            secrets = {line.split("secret ")[1] for line in done.stdout.splitlines()}
            self.assertEqual(len(secrets), 1, done.stdout)
            secret, token = secrets.pop().split()
            self.assertEqual(token, "tell-nobody")
            commands = pathlib.Path(folder, "commands").read_text(encoding="utf-8")
            self.assertEqual(commands.count("--read_job"), 2)
            for hidden in (secret, token):
                self.assertNotIn(hidden, commands)

    def test_is_that_of_the_file_or_none_when_the_user_says_so(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("0123456789abcdef\n")
            file.flush()
            show = ["--", "sh", "-c", 'echo "[$(cat /proc/self/fd/$COHORT_SECRET_FD)] [$COHORT_INSECURE]"']
            self.assertIn("[0123456789abcdef] []", self.launch(f"--secret_file={file.name}", *show).stdout)
            outside = {**os.environ, "COHORT_SECRET_FILE": file.name}
            self.assertIn("[0123456789abcdef] []", self.launch(*show, env=outside).stdout)
        self.assertIn("[] [1]", self.launch("--insecure", "--", "sh", "-c", 'echo "[$COHORT_SECRET_FD] [$COHORT_INSECURE]"').stdout)

    def test_leaves_nothing_behind_when_the_disk_is_full(self):
        def no_bytes():  # which is what a full disk has, for files
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

        with tempfile.TemporaryDirectory() as folder:
            done = self.launch("--elastic=1:2", f"--master_port={free_port()}", "--", "true", env={**os.environ, "XDG_RUNTIME_DIR": folder}, preexec_fn=no_bytes)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("for the secret of this user's launchers: File too large", done.stderr)
            self.assertEqual([file for file in pathlib.Path(folder).rglob("*") if not file.is_dir()], [])

    def test_that_was_closed_on_the_way_is_named(self):
        closing = f"import subprocess, sys; sys.exit(subprocess.run({[*TRAIN, '--distribution_strategy=multi_worker_mirrored', '--train_steps=1', '--model_dir=/dev/null']!r}).returncode)"
        done = self.launch("--nproc=2", "--", sys.executable, "-c", closing)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("but the job's secret is not there", done.stdout)


SNIFFER = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE: nothing is to be missed
print("ready", flush=True)
with open(sys.argv[1], "wb") as file:
    while True:
        file.write(wire.recv(1 << 17))
        file.flush()
"""


SENDER = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), ("10.78.0.2", 9))
"""


@unittest.skipUnless(machines.can_make(), machines.NEED)
class Wire(unittest.TestCase):
    """What somebody sees who can read all that passes between two machines."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.inside = machines.MachinesOfTest(self).inside

    def seen(self, tasks, flags):
        """The bytes on the wire while these tasks (which machine, TF_CONFIG's task) train with weights that stay as they were; the weights."""
        capture = self.folder / "capture"
        sniffer = self.inside(0, [sys.executable, "-c", SNIFFER, capture])
        self.assertEqual(sniffer.stdout.readline(), "ready\n")
        cluster = {}
        for which, (job, _) in tasks:
            cluster.setdefault(job, []).append(f"10.78.0.{which + 1}:{5000 + len(cluster.get(job, [])) + 10 * len(cluster)}")
        run = self.folder / f"run{len(list(self.folder.iterdir()))}"
        overrides = "trainer.optimizer_config.learning_rate.type=constant,trainer.optimizer_config.learning_rate.constant.learning_rate=0"
        command = [*TRAIN, "--train_steps=5", f"--params_override={overrides}", f"--model_dir={run}", *flags]
        processes = [self.inside(which, command, env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})})
                     for which, (job, index) in tasks]
        for process in processes:
            said, _ = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, said)
        self.wait_for_the_last(capture)
        sniffer.kill()
        sniffer.wait()
        return capture.read_bytes(), self.weights_in(run)

    def wait_for_the_last(self, capture):
        """Waits until all that has passed until now is in the capture."""
        mark = f"the last, {time.monotonic_ns()}"
        self.inside(0, [sys.executable, "-c", SENDER, mark]).wait()
        end = time.monotonic() + 60
        while mark.encode() not in capture.read_bytes():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    @staticmethod
    def weights_in(run):
        """Parts of the largest tensor of the newest checkpoint."""
        file = max(run.rglob("model.safetensors"), key=lambda path: path.stat().st_mtime).read_bytes()
        size = struct.unpack("<Q", file[:8])[0]
        spans = [each["data_offsets"] for name, each in json.loads(file[8:8 + size]).items() if name != "__metadata__"]
        begin, end = max(spans, key=lambda span: span[1] - span[0])
        tensor = file[8 + size + begin:8 + size + end]
        step = len(tensor) // 64
        return [tensor[i:i + 16] for i in range(0, len(tensor) - 16, step)]

    def expect_hidden(self, tasks, *flags):
        secret = self.folder / "secret"
        secret.write_text("a secret of the test's", encoding="utf-8")
        shown, weights = self.seen(tasks, [*flags, "--insecure"])
        self.assertGreater(sum(part in shown for part in weights), len(weights) // 2, "without protection the weights are to be seen")
        hidden, weights = self.seen(tasks, [*flags, f"--secret_file={secret}"])
        self.assertGreater(len(hidden), 4 * len(weights) * 16)
        self.assertEqual(sum(part in hidden for part in weights), 0)

    def test_between_workers(self):
        self.expect_hidden([(0, ("worker", 0)), (1, ("worker", 1))], "--distribution_strategy=multi_worker_mirrored")

    def test_between_a_server_and_a_worker(self):
        self.expect_hidden([(0, ("chief", 0)), (0, ("ps", 0)), (1, ("worker", 0))], "--distribution_strategy=parameter_server")

    def test_neither_secret_nor_insecure_is_refused(self):
        process = self.inside(0, [*TRAIN, "--train_steps=1", f"--model_dir={self.folder}/run", "--distribution_strategy=multi_worker_mirrored",
                                  "--worker_hosts=10.78.0.1:5000,10.78.0.2:5000", "--task_index=0"])
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("10.78.0.1:5000 can be reached from other machines, and nothing says who may", said)


if __name__ == "__main__":
    unittest.main()
