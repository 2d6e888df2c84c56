"""The checks find what they are there to find."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def check(script, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "src").mkdir()
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPTS / script, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class Layers(unittest.TestCase):
    def test_a_layer_may_include_itself_and_what_is_above(self):
        code, out = check("check_layers.py", {"src/data/a.cpp": '#include "base/fail.h"\n#include "data/b.h"\n#include <vector>\n'})
        self.assertEqual(code, 0, out)

    def test_a_lower_layer_is_refused(self):
        code, out = check("check_layers.py", {"src/base/a.h": '#include "train/model.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("layer base includes train/model.h, of the lower layer train", out)

    def test_an_unknown_layer_is_refused(self):
        self.assertEqual(check("check_layers.py", {"src/misc/a.h": ""})[0], 1)

    def test_public_headers_include_little(self):
        good = '#include <torch/types.h>\n#include <vector>\n#include "cohort/error.h"\n'
        self.assertEqual(check("check_layers.py", {"include/cohort/strategy.h": good})[0], 0)
        for bad in ("<torch/torch.h>", "<spdlog/spdlog.h>", '"base/fail.h"'):
            self.assertEqual(check("check_layers.py", {"include/cohort/strategy.h": f"#include {bad}\n"})[0], 1, bad)

    def test_public_headers_keep_their_order(self):
        for header, name, code in (("strategy.h", "error.h", 0), ("strategy.h", "train/model.h", 1), ("strategy.h", "train.h", 1), ("train.h", "train/model.h", 0),
                                   ("train.h", "models/zoo.h", 1), ("train/model.h", "cluster/b.h", 0), ("cohort.h", "train.h", 0),
                                   ("cluster/b.h", "train/model.h", 1), ("data/a.h", "cluster/b.h", 1), ("data/a.h", "data/b.h", 0),
                                   ("models/a.h", "train/model.h", 0), ("models/a.h", "train.h", 1)):
            got, out = check("check_layers.py", {f"include/cohort/{header}": f'#include "cohort/{name}"\n'})
            self.assertEqual(got, code, f"{header} {name}: {out}")

    def test_a_public_header_belongs_to_a_layer(self):
        code, out = check("check_layers.py", {"include/cohort/own.h": ""})
        self.assertEqual(code, 1)
        self.assertIn("own.h: belongs to no layer", out)

    def test_arrows_that_run_back_are_known(self):
        header = {"include/cohort/strategy.h": "class Strategy {\n  void optimizer();\n};\n"}
        code, out = check("check_layers.py", header | {"src/step/a.cpp": "void Strategy::optimizer() {}\n"})
        self.assertEqual((code, out.strip()), (0, "layers: in order; 0 places ask what the topology is; 0 includes run between wings; 1 arrows run back: "
                                                  "strategy -> step (Strategy::optimizer)"))
        code, out = check("check_layers.py", header | {"src/train/a.cpp": "void Strategy::fit() {}\n"})
        self.assertEqual(code, 1)
        self.assertIn("defines Strategy::fit of the layer strategy, which is of the lower layer train than strategy", out)
        code, out = check("check_layers.py", {"src/base/a.cpp": '#include "cohort/optimizer.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("includes cohort/optimizer.h, which is of the lower layer optimizer than base", out)

    def test_the_core_includes_no_wing(self):
        files = {"scripts/wings.txt": "# places\nxla include/cohort/xla\n", "include/cohort/cluster/a.h": "",
                 "include/cohort/strategy.h": "", "src/wings/mesh/strategy/b.h": "", "src/wings/pipeline/step/c.h": ""}
        wing = files | {"src/wings/pipeline/step/d.cpp": '#include "wings/pipeline/step/c.h"\n#include "wings/mesh/strategy/b.h"\n'}
        code, out = check("check_layers.py", wing)
        self.assertEqual(code, 0, out)
        self.assertIn("1 includes run between wings", out)
        for breach in ("src/train/d.cpp", "tools/cohort/d.cpp", "include/cohort/strategy.h"):
            code, out = check("check_layers.py", files | {breach: '#include "wings/mesh/strategy/b.h"\n'})
            self.assertEqual(code, 1, breach)
            self.assertIn(f"{breach}: the core includes src/wings/mesh/strategy/b.h of the wing mesh", out)
        files["scripts/wings.txt"] = "xla include/cohort/cluster/a\n"
        code, out = check("check_layers.py", files | {"src/train/d.cpp": '#include "cohort/cluster/a.h"\n'})
        self.assertIn("src/train/d.cpp: the core includes include/cohort/cluster/a.h of the wing xla", out)

    def test_commands_of_wings_are_none_of_the_core(self):
        files = {"tools/cohort/wings/launch/a.h": "", "tools/cohort/wings/launch/b.cpp": '#include "wings/launch/a.h"\n'}
        self.assertEqual(check("check_layers.py", files)[0], 0)
        code, out = check("check_layers.py", files | {"tools/cohort/main.cpp": '#include "wings/launch/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("tools/cohort/main.cpp: the core includes tools/cohort/wings/launch/a.h of the wing launch", out)

    def test_the_library_includes_no_umbrella(self):
        umbrella = {"include/cohort/train/layers.h": '#include "cohort/train/layers/a.h"\n', "include/cohort/train/layers/a.h": ""}
        self.assertEqual(check("check_layers.py", umbrella)[0], 0)
        code, out = check("check_layers.py", umbrella | {"src/train/b.cpp": '#include "cohort/train/layers.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("src/train/b.cpp: includes the umbrella cohort/train/layers.h", out)

    def test_few_includes_run_between_wings(self):
        files = {f"src/wings/mesh/strategy/{i}.h": "" for i in range(13)}
        include = "".join(f'#include "wings/mesh/strategy/{i}.h"\n' for i in range(13))
        code, out = check("check_layers.py", files | {"src/wings/pipeline/step/d.cpp": include})
        self.assertEqual(code, 1)
        self.assertIn("13 includes run between wings, at most 12 may", out)

    def test_a_wing_has_the_layers_of_its_folders(self):
        files = {"src/wings/mesh/strategy/a.h": "", "src/wings/mesh/step/b.h": ""}
        code, out = check("check_layers.py", files | {"src/wings/mesh/strategy/c.cpp": '#include "wings/mesh/step/b.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("layer strategy includes wings/mesh/step/b.h, of the lower layer step", out)
        self.assertEqual(check("check_layers.py", files | {"src/wings/mesh/step/c.cpp": '#include "wings/mesh/strategy/a.h"\n'})[0], 0)
        self.assertEqual(check("check_layers.py", {"src/wings/mesh/own/a.h": ""})[0], 1)

    def test_questions_about_the_topology_stand_in_one_room_and_are_few(self):
        question = "if (core.num_workers() == 1) return;\n"
        self.assertEqual(check("check_layers.py", {"src/strategy/a.cpp": question * 10})[0], 0)
        code, out = check("check_layers.py", {"src/strategy/a.cpp": question * 11})
        self.assertEqual(code, 1)
        self.assertIn("11 places ask what the topology is, at most 10 may", out)
        code, out = check("check_layers.py", {"src/step/a.cpp": question})
        self.assertEqual(code, 1)
        self.assertIn("a.cpp:1: asks what the topology is: if (core.num_workers() == 1) return;; only src/strategy may", out)

    def test_every_form_of_a_question_is_counted(self):
        for line, code in (("if (workers.world().size() == 1) return;", 1), ("bool alone = group.workers == 1;", 1),
                           ("if (plan.topology.num_replicas_in_sync() == plan.topology().size()) return;", 1), ("return all_on_cpu(devices);", 1),
                           ("if (group.size() > 1) fail();", 1), ("for (int i = 0; i < core.num_workers(); ++i) f(i);", 0)):
            got, out = check("check_layers.py", {"src/data/a.cpp": line + "\n"})
            self.assertEqual(got, code, f"{line}: {out}")
        collective = "  if (communicator().size() == 1) return value;\n"
        self.assertEqual(check("check_layers.py", {"src/strategy/a.cpp": collective * 11})[0], 0)
        self.assertEqual(check("check_layers.py", {"src/data/a.cpp": collective})[0], 1)
        self.assertEqual(check("check_layers.py", {"src/collective/local/a.cpp": "if (group.size() == 1) return;\n"})[0], 0)


class Sizes(unittest.TestCase):
    def test_a_long_file_is_refused(self):
        self.assertEqual(check("check_sizes.py", {"src/a.cpp": "\n" * 400})[0], 0)
        self.assertEqual(check("check_sizes.py", {"src/a.cpp": "\n" * 401})[0], 1)

    def test_a_long_function_is_refused(self):
        body = "  call();\n"
        self.assertEqual(check("check_sizes.py", {"src/a.cpp": "void f(int x) {\n" + body * 58 + "}\n"})[0], 0)
        code, out = check("check_sizes.py", {"src/a.cpp": "void f(int x) {\n" + body * 59 + "}\n"})
        self.assertEqual(code, 1)
        self.assertIn("a.cpp:1: a function of 61 lines", out)


class Counts(unittest.TestCase):
    def counted(self, files):
        """Returns what is counted in a checkout of these files, without the zeros."""
        code, out = check("check_counts.py", files)
        self.assertEqual(code, 0, out)
        return {name: int(number) for name, number in re.findall(r"([a-zA-Z][\w ,]*) (\d+)(?:;|$)", out.partition(": ")[2].strip()) if number != "0"}

    def test_lines_of_wings_are_none_of_the_core(self):
        files = {"scripts/wings.txt": "# places\nxla src/record/\npipeline src/strategy/pod\n", "src/record/a.h": "\n", "src/strategy/pod.h": "\n",
                 "src/wings/text/b.h": "\n", "src/base/c.h": "\n\n"}
        self.assertEqual(self.counted(files), {"lines of the core": 2})

    def test_a_class_with_one_implementation_is_found(self):
        one = "class A {\n public:\n  virtual void f() = 0;\n};\nclass B final : public cohort::A {\n};\n"
        name = "abstract classes with one implementation"
        code, out = check("check_counts.py", {"src/a.h": one})
        self.assertEqual((code, out.strip()), (1, f"{name}: 1, at most 0 are wanted"))
        self.assertNotIn(name, self.counted({"src/a.h": one, "tests/a.cpp": "struct Fake : A {\n};\n"}))

    def test_types_errors_headers_and_prose_are_counted(self):
        long = "word " * 30
        files = {"src/a.cpp": "struct Part {\n};\nfail<Unimplemented>(x);\n", "src/b.cpp": "class Part {\n};\nthrow Unimplemented(x);\n",
                 "include/cohort/a.h": "\n\n", "include/cohort/train.h": "\n", "include/cohort/train/b.h": "\n",
                 "docs/a.md": f"{long}\n| {long} |\n```\n{long}\n```\n{long}\n"}
        self.assertEqual(self.counted(files), {"lines of the core": 10, "headers of the core": 1, "lines of them": 2,
                                               "errors that say Unimplemented": 2, "type names that stand in several files": 1,
                                               "lines of prose over 120 characters": 2})

    def test_more_than_a_ceiling_is_refused(self):
        files = {f"include/cohort/{i}.h": "" for i in range(1000)}
        code, out = check("check_counts.py", files)
        self.assertEqual(code, 1)
        self.assertRegex(out, r"^headers of the core: 1000, at most \d+ are wanted$")


class Links(unittest.TestCase):
    def test_pages_and_headings_are_looked_up(self):
        other = "# Other\n\n## A `b`, c-d\n"
        good = "[a](docs/a.md), [b](docs/a.md#a-b-c-d), [c](#here), [d](https://pytorch.org/docs)\n\n# Here\n\n`[no](link)`\n"
        code, out = check("check_links.py", {"README.md": good, "docs/a.md": other})
        self.assertEqual(code, 0, out)
        for bad, problem in (("[a](docs/b.md)", "docs/b.md leads nowhere"), ("[a](docs/a.md#e)", "heading that is not there"),
                             ("[a](https://)", "is no address"), ("[two\nlines](docs/b.md)", "leads nowhere"), ("`src/a.cpp`", "there is no src/a.cpp")):
            code, out = check("check_links.py", {"README.md": bad, "docs/a.md": other})
            self.assertEqual(code, 1, bad)
            self.assertIn(problem, out)

    def test_files_of_a_table_are_counted(self):
        page = "What a step does ({} files, less than {} lines):\n\n| file | what |\n|---|---|\n| `src/a.cpp` | a |\n| `src/b.cpp` | b |\n"
        files = {"src/a.cpp": "\n" * 3, "src/b.cpp": "\n" * 4}
        for numbers, code in ((("2", "8"), 0), (("2", "1,000"), 0), (("2", "7"), 1), (("3", "8"), 1)):
            got, out = check("check_links.py", {"README.md": page.format(*numbers), **files})
            self.assertEqual(got, code, out)
        self.assertIn("the table has 2 files with 7 lines, wanted 3 with less than 8", out)

    def test_no_text_names_an_issue_by_its_number(self):
        for name in ("README.md", "benchmarks/a.py", "src/a.cpp"):
            for text, code in (("wanted by issue" + " 27", 1), ("see Issue" + " #27", 1), ("an issue of 2024, pytorch/gloo#462", 0)):
                got, out = check("check_links.py", {name: f"# {text}\n"})
                self.assertEqual(got, code, out)

    def test_a_site_is_looked_through(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "a.html"
            for text, problems in (('<a href="a.html#x"></a><p id="x"></p>', 0), ('<a href="#y"></a>', 1), ('<img src="b.png"/>', 1)):
                page.write_text(text)
                done = subprocess.run([sys.executable, SCRIPTS / "check_links.py", folder, folder], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, problems, done.stdout)


class Options(unittest.TestCase):
    DESCRIBED = {"commands": {"train": [{"names": ["-s", "--seed"], "default": "1", "meaning": "seed of all"}]},
                 "keys": [{"path": "run.seed", "type": "integer", "default": "1", "meaning": "a|b", "choices": [], "bounds": [">= 0"], "flag": "--seed"},
                          {"path": "run.in.x", "type": "text", "default": '"y"', "meaning": "letter", "choices": ["", "y"], "bounds": [], "flag": ""}]}

    def test_tables_are_written_and_compared(self):
        pages = {"docs/command-line.md": ("<!-- flags: train -->\n<!-- end -->\n", ["| `-s`, `--seed` | `1` | seed of all |"]),
                 "docs/settings.md": ("<!-- keys: run but run.in -->\nold\n<!-- end -->\n<!-- keys: run.in -->\n<!-- end -->\n",
                                      ["| `seed` | integer | `1` | a\\|b; wanted `>= 0` (`--seed`) |", '| `x` | text | `"y"` | letter; one of `""`, `y` |']),
                 "docs/training.md": ("<!-- options: AOptions -->\n<!-- end -->\n", ["| `size` | `2` | how large |", "| `names` |  | first, second |"]),
                 "tools/cohort/cohort.1": ('.\\" flags: train\n.\\" end\n', [".TP\n\\fB\\-s\\fR, \\fB\\-\\-seed\\fR\nSeed of all. Default: 1.\n"])}
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {**{name: page for name, (page, _) in pages.items()},
                     "include/cohort/a.h": "struct AOptions {\n  // First, second.\n  std::vector<std::string> names = {};\n  int size = 2;  // how large\n};\n",
                     "cohort": f"#!/bin/sh\ncat <<'EOF'\n{json.dumps(self.DESCRIBED)}\nEOF\n"}
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            (root / "cohort").chmod(0o755)
            call = [sys.executable, SCRIPTS / "option-tables", root / "cohort", f"--root={root}"]
            for flags, code in ((["--check"], 1), ([], 0), (["--check"], 0)):
                done = subprocess.run([*call, *flags], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            for name, (_, rows) in pages.items():
                for row in rows:
                    self.assertIn(row, (root / name).read_text())
            self.assertNotIn("old", (root / "docs/settings.md").read_text())


class SanitizeReport(unittest.TestCase):
    WELL = '<testcase name="a" status="run"><system-out/></testcase>'
    SKIPPED = '<testcase name="b" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
    FINDING = '<testcase name="c" status="fail"><failure message=""/><system-out>x.cpp:3:4: runtime error: bad shift\n</system-out></testcase>'
    LATE = '<testcase name="d" time="120.02" status="fail"><failure message=""/><system-out/></testcase>'
    MISSING = '<testcase name="e" status="notrun"><skipped message="Unable to find executable: e"/></testcase>'

    def report(self, **builds):
        """The status and the report; each build has what its two runs of ctest wrote down."""
        with tempfile.TemporaryDirectory() as folder:
            for build, parts in builds.items():
                (pathlib.Path(folder) / build).mkdir()
                for part, tests in parts.items():
                    (pathlib.Path(folder) / build / f"sanitize-{part}.xml").write_text(f"<testsuite>{tests}</testsuite>")
            done = subprocess.run([sys.executable, SCRIPTS / "sanitize-report", *(pathlib.Path(folder) / build for build in builds)],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

    def test_what_ran_well_is_counted(self):
        code, out = self.report(asan={"most": self.WELL + self.SKIPPED, "mpi": self.WELL}, tsan={"most": self.WELL, "mpi": ""})
        self.assertEqual(code, 0, out)
        self.assertIn("| asan | 3 | 0 | 1 |\n| tsan | 1 | 0 | 0 |\n", out)

    def test_failures_are_named_with_their_first_finding(self):
        code, out = self.report(asan={"most": self.WELL, "mpi": ""}, tsan={"most": self.FINDING + self.LATE + self.MISSING, "mpi": ""})
        self.assertEqual(code, 1)
        self.assertIn("| tsan | 3 | 3 | 0 |\ntsan: c: runtime error: bad shift\ntsan: d: failed after 120 s\ntsan: e: Unable to find executable: e\n", out)

    def test_tests_that_did_not_run_are_no_success(self):
        for parts in ({"most": self.WELL}, {}, {"most": "", "mpi": ""}):
            code, out = self.report(asan=parts)
            self.assertEqual(code, 1)
            self.assertIn("| asan | did not run", out)


class Wings(unittest.TestCase):
    WINGS = sorted({path.name for place in ("src", "tools/cohort") for path in (SCRIPTS.parent / place / "wings").iterdir()})

    def in_turn(self, *day):
        return subprocess.run([SCRIPTS / "wing-in-turn", *day], capture_output=True, text=True, check=True).stdout.strip()

    def test_each_has_its_turn(self):
        turns = [self.in_turn(str(day)) for day in range(20000, 20001 + len(self.WINGS))]
        self.assertEqual(sorted(turns), sorted(["none", *self.WINGS]))
        self.assertIn(self.in_turn(), turns)

    def commands(self, *wings, **environment):
        """The calls of cmake and ctest by which scripts/wings-alone builds and tests wings."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for tool in ("cmake", "ctest"):
                (root / tool).write_text(f'#!/bin/sh\necho {tool} "$@" >> {root}/calls\n')
                (root / tool).chmod(0o755)
            subprocess.run([SCRIPTS / "wings-alone", root / "build", "2", *wings], capture_output=True, check=True,
                           env={**os.environ, "PATH": f"{root}:{os.environ['PATH']}", **environment})
            return (root / "calls").read_text().replace(str(root), "").splitlines()

    def test_a_wing_is_built_with_those_that_it_needs(self):
        calls = self.commands("none", "xla", TESTS="^wings/|quick_tests$")
        alone, xla = [call for call in calls if "--preset" in call]
        self.assertEqual(alone, "cmake --preset dev -B /build -DCOHORT_WINGS=")
        self.assertRegex(xla, r"^cmake --preset dev -B /build -DCOHORT_WINGS=xla;function(;\w+)*$")
        tests = [call for call in calls if call.startswith("ctest")]
        self.assertEqual(len(tests), 2)
        self.assertTrue(all(call.endswith(" -R ^wings/|quick_tests$") for call in tests), tests)
        self.assertNotIn("-R", " ".join(self.commands("mesh")))


if __name__ == "__main__":
    unittest.main()
