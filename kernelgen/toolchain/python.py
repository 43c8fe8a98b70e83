"""Finds the Python that a project is built and run with: one with torch, which kernelgen's may lack."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kernelgen.errors import KernelgenError, UsageError


def find_python(root: Path, chosen: Path | None = None) -> Path:
    """The Python of the project at `root`: `chosen`, a path or a command such as python3.12, or the one of the active
    environment, of the nearest .venv, kernelgen's own if it has torch, or that of the active conda environment if that
    has.

    Raises:
        UsageError: `chosen` is not there.
        KernelgenError: there is none; the message holds the commands that make one.
    """
    if chosen is not None:
        path = chosen if chosen.is_file() else shutil.which(chosen)  # which() takes a path as it is.
        if not path:
            is_name = chosen.name == str(chosen)
            raise UsageError(f"There is no Python at {chosen}{', nor a command of that name' if is_name else ''}.")
        return Path(os.path.abspath(path))
    for environment in _environments(root):
        if python := _inside(environment):
            return python
    if find_spec("torch"):
        return Path(sys.executable)
    if python := _with_torch_in_conda():
        return python
    raise KernelgenError(
        f"No Python with torch was found for {root}. Make one there: "
        "python -m venv .venv && .venv/bin/pip install --group dev "
        "(or, with uv: uv venv && uv pip install --group dev); or activate the environment that has it."
    )


def has_torch(python: Path) -> bool:
    """Whether a Python finds torch, which is not imported for that. One that does not start has none."""
    if python == Path(sys.executable):
        return find_spec("torch") is not None
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except OSError:
        return False


def _with_torch_in_conda() -> Path | None:
    """conda's base environment is often active, and seldom meant, so it has to hold torch."""
    environment = Path(os.environ.get("CONDA_PREFIX") or os.devnull)
    has_torch = any(environment.glob("lib/python3.*/site-packages/torch"))
    return _inside(environment) if has_torch else None


def _environments(root: Path) -> Iterator[Path]:
    """Where an environment may be: the active one, then `.venv` in the project and in the folders above it, up to the
    repository's root."""
    if active := os.environ.get("VIRTUAL_ENV"):
        yield Path(active)
    for folder in (root, *root.parents):
        yield folder / ".venv"
        if (folder / ".git").exists():
            return


def _inside(environment: Path) -> Path | None:
    # Not resolved: an environment's Python is a link, and only its own path brings its packages.
    places = (environment / "bin" / "python", environment / "Scripts" / "python.exe")
    return next((place for place in places if place.is_file()), None)
