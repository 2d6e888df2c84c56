"""The table of the peers says what held, what failed and what is absent. The sides are small programs, nothing is measured."""
import argparse
import json
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import environments
import peers


def program(*, us=100.0, least=50.0, code=0):
    line = json.dumps({"us": us, "least_us": least, "samples_per_second": 64e6 / us})
    return [sys.executable, "-S", "-c", f"import sys; print('[worker 0] ' + {line!r}); sys.exit({code})"]


def fails(message="no module named peer"):
    return [sys.executable, "-S", "-c", f"import sys; sys.exit({message!r})"]


def measured(*sides, rounds=2):
    peers.measure(sides, rounds)
    return list(peers.model_rows("mlp", sides))


class Table(unittest.TestCase):
    def ours(self, **times):
        return peers.Side(peers.OURS_2, [program(**times)]), peers.Side(peers.OURS_1, [program(**times)])

    def test_a_ratio_is_that_of_the_rounds(self):
        rows = measured(*self.ours(us=100), peers.Side("JAX, jit", [program(us=150)]))
        self.assertIn("| JAX, jit | 426,667 (best 426,667) | 1.50 (1.50 to 1.50) | 1.50 (1.50 to 1.50) |", rows[2])

    def test_what_the_issue_wants_holds_or_fails(self):
        eager = peers.Side("PyTorch, eager", [program(us=320)])
        self.assertIn("2 replicas: 3.2, holds", measured(*self.ours(us=100), eager)[2])
        eager = peers.Side("PyTorch, eager", [program(us=319)])
        self.assertIn("2 replicas: 3.2, fails", measured(*self.ours(us=100), eager)[2])

    def test_the_best_way_of_a_side_counts_and_one_that_fails_does_not(self):
        side = peers.Side("PyTorch, compiled", [program(us=400), fails(), program(us=200)])
        self.assertIn("| 320,000 (best 320,000) | 2.00", measured(*self.ours(us=100), side)[2])

    def test_a_side_that_fails_says_why(self):
        rows = measured(*self.ours(), peers.Side("TensorFlow, called", [fails("no wheel")]), peers.Side("JAX, jit", [program(code=3)]))
        self.assertIn("| TensorFlow, called | fails: no wheel |", rows[2])
        self.assertIn("| JAX, jit | fails: no output |", rows[3])

    def test_the_shortest_step_counts_where_that_is_asked_for(self):
        side = peers.Side("JAX, jit", [program(us=400, least=100)])
        mine = self.ours(us=200, least=50)
        for each in (*mine, side):
            each.least = True
        self.assertIn("| 640,000 (best 640,000) | 2.00", measured(*mine, side)[2])


class Divided(unittest.TestCase):
    def rows(self, python="python3", **programs):
        arguments = argparse.Namespace(rows=["divided"], peers=["torch"], only="", one_core=False, rounds=1, seconds=1.0, bench="cohort_bench")
        with mock.patch.object(peers, "DIVIDED", {"net": {"ours": ("step",), "theirs": (["fsdp2"], 1.4)}}), \
                mock.patch.object(peers, "divided_side", lambda _, __, name, ___: peers.Side(name, [programs[name]])):
            return list(peers.divided_report(arguments, python))

    def test_a_ratio_holds_or_fails(self):
        self.assertIn("| net | theirs | 640,000.0 | 457,142.9 | 1.40 (1.40 to 1.40) | 1.4, holds |", self.rows(ours=program(us=100), theirs=program(us=140))[1])
        self.assertIn("1.4, fails |", self.rows(ours=program(us=100), theirs=program(us=139))[1])

    def test_a_side_that_fails_says_why(self):
        self.assertIn("| net | theirs | 640,000.0 | fails: no wheel | - | 1.4, - |", self.rows(ours=program(), theirs=fails("no wheel"))[1])

    def test_an_absent_peer_is_said_to_be_absent(self):
        self.assertIn("not run, it is absent", self.rows(python=None)[0])

    def test_each_side_is_told_what_it_has_to_run(self):
        arguments = argparse.Namespace(bench="folder/cohort_bench", seconds=1.0)
        ours = peers.divided_side(arguments, "python3", "ours", ("worker_step", "--sharding_stage", "3")).commands[0]
        self.assertEqual(ours, ["folder/cohort", "launch", "--nproc=2", "--", "folder/cohort_bench", "--seconds", "3.0", "worker_step", "--sharding_stage", "3"])
        theirs = peers.divided_side(arguments, "python3", "theirs", ["transformer", "2"]).commands[0]
        self.assertEqual(theirs, ["python3", peers.HERE / "pytorch_parallel.py", "transformer", "3.0", "2"])


class Environments(unittest.TestCase):
    def test_no_network_is_absent(self):
        before = environments.PYTHON, environments.ROOT
        with self.subTest("no Python with venv"):
            environments.PYTHON = "/bin/false"
            environments.ROOT = pathlib.Path("/nonexistent")
            try:
                self.assertIsNone(environments.python_of("torch"))
            finally:
                environments.PYTHON, environments.ROOT = before


if __name__ == "__main__":
    unittest.main()
