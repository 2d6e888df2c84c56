"""scripts/gpu-kit requires the kernels and names their GPUs; nvcc compiles them for the GPUs of data centers and as PTX."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script(name):
    """Returns a script of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    with mock.patch("sys.dont_write_bytecode", True):
        loader.exec_module(module)
    return module


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Code(WithFolder):
    def flags(self, architectures, help_text=""):
        """Returns the flags for an nvcc that knows these architectures."""
        nvcc = self.folder / "nvcc"
        listed = "\n".join(f"sm_{each}" for each in architectures)
        nvcc.write_text(f'#!/bin/sh\n[ "$1" = --help ] && echo "{help_text}" || echo "{listed}"\n', encoding="utf-8")
        nvcc.chmod(0o755)
        commands = self.folder / "code.cmake"
        commands.write_text(f'cmake_minimum_required(VERSION 3.25)\nset(COHORT_NVCC "{nvcc}")\ninclude("{ROOT}/cmake/CohortCudaCode.cmake")\n'
                            'cohort_cuda_code(flags)\nmessage(NOTICE "${flags}")\n', encoding="utf-8")
        done = subprocess.run(["cmake", "-P", commands], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.strip().split(";")

    def test_data_centers_have_machine_code_and_others_the_oldest_ptx(self):
        # CUDA 13 lists these, and does not sort them by number.
        flags = self.flags([100, 103, 110, 120, 121, 75, 80, 86, 87, 88, 89, 90], help_text="--compress-mode {default|size}")
        self.assertEqual([each for each in flags if each.startswith("arch")],
                         ["arch=compute_75,code=compute_75", "arch=compute_80,code=sm_80", "arch=compute_90,code=sm_90",
                          "arch=compute_100,code=sm_100"])
        self.assertEqual(flags[-1], "--compress-mode=size")

    def test_an_older_nvcc_gets_what_it_knows(self):
        self.assertEqual(self.flags([52, 80, 90]), ["-gencode", "arch=compute_52,code=compute_52", "-gencode", "arch=compute_80,code=sm_80",
                                                    "-gencode", "arch=compute_90,code=sm_90"])


class Kit(WithFolder):
    def setUp(self):
        super().setUp()
        self.kit = script("gpu-kit")

    def test_the_build_requires_kernels_and_nccl(self):
        commands = []
        with mock.patch.object(self.kit, "run", lambda *command, **_: commands.append(command)), mock.patch("builtins.print"):
            self.kit.build("2.11.0", pathlib.Path("/torch"), 2)
        self.assertIn("-DCOHORT_WITH_CUDA_KERNELS=ON", commands[0])
        self.assertIn("-DCOHORT_WITH_NCCL=ON", commands[0])

    def test_the_kit_names_the_gpus_of_its_kernels(self):
        flags = "-gencode;arch=compute_75,code=compute_75;-gencode;arch=compute_80,code=sm_80;-gencode;arch=compute_90,code=sm_90"
        (self.folder / "CMakeCache.txt").write_text(f"COHORT_CUDA_CODE:INTERNAL={flags}\n", encoding="utf-8")
        self.assertEqual(self.kit.cards_of(self.folder), "sm_80 sm_90 and PTX of 75")

    def test_a_build_without_kernels_is_refused(self):
        (self.folder / "CMakeCache.txt").write_text("COHORT_NVCC:FILEPATH=COHORT_NVCC-NOTFOUND\n", encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "no kernels"):
            self.kit.cards_of(self.folder)


if __name__ == "__main__":
    unittest.main()
