"""A project for doctor to look at."""

import shutil
from pathlib import Path

import pytest

from tests.stamped.conftest import build, stamp

VARIABLES = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "TORCH_EXTENSIONS_DIR")


@pytest.fixture(scope="session")
def patient_alone(tmp_path_factory) -> Path:
    """A project of one op with its CPU library. Shared: do not change it."""
    project = stamp(tmp_path_factory.mktemp("doctor") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
    build(project, USE_CUDA="0").check_returncode()
    return project


@pytest.fixture
def patient(patient_alone, tmp_path, monkeypatch) -> Path:
    """A copy of the project; the test is inside it, in an environment that asks for nothing."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    project = Path(shutil.copytree(patient_alone, tmp_path / "demo"))
    monkeypatch.chdir(project)
    return project


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def without_cuda(project: Path) -> None:
    setup = project / "setup.py"
    setup.write_text(setup.read_text().replace("/usr/local/cuda", "/nowhere"))
