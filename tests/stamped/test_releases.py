"""A project stamped from any release follows the template to this working tree, with every edit of its owner."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, commit_all, git

# The last commit before the folders of kernelgen and of a project were laid out anew.
OLD_LAYOUT = "489a47e"
EDITS = 20
ALWAYS_EDITED = ("setup.py", "tests/op_suite.py")
COMMENTS = {".py": "#", ".toml": "#", ".yml": "#", ".cu": "//", ".cuh": "//", ".h": "//", ".cpp": "//"}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False).stdout


def releases() -> list[str]:
    """The tags of this repository, and the old layout; none where there is no history, as in an archive."""
    known = [OLD_LAYOUT] if _git("rev-parse", "--verify", "--quiet", f"{OLD_LAYOUT}^{{commit}}") else []
    return [*_git("tag", "--list", "v*").split(), *known]


@pytest.fixture
def history(tmp_path) -> Path:
    """This repository with its history, the working tree as its newest commit."""
    folder = tmp_path / "kernelgen"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    for name in ("template", "kernelgen"):
        shutil.rmtree(folder / name)
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(ROOT / "copier.yml", folder)
    commit_all(folder, "the working tree")
    return folder


@pytest.mark.parametrize("release", releases() or [pytest.param("", marks=pytest.mark.skip("there is no history"))])
def test_every_release_stays_updatable(history, tmp_path, run, release):
    from copier import run_copy

    project = tmp_path / "my-kernels"
    answers = {"recipes": ["elementwise", "rms_norm", "flash_attention"]}
    run_copy(str(history), project, vcs_ref=release, data=answers, defaults=True, quiet=True)
    commit_all(project)
    files = [name for name in git(project, "ls-files").splitlines() if Path(name).suffix in COMMENTS]
    always = [name for name in ALWAYS_EDITED if name in files]
    chance = random.Random(release)
    edited = always + chance.sample(sorted({*files} - {*always, ".copier-answers.yml"}), EDITS - len(always))
    for number, name in enumerate(edited):
        path = project / name
        lines = path.read_text().split("\n")
        lines[chance.randrange(len(lines))] += f"  {COMMENTS[path.suffix]} owner's edit {number}."
        path.write_text("\n".join(lines))
    commit_all(project)
    assert run("update", "--project", project, "--to", "HEAD").code in (0, 3)
    texts = [path.read_text() for path in project.rglob("*.*") if path.is_file() and not _is_hidden(path, project)]
    lost = [name for number, name in enumerate(edited) if not any(f"owner's edit {number}." in text for text in texts)]
    assert lost == []
    assert (project / "build_tools/__init__.py").is_file()


def _is_hidden(path: Path, project: Path) -> bool:
    return path.relative_to(project).parts[0] in (".git", ".kernelgen")
