"""An update of a project whose whole build was in setup.py: its owner's edits are merged or left as conflicts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, commit_all, git
from tests.stamped.conftest import edit

# The former setup.py, much shortened: the pins, spelled as today, among the code that builds.
OLDER_SETUP = '''"""Builds the native libraries of {{ package_name }} with Ninja."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = "{{ package_name }}"

# The architectures to compile for: "native" for the GPU of the building machine, or a list such as "8.0;9.0a".
CUDA_ARCHITECTURES = "{{ cuda_architectures }}"
# Used for "native" where there is no GPU: code for Ampere and Hopper, and PTX that newer GPUs compile at load.
PORTABLE_ARCHITECTURES = "8.0;9.0+PTX"

# The oldest torch that the libraries run on (2.10), as TORCH_TARGET_VERSION spells it.
TORCH_TARGET_VERSION = "0x020a000000000000"
OLDEST_TORCH = (2, 10)
OLDEST_SETUPTOOLS = 77

ROOT = Path(__file__).resolve().parent
SOURCE = Path("src") / PACKAGE


def find_variant():
    if os.environ.get("DEBUG"):
        return "debug", ["-O0", "-g"], ["-O0", "-g", "-G"]
    # Nobody reads errno after a square root, or traps a division: loops without them become vector instructions.
    return "release", ["-O3", "-fno-math-errno", "-fno-trapping-math"], ["-O3", "-lineinfo"]


def setup_with_setuptools():
    from setuptools import setup

    setup(options={"bdist_wheel": {"py_limited_api": "cp310"}})


if __name__ == "__main__":
    os.chdir(ROOT)
    setup_with_setuptools()
'''


@pytest.fixture
def older(own_checkout, stamp) -> Path:
    """A project of the older layout, committed; its template is today's."""
    template = own_checkout / "template"
    shutil.rmtree(template / "build_tools")
    (template / "setup.py.jinja").write_text(OLDER_SETUP)
    commit_all(own_checkout, "an older template")
    project = stamp("elementwise")
    commit_all(project)
    shutil.copytree(
        ROOT / "template/build_tools", template / "build_tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "template/setup.py.jinja", template)
    commit_all(own_checkout, "today's template")
    return project


def update(project: Path, how: str, run) -> list[str]:
    """Updates by kernelgen or by stock Copier, and returns the files in conflict."""
    if how == "kernelgen":
        result = run("update", "--project", project, "--json")
        assert result.code == (3 if result.json["conflicts"] else 0), result.err
    else:
        command = [sys.executable, "-m", "copier", "update", "--defaults", "--quiet", "--vcs-ref=HEAD", str(project)]
        subprocess.run(command, check=True, capture_output=True)
    return git(project, "diff", "--name-only", "--diff-filter=U").splitlines()


@pytest.mark.parametrize("how", ("stock", "kernelgen"))
def test_edited_pins_are_kept(older, run, how):
    edit(
        older / "setup.py",
        ('CUDA_ARCHITECTURES = "native"', 'CUDA_ARCHITECTURES = "8.0;9.0a"'),
        ('PORTABLE_ARCHITECTURES = "8.0;9.0+PTX"', 'PORTABLE_ARCHITECTURES = "8.0+PTX"'),
    )
    commit_all(older)
    assert update(older, how, run) == []
    text = (older / "setup.py").read_text()
    assert "from build_tools.project import Project" in text
    assert "find_variant" not in text
    assert 'PORTABLE_ARCHITECTURES = "8.0+PTX"' in text
    facts = subprocess.check_output([sys.executable, "-m", "build_tools", "facts"], cwd=older, text=True)
    assert json.loads(facts)["pinned"]["value"] == "8.0;9.0a"


@pytest.mark.parametrize("how", ("stock", "kernelgen"))
def test_an_edit_of_code_that_moved_is_left_as_a_conflict(older, run, how):
    edit(older / "setup.py", ('["-O3", "-lineinfo"]', '["-O3", "-lineinfo", "--use_fast_math"]'))
    commit_all(older)
    assert update(older, how, run) == ["setup.py"]
    text = (older / "setup.py").read_text()
    assert "<<<<<<< before updating" in text
    assert '"--use_fast_math"]' in text.partition("<<<<<<<")[2].partition("=======")[0]
    assert "NVCC_FLAGS: dict" in text
    result = run("build", "--project", older, "--python", sys.executable)
    assert result.code == 1
    assert "setup.py stopped with SyntaxError" in result.err
