"""A small template, and a project of it."""

from pathlib import Path

import pytest

from kernelgen.scaffold import template
from tests.conftest import commit_all
from tests.scaffold import small_template as small
from tests.scaffold.small_template import first


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A small template's repository, at its first version."""
    folder = tmp_path / "template"
    folder.mkdir()
    small.write(folder, first(), "v1.0")
    monkeypatch.setattr(template, "HOME", folder)
    return folder


@pytest.fixture
def project(source, stamp, monkeypatch) -> Path:
    """A committed project with the op alpha; the test is inside it."""
    folder = stamp("alpha")
    commit_all(folder)
    monkeypatch.chdir(folder)
    return folder
