"""Installs another torch into an environment of its own in build/: `python other_torch.py VERSION` ahead of the tests.

It needs nothing but Python, so that it can run while the tests' own environment is made.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def install(version: str) -> Path:
    """The Python that has torch of this version, and what a project's build and tests need."""
    home = BUILD / f"torch-{version}"
    python = home / "bin" / "python"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"torch-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            packages = [f"torch=={version}", "numpy", "ninja", "pytest", "setuptools>=77", "wheel"]
            subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", *packages], check=True)
            (home / "ready").touch()
    return python


if __name__ == "__main__":
    install(sys.argv[1])
