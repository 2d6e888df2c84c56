"""cohort train --metrics_port, read by Prometheus' own parsers: that of its Python client, and promtool where it is."""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from processes import free_port

COHORT = os.environ["COHORT"]
PROMTOOL = shutil.which("promtool")
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


def got(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


class Metrics(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    def started(self, *command):
        """A process that is killed at the end of the test."""
        child = subprocess.Popen([COHORT, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def end():
            child.kill()
            child.stdout.close()
            child.wait()

        self.addCleanup(end)
        return child

    def flags(self, *more):
        return ["train", "--experiment=mnist_mlp", "--train_steps=1000000", f"--model_dir={self.folder}/run", "--params_override=trainer.steps_per_loop=10,trainer.summary_interval=10,trainer.checkpoint_interval=10",
                *more]

    def values(self, port, until):
        """The figures by their names, once `until` is among them."""
        ends = time.monotonic() + 60
        while until not in (text := got(port)) and time.monotonic() < ends:
            time.sleep(0.1)
        self.assertIn(until, text)
        if PROMTOOL:
            done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), text)
        figures = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                figures[sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))] = sample.value
        return figures

    @unittest.skipIf(text_string_to_metric_families is None, "there is no prometheus_client")
    def test_a_run_says_how_it_comes_on(self):
        child = self.started(*self.flags("--distribution_strategy=mirrored", "--num_replicas=2", "--metrics_port=127.0.0.1:0"))
        port = next(int(found.group(1)) for line in child.stdout if (found := re.search(r"metrics on port (\d+)", line)))
        figures = self.values(port, until="cohort_checkpoint_timestamp_seconds")
        self.assertEqual(figures["cohort_info", "rank=0", "replicas=2", "strategy=mirrored"], 1)
        self.assertEqual(figures["cohort_ready",], 1)
        self.assertGreaterEqual(figures["cohort_global_step",], 10)
        self.assertGreater(figures["cohort_log", "name=loss", "phase=train"], 0)
        self.assertGreater(figures["cohort_examples_per_second", "phase=train"], 0)
        for category in ("compute", "input", "checkpoint"):
            self.assertGreater(figures["cohort_span_seconds_total", f"category={category}"], 0)
        self.assertGreater(figures["process_resident_memory_bytes",], 1e7)
        self.assertEqual(got(port, "/healthz"), "ok\n")
        self.assertEqual(got(port, "/readyz"), "ready\n")

    @unittest.skipIf(text_string_to_metric_families is None, "there is no prometheus_client")
    def test_workers_of_a_machine_have_ports_beside_each_other(self):
        port = free_port()
        child = self.started("launch", "--nproc=2", "--", COHORT, *self.flags("--distribution_strategy=multi_worker_mirrored", f"--metrics_port={port}"))
        seen = set()
        for line in child.stdout:
            seen.update(re.findall(r"metrics on port (\d+)", line))
            if len(seen) == 2:
                break
        self.assertEqual(seen, {str(port), str(port + 1)})
        for rank in range(2):
            figures = self.values(port + rank, until="cohort_log")
            self.assertEqual(figures["cohort_info", f"rank={rank}", "replicas=2", "strategy=multi_worker_mirrored"], 1)
            self.assertEqual(figures["cohort_restarts_total",], 0)
            self.assertGreater(figures["cohort_span_seconds_total", "category=communication"], 0)

    def test_a_worker_that_waits_for_others_lives_and_is_not_ready(self):
        port = free_port()
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        child = subprocess.Popen([COHORT, *self.flags("--distribution_strategy=multi_worker_mirrored", "--insecure", f"--metrics_port={port}")],
                                 env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for line in child.stdout:
                if "metrics on port" in line:
                    break
            self.assertEqual(got(port, "/healthz"), "ok\n")
            with self.assertRaises(urllib.error.HTTPError) as refused:
                got(port, "/readyz")
            self.assertEqual(refused.exception.code, 503)
            refused.exception.close()
        finally:
            child.kill()
            child.stdout.close()
            child.wait()

    def test_wrong_ports_are_wrong_calls(self):
        for port, part in (("x", "is no port"), (":9090", "is no port"), ("1:2:", "is no port"), ("70000", "is no port"), ("-1", "is no port"),
                           ("1.2.3.4.5:0", "cannot listen on 1.2.3.4.5:0")):
            done = subprocess.run([COHORT, *self.flags(f"--metrics_port={port}")], capture_output=True, text=True, check=False, timeout=60)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.returncode, 1 if "listen" in part else 2, port)


if __name__ == "__main__":
    unittest.main()
