"""The Python that a project is built and run with."""

import sys
from pathlib import Path

import pytest

from kernelgen.errors import KernelgenError, UsageError
from kernelgen.toolchain import python as toolchain
from kernelgen.toolchain.python import find_python


def environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    return folder / "bin/python"


def test_the_nearest_environment_wins(tmp_path, monkeypatch):
    project = tmp_path / "repository/below"
    project.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    environment(tmp_path / ".venv")
    monkeypatch.setattr(toolchain, "find_spec", lambda _: True)
    assert find_python(project) == Path(sys.executable)
    above = environment(tmp_path / "repository/.venv")
    assert find_python(project) == above
    own = environment(project / ".venv")
    assert find_python(project) == own
    active = environment(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert find_python(project) == active
    assert find_python(project, own) == own


def test_a_command_is_looked_up(tmp_path, monkeypatch):
    python = environment(tmp_path)
    python.rename(python.with_name("python3.99"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_python(tmp_path, Path("python3.99")) == tmp_path / "bin/python3.99"
    with pytest.raises(UsageError, match=r"no Python at python3\.98, nor a command of that name"):
        find_python(tmp_path, Path("python3.98"))


def test_a_conda_environment_is_taken_if_it_has_torch(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(toolchain, "find_spec", lambda _: None)
    conda = environment(tmp_path / "conda")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    with pytest.raises(KernelgenError):
        find_python(tmp_path)
    (tmp_path / "conda" / "lib" / "python3.12" / "site-packages" / "torch").mkdir(parents=True)
    assert find_python(tmp_path) == conda


def test_without_a_python_the_message_makes_one(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(toolchain, "find_spec", lambda _: None)
    with pytest.raises(KernelgenError, match=r"python -m venv \.venv && .*pip install --group dev.*uv pip install"):
        find_python(tmp_path)
    with pytest.raises(UsageError, match="There is no Python at"):
        find_python(tmp_path, tmp_path / "nowhere")
