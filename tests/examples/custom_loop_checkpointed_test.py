"""A loop of one's own that is cut, or told by SIGTERM to leave, ends as one that was not. usage: FILE PROGRAM"""
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def run(folder, *steps):
    return subprocess.run([PROGRAM, folder, *steps], capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


class CustomLoopCheckpointed(unittest.TestCase):
    def test_goes_on_as_if_nothing_had_happened(self):
        with tempfile.TemporaryDirectory() as folder:
            undisturbed = run(f"{folder}/whole")
            self.assertEqual(undisturbed[0], "goes on after step 0")
            run(f"{folder}/cut", "70")
            self.assertEqual(run(f"{folder}/cut"), ["goes on after step 70", *undisturbed[2:]])

    def test_sigterm_saves_and_ends_with_42(self):
        with tempfile.TemporaryDirectory() as folder:
            undisturbed = run(f"{folder}/whole")
            with subprocess.Popen([PROGRAM, f"{folder}/told"], stdout=subprocess.PIPE, text=True) as child:
                for line in child.stdout:
                    if line.startswith("saved step"):  # before the first step SIGTERM ends it
                        break
                child.send_signal(signal.SIGTERM)
                self.assertIn(child.wait(timeout=60), (0, 42))
            self.assertEqual(run(f"{folder}/told")[-1], undisturbed[-1])


if __name__ == "__main__":
    unittest.main()
