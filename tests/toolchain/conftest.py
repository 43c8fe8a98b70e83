"""A project for doctor to look at."""

import shutil
from pathlib import Path

import pytest

from tests.stamped.conftest import one_op_project

VARIABLES = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "TORCH_EXTENSIONS_DIR")


@pytest.fixture(scope="session")
def patient_alone(made_once) -> Path:
    return one_op_project(made_once)


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
