"""cohort report: the data in the page, and the page in a browser where there is one."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def cohort(*arguments):
    return subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


class Report(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def write_run(self, name, records):
        run = self.folder / name
        run.mkdir()
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return run

    def page(self, *runs):
        done = cohort("report", *runs, f"--output={self.folder / 'report.html'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "report.html").read_text(encoding="utf-8")

    def data(self, *runs):
        return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', self.page(*runs), re.S).group(1))

    def shown(self, columns):
        """The page as a browser has made it in a window of so many columns of pixels."""
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={columns},3000", "--dump-dom",
                               f"--user-data-dir={self.folder / 'browser'}", (self.folder / "report.html").as_uri()],
                              capture_output=True, text=True, check=False, timeout=120)
        return done.stdout.split('<script type="application/json"')[0]

    def test_numbers_that_were_not_finite_and_epochs(self):
        run = self.write_run("run", [{"step": 10, "epoch": 1, "mode": "train", "loss": 1.5, "examples_per_second": 5e4},
                                     {"step": 20, "epoch": 2, "mode": "train", "loss": None, "examples_per_second": 5e4},
                                     {"step": "x", "mode": 3}])
        records = self.data(run)[0]["records"]
        self.assertEqual([record["epoch"] for record in records], [1, 2])
        self.assertEqual(records[1]["values"], {"loss": None, "examples_per_second": 5e4})

    def test_a_timeline_over_time(self):
        done = cohort("train", "--experiment=mnist_mlp", "--train_steps=30", f"--model_dir={self.folder / 'run'}", f"--trace={self.folder / 'trace.json'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        timeline = self.data(self.folder / "run")[0]["timeline"]
        for thread, categories in timeline["threads"].items():
            for category, seconds in categories.items():
                parts = timeline["parts"][thread][category]
                self.assertEqual(len(parts), 200)
                self.assertAlmostEqual(sum(parts), seconds, delta=1e-3)
        compute = timeline["parts"]["replica 0"]["compute"]
        self.assertGreater(sum(compute[:190]), 0.0)

    def test_the_stages_of_a_pipeline(self):
        done = cohort("train", "--experiment=mnist_mlp", "--train_steps=4", "--batch_size=32", "--mesh=stage=2", "--pipeline_microbatches=4",
                      "--pipeline_schedule=zero_bubble_h1", f"--model_dir={self.folder / 'run'}", f"--trace={self.folder / 'trace.json'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"the last step: stages without work [\d.]+%, by the schedule [\d.]+%")
        pipeline = self.data(self.folder / "run")[0]["timeline"]["pipeline"]
        self.assertEqual((pipeline["schedule"], pipeline["microbatches"], pipeline["stages"]), ("zero_bubble_h1", 4, 2))
        for kind in ("scheduled", "measured"):
            self.assertTrue(0.0 < pipeline[f"{kind}_bubble"] < 1.0)
            self.assertEqual([stage["stage"] for stage in pipeline[kind]], [0, 1])
            for stage in pipeline[kind]:
                done_by = {action: sorted(span["microbatch"] for span in stage["spans"] if span["action"] == action) for action in ("forward", "backward", "weight")}
                self.assertEqual(done_by["forward"], [0, 1, 2, 3])
                self.assertEqual(done_by["backward"], [0, 1, 2, 3])
                self.assertTrue(done_by["weight"])
                # One action after the other.
                spans = sorted((span["begin"], span["end"]) for span in stage["spans"])
                for (_, end), (begin, _) in zip(spans, spans[1:]):
                    self.assertLessEqual(end, begin + 1e-9)
        if not BROWSER:
            return
        page = self.shown(1000)
        picture = page[page.index("A step of 4 microbatches on 2 stages by the schedule zero_bubble_h1"):]
        picture = picture[:picture.index("</svg>")]
        for label in ("stage 0, scheduled", "stage 1, measured", "time / ms"):
            self.assertIn(f">{label}</text>", picture)
        # Both stages' actions, scheduled and measured. Their labels stand where they fit, which a pause of the machine decides.
        self.assertGreaterEqual(picture.count("<rect"), 2 * 2 * (4 + 4))

    @unittest.skipUnless(BROWSER, "no browser is here")
    def test_the_page_in_a_browser(self):
        records = [{"step": 10 * i, "epoch": i, "mode": mode, "loss": None if i == 4 else 1.0 / i, "accuracy": 0.9 - 0.01 * abs(i - 3),
                    "examples_per_second": 5e4} for i in range(1, 6) for mode in ("train", "eval")]
        records[-1]["loss"] = None
        self.page(self.write_run("run", records))
        page = self.shown(600)
        self.assertIn("the loss was not finite (nan), for the first time at step 40, epoch 4", page)
        values = re.sub(r"<[^>]+>", " ", page[page.index("Last and best values"):page.index("Timeline")])
        # The name, the last value, the best one and its step.
        self.assertRegex(values, r"loss\s+train\s+0\.2\s+0\.2\s+50\s")
        self.assertRegex(values, r"loss\s+eval\s+nan\s+0\.33333\s+30\s")
        self.assertRegex(values, r"accuracy\s+eval\s+0\.88\s+0\.9\s+30\s")
        curves = page[page.index("Curves"):page.index("Last and best values")]
        for label in ("step", "share of the examples", "examples / s"):
            self.assertIn(f">{label}</text>", curves)
        # No picture is wider than the window.
        self.assertLess(max(float(width) for width in re.findall(r'viewBox="0 0 ([\d.]+) ', page)), 600)


if __name__ == "__main__":
    unittest.main()
