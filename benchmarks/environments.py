"""The virtual environments of the peers: made from PyPI at the first use, under build/peers, which git ignores."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"  # Debian's
JAX = "0.10.2"
# Loosely pinned, but for JAX, whose XLA has to be as old as the plugin's.
PACKAGES = {
    "tensorflow": ("tensorflow-cpu>=2.21,<3", "tf_keras>=2.21,<3"),
    "torch": ("torch>=2.15,<3", "torchvision"),
    f"jax-{JAX}": (f"jax=={JAX}", f"jaxlib=={JAX}"),
}


def python_of(name):
    """The Python of an environment; None where PyPI cannot be reached or has no wheel for this machine."""
    home = ROOT / "build/peers" / name
    if not (home / "complete").exists():
        print(f"peers: pip installs {' '.join(PACKAGES[name])} into {home.relative_to(ROOT)}", flush=True)
        for command in ([PYTHON, "-m", "venv", home], [home / "bin/pip", "install", "--quiet", "--no-cache-dir", *PACKAGES[name]]):
            if subprocess.run(command, check=False).returncode != 0:
                return None
        (home / "complete").touch()
    return home / "bin/python"


def version_of(python, module):
    asked = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version('{module}'))"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()
