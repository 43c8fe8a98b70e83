"""What a repository and its settings hide from git is kept, too; every kind of repository is updated."""

import pytest

from tests.conftest import commit_all, git, tree
from tests.scaffold.small_template import (
    MINE,
    OPS,
    edit,
    lines,
    newer,
    newer_everywhere,
)


@pytest.mark.parametrize("how", ("ignored", "hidden"))
def test_an_unknown_file_where_the_template_adds_one_is_refused_by_name(project, source, run, how):
    if how == "ignored":
        (project / ".git/info/exclude").write_text("new.txt\n")
    else:
        git(project, "config", "status.showUntrackedFiles", "no")
    (project / "new.txt").write_text(MINE)
    newer(source, {"new.txt": lines("new")})
    before = tree(project)
    refused = run("update")
    assert refused.code == (3 if how == "ignored" else 1)
    assert ("new.txt" if how == "ignored" else "uncommitted") in refused.err
    assert tree(project) == before


def test_without_git_nothing_is_said_of_the_repository(project, run, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    refused = run("update")
    assert refused.code == 1
    assert refused.err.startswith("kernelgen: git is not on PATH; install it")


def test_a_merge_under_way_is_ended_first(project, source, run):
    git(project, "checkout", "-q", "-b", "side")
    (project / "side.txt").write_text(MINE)
    commit_all(project)
    git(project, "checkout", "-q", "-")
    git(project, "merge", "--quiet", "--no-ff", "--no-commit", "--strategy", "ours", "side")
    newer(source)
    before = tree(project)
    refused = run("update")
    assert refused.code == 1
    assert "in the middle of a merge" in refused.err
    assert tree(project) == before


@pytest.mark.parametrize("flag", ("--skip-worktree", "--assume-unchanged"))
def test_edits_that_git_is_told_not_to_see_are_refused_by_name(project, source, run, flag):
    git(project, "update-index", flag, f"{OPS}/alpha/kernel.cu", "setup.py")
    edit(project / OPS / "alpha/kernel.cu")
    edit(project / "setup.py")
    newer(source)
    before = tree(project)
    refused = run("update")
    assert refused.code == 3
    assert f"{OPS}/alpha/kernel.cu" in refused.err
    assert "setup.py" not in refused.err
    assert tree(project) == before


@pytest.mark.parametrize("setting", ("whitespace", "attributes", "merge driver", "autocrlf", "hooks"))
def test_no_setting_of_git_s_loses_an_edit(project, source, run, setting, tmp_path):
    edit(project / OPS / "alpha/kernel.cu", mark=f"{MINE} ")
    if setting == "whitespace":
        git(project, "config", "apply.whitespace", "error")
    elif setting == "attributes":
        (tmp_path / "attributes").write_text("* -diff -merge\n")
        git(project, "config", "core.attributesFile", str(tmp_path / "attributes"))
    elif setting == "merge driver":
        git(project, "config", "merge.default", "ours")
        git(project, "config", "merge.ours.driver", "true")
    elif setting == "autocrlf":
        git(project, "config", "core.autocrlf", "true")
    commit_all(project)
    if setting == "hooks":
        (tmp_path / "hooks").mkdir()
        for name in ("post-checkout", "post-index-change", "pre-merge-commit", "reference-transaction"):
            (tmp_path / "hooks" / name).write_text("#!/bin/sh\nexit 1\n")
            (tmp_path / "hooks" / name).chmod(0o755)
        git(project, "config", "core.hooksPath", str(tmp_path / "hooks"))
    newer(source)
    updated = run("update")
    assert updated.code == 0, updated.err
    text = (project / OPS / "alpha/kernel.cu").read_text()
    assert f"{MINE} \n" in text
    assert "from the newer template" in text


def test_a_stamped_file_that_a_global_ignore_names_is_kept(source, stamp, run, tmp_path):
    folder = stamp("alpha")
    (tmp_path / "ignore").write_text("setup.py\n*.h\n")
    git(folder, "init", "--quiet")
    git(folder, "config", "core.excludesFile", str(tmp_path / "ignore"))
    commit_all(folder)
    edit(folder / "setup.py")
    newer(source)
    assert run("update", "--project", folder).code == 0
    assert MINE in (folder / "setup.py").read_text()
    newer_everywhere(source, "v3.0")
    before = tree(folder)
    commit_all(folder)
    refused = run("update", "--project", folder)
    assert refused.code == 3
    assert "setup.py" in refused.err
    assert tree(folder) == before


def test_remove_op_refuses_a_library_that_is_in_git(project, run):
    library = project / OPS / "alpha/mine.so"
    library.write_bytes(b"\x7fELF")
    git(project, "add", "--force", str(library))
    commit_all(project)
    refused = run("remove-op", "alpha")
    assert refused.code == 3
    assert "mine.so" in refused.err
    assert library.exists()


@pytest.mark.parametrize("name", ("my kernels ", "ärger", "a\nb"))
def test_a_folder_of_any_name_is_updated(source, stamp, run, name):
    folder = stamp("alpha", name=name)
    (folder / f"{name}.txt").write_text("mine")
    commit_all(folder)
    newer(source)
    assert run("update", "--project", folder).code == 0
    assert "newer" in (folder / OPS / "alpha/kernel.cu").read_text()


def test_a_folder_of_another_owner_is_told_by_git_s_own_line(project, source, run, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = run("update")
    assert refused.code == 1
    assert "dubious ownership" in refused.err


@pytest.mark.parametrize("kind", ("worktree", "submodule", "sparse"))
def test_every_kind_of_repository_is_updated(project, source, run, tmp_path, kind):
    folder = project
    edit(project / OPS / "alpha/kernel.cu")
    commit_all(project)
    if kind == "worktree":
        git(project, "worktree", "add", "--quiet", str(tmp_path / "beside"))
        folder = tmp_path / "beside"
    elif kind == "submodule":
        git(project, "submodule", "add", "--quiet", str(source), "vendored")
        commit_all(project)
        (project / "vendored/untracked.txt").write_text("mine")
    elif kind == "sparse":
        git(project, "sparse-checkout", "set", "--no-cone", "/*", "!/tools")
        assert not (project / "tools").exists()
    newer(source)
    updated = run("update", "--project", folder)
    assert updated.code == 0, updated.err
    text = (folder / OPS / "alpha/kernel.cu").read_text()
    assert MINE in text
    assert "from the newer template" in text
    if kind == "sparse":
        assert not (project / "tools").exists()
        commit_all(project)
        newer_everywhere(source, "v3.0")
        assert "tools/run.sh" in run("update").err


def test_a_new_file_that_git_ignores_is_told(project, source, run):
    newer(source, {"cached.log": "log"})
    (project / ".git/info/exclude").write_text("*.log\n")
    updated = run("update")
    assert updated.code == 0
    assert "git add --force: cached.log" in updated.err
