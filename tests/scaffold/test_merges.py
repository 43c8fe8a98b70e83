"""Edits and the template's changes are merged by bytes; conflicts are shown in the file."""

import pytest

from tests.conftest import commit_all, git, tree
from tests.scaffold.small_template import (
    KERNEL,
    MINE,
    OPS,
    edit,
    edited,
    lines,
    newer,
    newer_everywhere,
)


@pytest.mark.parametrize("version", (None, "v2.0"))
@pytest.mark.parametrize("content", (b"\0binary\xff" + MINE.encode(), f"é {MINE}\n".encode("latin-1"), b"", b"\r\n"))
def test_files_are_merged_by_bytes(project, source, run, version, content):
    path = project / OPS / "alpha/tuning.h"
    path.write_bytes(content)
    (project / "blob.bin").write_bytes(content)
    commit_all(project)
    if version:
        newer(source)
    assert run("update").code == 0
    assert path.read_bytes() == content
    assert (project / "blob.bin").read_bytes() == content
    assert bool(git(project, "status", "--porcelain")) == bool(version)


def test_both_versions_of_a_binary_file_lie_side_by_side(project, source, run):
    path = project / OPS / "alpha/kernel.cu"
    path.write_bytes(b"\0" + MINE.encode())
    commit_all(project)
    newer(source)
    updated = run("update", "--json")
    assert updated.code == 3
    assert path.read_bytes() == b"\0" + MINE.encode()
    beside = path.with_name("kernel.cu.from-template")
    assert "from the newer template" in beside.read_text()
    git(project, "add", str(path))
    assert run("update", "--continue").code == 3
    beside.unlink()
    assert run("update", "--continue").code == 0


def test_what_to_type_after_a_conflict_works_from_elsewhere(project, source, run, monkeypatch):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    newer(source)
    monkeypatch.chdir(project.parent)
    for arguments in ((), ("--continue",)):
        conflict = run("update", "--project", project, *arguments)
        assert conflict.code == 3
        assert f"cd {project.name} && git add {OPS}/alpha/kernel.cu" in conflict.err


def test_latin_1_and_crlf_merge_with_the_template_s_changes(project, source, run):
    kernel, setup = project / OPS / "alpha/kernel.cu", project / "setup.py"
    kernel.write_bytes(edited(kernel.read_text(), 20, "é mine").encode("latin-1"))
    setup.write_bytes(edited(setup.read_text(), 20, MINE).replace("\n", "\r\n").encode())
    commit_all(project)
    newer_everywhere(source)
    updated = run("update")
    assert updated.code == 0, updated.err
    assert "é mine".encode("latin-1") in kernel.read_bytes()
    assert b"newer\n" in kernel.read_bytes()
    assert f"{MINE}\r\n".encode() in setup.read_bytes()
    assert b"newer\r\n" in setup.read_bytes()


def test_a_conflict_is_shown_in_the_file_and_never_as_a_rejected_patch(project, source, run, monkeypatch):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    newer(source)
    monkeypatch.chdir(project / OPS)
    updated = run("update")
    assert updated.code == 3
    text = (project / OPS / "alpha/kernel.cu").read_text()
    assert f"<<<<<<< before updating\n{MINE}\n=======\nfrom the newer template\n>>>>>>> after updating\n" in text
    assert "  alpha/kernel.cu: you and the template changed the same lines" in updated.err
    assert "git add alpha/kernel.cu" in updated.err
    assert not list(project.rglob("*.rej"))
    assert run("update").code == 3
    assert run("update", "--continue").code == 3
    (project / OPS / "alpha/kernel.cu").write_text("resolved\n")
    git(project, "add", "--all")
    assert run("update", "--continue").code == 0
    assert not (project / ".kernelgen").exists()


def test_an_update_with_conflicts_can_be_undone(project, source, run):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    newer(source, {KERNEL: edited(lines("alpha kernel"), 2, "newer"), "new.txt": "new\n", "setup.py": None})
    before = tree(project)
    assert run("update").code == 3
    assert tree(project) != before
    (project / OPS / "alpha/kernel.cu").write_text("half resolved")
    (project / "new.txt").write_text(MINE)
    refused = run("update", "--abort")
    assert refused.code == 3
    assert "new.txt" in refused.err
    (project / "new.txt").write_text("new\n")
    assert run("update", "--abort").code == 0
    assert tree(project) == before
    assert git(project, "status", "--porcelain") == ""
    assert run("update", "--abort").code == 1
