"""cohort export: a run as a file that PyTorch reads, and what is refused."""
import os
import pathlib
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]
READ = "import sys, torch; print(list(torch.jit.load(sys.argv[1])(torch.zeros(3, 28, 28)).shape))"


def cohort(*arguments):
    return subprocess.run([COHORT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = pathlib.Path(made.name)
        done = cohort("train", "--experiment=mnist_mlp", "--train_steps=5", f"--model_dir={cls.folder / 'run'}")
        assert done.returncode == 0, done.stderr

    def export(self, name, *more):
        return cohort("export", f"--model_dir={self.folder / 'run'}", f"--output={self.folder / name}", *more)

    def test_pytorch_reads_the_file(self):
        done = self.export("net.pt")
        self.assertEqual(done.returncode, 0, done.stderr)
        read = subprocess.run(["/usr/bin/python3", "-c", READ, self.folder / "net.pt"], capture_output=True, text=True, check=False, timeout=120)
        if "No module named 'torch'" in read.stderr:
            self.skipTest("/usr/bin/python3 has no torch")
        self.assertEqual(read.stdout.strip(), "[3, 10]", read.stderr)

    def test_onnx_has_the_names(self):
        done = self.export("net.onnx", "--name=digits")
        self.assertEqual(done.returncode, 0, done.stderr)
        file = (self.folder / "net.onnx").read_bytes()
        for name in (b"digits", b"cohort", b"output"):
            self.assertIn(name, file)

    def test_what_cannot_be_written_is_refused_by_name(self):
        for arguments, said in ((("net.h5",), ".h5"), (("none/net.pt",), "none"), (("net.pt", f"--weights={self.folder / 'absent'}"), "absent")):
            done = self.export(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        done = cohort("export", f"--model_dir={self.folder / 'nothing'}", f"--output={self.folder / 'net.pt'}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("params.yaml", done.stderr)


if __name__ == "__main__":
    unittest.main()
