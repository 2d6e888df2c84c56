"""cohort export and cohort run: a run as a file that PyTorch reads, or that XLA computes with, and what is refused."""
import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

COHORT = os.environ["COHORT"]
PLUGIN = pathlib.Path(os.environ["PLUGINS"], "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
READ = "import sys, torch; print(list(torch.jit.load(sys.argv[1])(torch.zeros(3, 28, 28)).shape))"

X = [math.sin(i) for i in range(3 * 28 * 28)]
COMPUTE = """
import json, math, sys, torch
x = torch.tensor([math.sin(i) for i in range(3 * 28 * 28)]).view(3, 28, 28)
print(json.dumps(torch.jit.load(sys.argv[1])(x).flatten().tolist()))
"""


def write_tensor(path, name, shape, values):
    """Writes a safetensors file with one tensor of float32."""
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * len(values)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values))


def read_tensor(path, name):
    whole = path.read_bytes()
    begin = 8 + struct.unpack_from("<Q", whole)[0]
    entry = json.loads(whole[8:begin])[name]
    low, high = entry["data_offsets"]
    return entry["shape"], list(struct.unpack(f"<{(high - low) // 4}f", whole[begin + low:begin + high]))


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

    @unittest.skipUnless(PLUGIN.is_file(), "XLA's plugin for CPUs is not here; scripts/install-deps.sh xla brings it")
    def test_xla_runs_the_file(self):
        for arguments in (("net.mlir", "--batch_size=3"), ("net.pt",)):
            done = self.export(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        write_tensor(self.folder / "x.safetensors", "x", [3, 28, 28], X)
        flags = ["run", f"--mlir={self.folder / 'net.mlir'}", f"--outputs={self.folder / 'y.safetensors'}", f"--xla_plugin={PLUGIN}"]
        done = cohort(*flags, f"--inputs={self.folder / 'x.safetensors'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("output      output, Float [3, 10]", done.stdout)
        shape, values = read_tensor(self.folder / "y.safetensors", "output")
        self.assertEqual(shape, [3, 10])
        read = subprocess.run(["/usr/bin/python3", "-c", COMPUTE, self.folder / "net.pt"], capture_output=True, text=True, check=False, timeout=120)
        if "No module named 'torch'" not in read.stderr:
            for one, other in zip(values, json.loads(read.stdout), strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5)
        write_tensor(self.folder / "other.safetensors", "image", [3, 28, 28], X)
        done = cohort(*flags, f"--inputs={self.folder / 'other.safetensors'}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('has no tensor "x", which the program takes', done.stderr)
        write_tensor(self.folder / "small.safetensors", "x", [2, 28, 28], X[:2 * 28 * 28])
        done = cohort(*flags, f"--inputs={self.folder / 'small.safetensors'}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is f32[2,28,28], wanted f32[3,28,28]", done.stderr)

    def test_what_cannot_be_written_is_refused_by_name(self):
        for arguments, said in ((("net.h5",), ".h5"), (("none/net.pt",), "none"), (("net.mlir",), "batch_size is 0"), (("net.pt", f"--weights={self.folder / 'absent'}"), "absent")):
            done = self.export(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        done = cohort("export", f"--model_dir={self.folder / 'nothing'}", f"--output={self.folder / 'net.pt'}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("params.yaml", done.stderr)


if __name__ == "__main__":
    unittest.main()
