"""A plan is shown as it is, and applied whole or not at all."""

import errno
import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernelgen.errors import ConflictError
from kernelgen.scaffold.plan import Plan
from tests.conftest import tree


@pytest.fixture
def root(tmp_path) -> Path:
    """A folder with a file to update, one to delete and one to leave alone."""
    root = tmp_path / "root"
    (root / "op" / "__pycache__").mkdir(parents=True)
    (root / "op" / "old.txt").write_text("old\n")
    (root / "op" / "__pycache__" / "old.pyc").write_bytes(b"\0")
    (root / "keep.txt").write_text("one\ntwo\nthree")
    (root / "keep.txt").chmod(0o750)
    (root / "other.txt").write_text("mine\n")
    return root


def all_kinds(root: Path) -> Plan:
    plan = Plan(root)
    plan.set("new/deep/file.txt", b"new\n\fline\n")
    plan.set("new/run.sh", b"#!/bin/sh\n", executable=True)
    plan.set("new/empty", b"")
    plan.set("keep.txt", b"one\n2\nthree\n")
    plan.set("op/old.txt", None)
    return plan


def test_applying_does_all_of_it(root):
    all_kinds(root).apply()
    assert tree(root) == {
        "keep.txt": (b"one\n2\nthree\n", True),
        "new/deep/file.txt": (b"new\n\fline\n", False),
        "new/empty": (b"", False),
        "new/run.sh": (b"#!/bin/sh\n", True),
        "other.txt": (b"mine\n", False),
    }
    assert (root / "keep.txt").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in root.iterdir()) == ["keep.txt", "new", "other.txt"]


def test_the_diff_is_one_that_git_applies(root, tmp_path):
    plan = all_kinds(root)
    (tmp_path / "plan.diff").write_text(plan.diff())
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "apply", str(tmp_path / "plan.diff")], cwd=root, check=True)
    assert not [change for change in all_kinds(root).changes if change.new is not None]
    assert not (root / "op" / "old.txt").exists()


def test_what_changes_nothing_is_not_in_the_plan(root):
    plan = Plan(root)
    plan.set("other.txt", b"mine\n")
    plan.set("absent.txt", None)
    assert plan.changes == []
    assert plan.diff() == ""


@pytest.mark.parametrize("failure", (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()))
@pytest.mark.parametrize("function", ("os.replace", "os.link", "pathlib.Path.write_bytes", "pathlib.Path.mkdir"))
@pytest.mark.parametrize("after", (False, True))
def test_a_failure_at_any_step_leaves_everything_as_it_was(root, monkeypatch, function, failure, after):
    """Each call of each function that writes is made to fail in turn, before and after it did its work."""
    owner = os if function.startswith("os.") else Path
    real = getattr(owner, name := function.rpartition(".")[2])
    before = tree(root)
    for step in range(100):
        calls = iter(range(1000))

        def failing(*args, step=step, calls=calls, **kwargs):
            due = next(calls) == step
            if due and not after:
                raise failure
            result = real(*args, **kwargs)
            if due:
                raise failure
            return result

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing)
            try:
                all_kinds(root).apply()
            except type(failure):
                pass
            else:
                break
        assert tree(root) == before
        assert not (root / "new").exists()
        assert not list(root.glob(".kernelgen-*"))
    assert step >= 2


def test_a_root_that_is_not_there_yet_is_made_and_unmade(tmp_path, monkeypatch):
    plan = Plan(tmp_path / "a" / "b")
    plan.set("c/d.txt", b"d")
    plan.set("e.txt", b"e")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
        patch.setattr(os, "replace", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
        with pytest.raises(OSError, match="Read-only"):
            plan.apply()
    assert list(tmp_path.iterdir()) == []
    plan.apply()
    assert set(tree(tmp_path)) == {"a/b/c/d.txt", "a/b/e.txt"}


def test_a_file_that_changed_meanwhile_stops_the_plan(root):
    plan = all_kinds(root)
    (root / "keep.txt").write_text("another hand\n")
    before = tree(root)
    with pytest.raises(ConflictError, match=r"keep\.txt changed"):
        plan.apply()
    assert tree(root) == before


@pytest.mark.parametrize("path", ("../out.txt", "link/out.txt", "op/../../out.txt"))
def test_nothing_is_written_outside_the_root(root, tmp_path, path):
    (tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    plan = Plan(root)
    plan.set(path, b"no")
    with pytest.raises(ConflictError, match="outside"):
        plan.apply()
    assert not list(tmp_path.rglob("out.txt"))


def test_a_link_is_not_written_through(root, tmp_path):
    (tmp_path / "target.txt").write_text("theirs")
    (root / "link.txt").symlink_to(tmp_path / "target.txt")
    plan = Plan(root)
    plan.set("link.txt", b"mine")
    with pytest.raises(ConflictError, match="symbolic link"):
        plan.apply()
    assert (tmp_path / "target.txt").read_text() == "theirs"
