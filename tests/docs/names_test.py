"""What docs/names.md is held to."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import names  # noqa: E402

PAGE = """# Every name

## tf.distribute

| TensorFlow | Cohort | note |
|---|---|---|
| `Strategy.run` | `Strategy::run` | |
| `Server` | no: absent; `serve` | |

## Flags

| TensorFlow | Cohort | note |
|---|---|---|
| `--mode` | `--mode` | a mode |
"""


class Names(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "names.md"

    def problems(self, text):
        self.page.write_text(text, encoding="utf-8")
        found, problems = names.rows(self.page)
        return problems + names.check_rows(self.page, found)

    def test_a_page_in_order(self):
        self.assertEqual(self.problems(PAGE), [])
        found, _ = names.rows(self.page)
        self.assertEqual([(row.line, row.table) for row in found], [(7, "tf.distribute"), (8, "tf.distribute"), (14, "Flags")])

    def test_the_source_has_every_name_and_its_row(self):
        self.assertEqual(self.problems(PAGE), [])
        source = names.source(self.page, names.rows(self.page)[0])
        self.assertIn(f'#line 7 "{self.page}"\nstruct Member1 : ::cohort::Strategy {{ using ::cohort::Strategy::run; }};', source)
        self.assertIn(f'#line 8 "{self.page}"\nnamespace names_2 {{ using ::cohort::serve; }}', source)
        self.assertNotIn("mode", source)
        self.assertIn("= ::cohort::ReduceOp::kSum;", names.use("ReduceOp::kSum", 1))

    def test_rows_that_are_no_answer(self):
        for wrong, message in [("`Strategy::run` | |", "neither"), ("`Strategy::run` |", "cells"), ("`Strategy.run` |", "no name of")]:
            right = {"neither": "absent | |", "cells": "`Strategy::run` | | |", "no name of": "Strategy.run |"}[message]
            with self.subTest(message):
                problems = self.problems(PAGE.replace(wrong, right, 1))
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(f"{self.page}:7: ", problems[0])
                self.assertIn(message, problems[0])

    def test_a_name_stands_once(self):
        self.assertIn("Server stands twice in tf.distribute", "".join(self.problems(PAGE.replace("`Strategy.run`", "`Server`"))))

    def test_columns(self):
        self.assertIn("the columns are", "".join(self.problems(PAGE.replace("| TensorFlow | Cohort | note |", "| Cohort | TensorFlow | note |", 1))))

    def tensorflow(self, text, *listed):
        self.page.write_text(text, encoding="utf-8")
        found, _ = names.rows(self.page)
        return names.check_tensorflow(self.page, found, listed)

    def test_names_of_tensorflow(self):
        listed = ["tf.distribute.Server", "tf.distribute.Strategy", "tf.distribute.Strategy.run", "tf.distribute.cluster.Kind"]
        page = PAGE.replace("| `Strategy.run`", "| `Strategy`, `cluster.Kind`, `Strategy.run`")
        self.assertEqual(self.tensorflow(page, *listed), [])
        for name in listed:
            with self.subTest(name):
                short = name.removeprefix("tf.distribute.")
                self.assertEqual(self.tensorflow(page.replace(f"`{short}`", "", 1), *listed), [f"{self.page}: {name} is missing"])
                # The other tables do not count.
                moved = page.replace(f"`{short}`", "", 1).replace("`--mode`", f"`--mode`, `{short}`", 1)
                self.assertEqual(self.tensorflow(moved, *listed), [f"{self.page}: {name} is missing"])

    def test_names_that_tensorflow_does_not_have(self):
        listed = ["tf.distribute.Server", "tf.distribute.Strategy", "tf.distribute.Strategy.run"]
        page = PAGE.replace("| `Strategy.run`", "| `Strategy`, `Strategy.run`")
        for name in ["Mirror", "Mirror.run", "Mirror(devices)", "Strategy.walk", "experimental.Server", "Strategy.run.fast.er"]:
            with self.subTest(name):
                problems = self.tensorflow(page.replace("`Strategy`", f"`Strategy`, `{name}`"), *listed)
                self.assertEqual(problems, [f"{self.page}:7: TensorFlow has no tf.distribute.{name}"])
        # Members and arguments of what has none in the list, and members with underscores.
        for name in ["Server.start", "Server(protocol)", "Strategy.run(options)", "Strategy.__init__"]:
            with self.subTest(name):
                self.assertEqual(self.tensorflow(page.replace("`Strategy`", f"`Strategy`, `{name}`"), *listed), [])

    def test_the_list_is_read(self):
        listed = self.folder / "names.txt"
        self.page.write_text(PAGE, encoding="utf-8")
        for text, code in [("# Names\ntf.distribute.Server\ntf.distribute.Strategy.run\n", 0), ("tf.distribute.Strategy.run\ntf.train.A\n", 1), ("", 1)]:
            listed.write_text(text, encoding="utf-8")
            run = subprocess.run([sys.executable, names.__file__, str(self.page), "--tensorflow", str(listed)], capture_output=True, text=True)
            self.assertEqual(run.returncode, code, run.stderr)

    def test_a_flag_that_is_not_there(self):
        cohort = self.folder / "cohort"
        cohort.write_text("#!/bin/sh\necho '{\"commands\": {\"train\": [{\"names\": [\"--seed\"], \"meaning\": \"see --mode\"}]}}'\n", encoding="utf-8")
        cohort.chmod(0o755)
        self.page.write_text(PAGE, encoding="utf-8")
        run = subprocess.run([sys.executable, names.__file__, str(self.page), "--check", str(cohort)], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr, f"{self.page}:14: cohort train has no --mode\n")


if __name__ == "__main__":
    unittest.main()
