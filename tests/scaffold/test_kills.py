"""Every verb that writes is killed at each of its writes; the next verb finds the project as it was."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kernelgen.cli import main
from kernelgen.scaffold import journal
from kernelgen.scaffold.mend import mend
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.project import find
from tests.conftest import commit_all, git, tree
from tests.scaffold.small_template import KERNEL, OPS, edit, edited, first, lines, newer

# Early, while the process that runs the tests is small: it is forked hundreds of times here, and each fork copied the
# tables of all its memory, half of the time and more.
pytestmark = pytest.mark.slow

WRITES = {"os.rename", "shutil.rmtree", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod"}


def killed_at(write: int, work: Callable[[], object], below: Path) -> bool:
    """Do the work in a process that is killed just before its given write; whether it was killed before it was done."""
    child = os.fork()
    if child == 0:
        writes = count()

        def watch(event: str, arguments: tuple) -> None:
            writing = event in WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
            if writing and str(below) in str(arguments[0]) and next(writes) == write:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.fixture
def killed_plans(monkeypatch) -> list[int]:
    """Plans are applied in processes that are killed ever later, until they come through; how many there were."""
    apply, kills = Plan.apply, []

    def apply_and_kill(plan: Plan, keep: dict | None = None) -> None:
        root = plan.root
        before, number = tree(root), 0
        while killed_at(number, lambda: apply(plan, keep), root):
            journal.recover_locked(root)
            now = tree(root)
            if now != before:
                # Killed after the last change, while the journal was removed.
                assert all(journal.look(root / change.path) == _after(change) for change in plan.changes)
                kills.append(number)
                return
            number += 1
        kills.append(number)

    def _after(change):
        return None if change.new is None else journal.Content(change.new, change.mode)

    monkeypatch.setattr(Plan, "apply", apply_and_kill)
    return kills


@pytest.mark.parametrize("verb", (["add-op", "new_op", "--recipe", "beta"], ["remove-op", "alpha"]))
def test_an_op_verb_can_be_killed_at_every_write(project, run, killed_plans, verb):
    assert run(*verb).code == 0
    assert killed_plans[0] > 10
    assert {op["state"] for op in run("list", "--json").json["ops"]} == {"pristine"} or verb[0] == "remove-op"
    assert not (project / ".kernelgen").exists()


@pytest.mark.parametrize("conflicts", (False, True))
def test_an_update_can_be_killed_at_every_write(project, source, run, killed_plans, conflicts):
    if conflicts:
        edit(project / OPS / "alpha/kernel.cu", 2)
        commit_all(project)
    changes = {KERNEL: edited(lines("alpha kernel"), 2, "newer"), "setup.py": None, "deep/new.txt": "new\n"}
    newer(source, changes, executable=("tools/run.sh",))
    assert run("update").code == (3 if conflicts else 0)
    assert killed_plans[0] > 10
    assert (project / "deep/new.txt").exists()
    assert bool(git(project, "diff", "--name-only", "--diff-filter=U")) == conflicts


def test_new_can_be_killed_at_every_write(source, run, killed_plans, tmp_path):
    stamped = run("new", tmp_path / "deep/er/project", "--defaults")
    assert stamped.code == 0, stamped.err
    assert killed_plans[0] > len(first())
    assert run("list", "--project", tmp_path / "deep/er/project").code == 0


@pytest.mark.parametrize("verb", ("--abort", "--continue"))
def test_the_end_of_an_update_can_be_killed_at_every_write(project, source, run, tmp_path, verb):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    before = tree(project)
    newer(source, {KERNEL: edited(lines("alpha kernel"), 2, "newer"), "setup.py": None, "deep/new.txt": "new\n"})
    assert run("update").code == 3
    if verb == "--continue":
        edit(project / OPS / "alpha/kernel.cu", 2, "resolved")
        git(project, "checkout", "--quiet", "--ours", f"{OPS}/alpha/kernel.cu")
        git(project, "add", "--all", ".")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(project, unfinished, symlinks=True)
    for write in count():
        shutil.rmtree(project)
        shutil.copytree(unfinished, project, symlinks=True)
        killed = killed_at(write, lambda: main(["update", verb, "--project", str(project)]), project)
        again = run("update", verb, "--project", project)
        assert again.code == 0 or "No update is unfinished here." in again.err
        assert not (project / ".kernelgen").exists()
        if verb == "--abort":
            assert tree(project) == before
            assert git(project, "status", "--porcelain") == ""
        else:
            assert (project / "deep/new.txt").exists()
        if not killed:
            break
    assert write > 1


def test_mending_the_record_can_be_killed_at_every_write(project, killed_plans):
    (project / OPS / "alpha").rename(project / OPS / "renamed")
    plan, sentences = mend(find(project))
    plan.apply()
    assert sentences == ["The record of alpha is of renamed now: its folder has that name."]
    assert killed_plans[0] > 3
    assert "renamed" in (project / ".copier-answers.yml").read_text()


def test_undoing_can_be_killed_at_every_write(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "old.txt").write_text("old\n")
    (root / "gone.txt").write_text("gone\n")
    before = tree(root)
    plan = Plan(root)
    plan.set("old.txt", b"new\n")
    plan.set("gone.txt", None)
    plan.set("deep/new.txt", b"new\n")
    for write in count():
        if not killed_at(write, plan.apply, root):
            break
        undoing = 0
        while killed_at(undoing, lambda: journal.recover(root), root):
            undoing += 1
        journal.recover(root)
        if tree(root) != before:
            assert (root / "deep/new.txt").exists()
            break
    assert write > 10
    assert not (root / ".kernelgen").exists()


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"changes": []}'])
@pytest.mark.parametrize("name", ["journal", "update"])
def test_a_journal_that_is_damaged_is_said(project, run, name, manifest):
    """As after a loss of power, where a file's name may outlive what it held."""
    folder = project / ".kernelgen" / name
    folder.mkdir(parents=True)
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    refused = run(*(["list"] if name == "journal" else ["update", "--abort"]))
    assert refused.code == 1
    assert f"{folder} is damaged" in refused.err
    assert f"then delete {folder}" in refused.err
