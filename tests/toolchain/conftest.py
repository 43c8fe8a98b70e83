"""A project for doctor to look at, and the template's build_tools as modules."""

import shutil
from pathlib import Path

import pytest
from build_tools.environment import VARIABLES as READ_BY_BUILD
from build_tools.project import Project

from tests.stamped.conftest import one_op_project

# What a stamped project pins. The template's build_tools are the same in every project, so they are tested where they
# lie: pyproject.toml puts them on the path.
PINS = Project("demo_kernels", "native", "8.0;9.0+PTX", "0x020a000000000000", (2, 10))

VARIABLES = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "TORCH_EXTENSIONS_DIR")


@pytest.fixture(scope="session")
def patient_alone(made_once) -> Path:
    return one_op_project(made_once)


@pytest.fixture
def patient(built_patient) -> Path:
    """A project that is not built: doctor loads no library, and torch with it, which takes most of its time."""
    (built_patient / "src" / "demo_kernels" / "_cpu.so").unlink()
    return built_patient


@pytest.fixture
def built_patient(patient_alone, tmp_path, monkeypatch) -> Path:
    """A copy of the project; the test runs inside it, in an environment without settings for a build."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    project = Path(shutil.copytree(patient_alone, tmp_path / "demo"))
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def no_settings(monkeypatch) -> None:
    """None of this machine's settings for a build."""
    for name in READ_BY_BUILD:
        monkeypatch.delenv(name, raising=False)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def without_cuda(project: Path) -> None:
    toolkit = project / "build_tools" / "toolkit.py"
    toolkit.write_text(toolkit.read_text().replace("/usr/local/cuda", "/nowhere"))
