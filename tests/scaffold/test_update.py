"""A project takes in a newer template, by stock copier and by `kernelgen update`, and loses no edit."""

import copier
import pytest

from tests.conftest import commit_all, git, tree

OP = "src/my_kernels/ops"


def stock(folder) -> None:
    copier.run_update(folder, defaults=True, overwrite=True, quiet=True)


def change_template(checkout, name: str, old: str, new: str) -> None:
    source = next((checkout / "template").glob(name))
    assert source.read_text().count(old) >= 1
    source.write_text(source.read_text().replace(old, new))
    commit_all(checkout, "a newer template")


@pytest.fixture
def grown(own_checkout, stamp, run):
    """A committed project with one op of its own, edited, and a newer template to take in."""
    folder = stamp("elementwise")
    commit_all(folder)
    assert run("add-op", "mine", "--recipe", "elementwise", "--project", folder).code == 0
    commit_all(folder)
    edited = folder / OP / "mine/reference.py"
    edited.write_text(edited.read_text() + "\n# an edit of mine\n")
    commit_all(folder)
    name = "src/*/ops/*.elementwise */__init__.py.jinja"
    source = next((own_checkout / "template").glob(name))
    change_template(own_checkout, name, source.read_text(), source.read_text() + "\n# from the newer template\n")
    return folder


@pytest.mark.parametrize("how", ("stock", "kernelgen"))
def test_an_update_keeps_added_ops_and_edits(grown, own_checkout, run, how):
    if how == "stock":
        stock(grown)
    else:
        updated = run("update", "--project", grown, "--json")
        assert updated.code == 0, updated.err
        assert updated.json["conflicts"] == []
        assert updated.json["after"] == git(own_checkout, "describe", "--tags", "--always")
    for op in ("elementwise", "mine"):
        assert (grown / OP / op / "__init__.py").read_text().endswith("# from the newer template\n")
    assert (grown / OP / "mine/reference.py").read_text().endswith("# an edit of mine\n")
    states = {op["name"]: op["state"] for op in run("list", "--json", "--project", grown).json["ops"]}
    assert states == {"elementwise": "pristine", "mine": "edited"}
    assert run("add-op", "third", "--recipe", "elementwise", "--project", grown).code == 0
    assert (grown / OP / "third/__init__.py").read_text().endswith("# from the newer template\n")


@pytest.mark.parametrize("how", ("stock", "kernelgen"))
def test_an_updated_unedited_project_equals_a_fresh_one(grown, stamp, run, how):
    git(grown, "revert", "--no-edit", "HEAD")
    stock(grown) if how == "stock" else run("update", "--project", grown)
    fresh = stamp("elementwise", name="fresh/my-kernels")
    assert run("add-op", "mine", "--recipe", "elementwise", "--project", fresh).code == 0
    assert tree(grown) == tree(fresh)


def test_a_removed_op_stays_removed(grown, run):
    assert run("remove-op", "elementwise", "--project", grown).code == 0
    commit_all(grown)
    stock(grown)
    assert not (grown / OP / "elementwise").exists()
    assert "newer" in (grown / OP / "mine/__init__.py").read_text()


def test_a_dry_run_shows_the_merge_and_writes_nothing(grown, run):
    before = tree(grown)
    shown = run("update", "--project", grown, "--dry-run")
    assert shown.code == 0
    assert "+# from the newer template" in shown.out
    assert tree(grown) == before
    assert git(grown, "status", "--porcelain") == ""


def test_conflicts_are_listed_marked_and_exit_3(grown, own_checkout, run):
    edited = grown / OP / "mine/__init__.py"
    edited.write_text(edited.read_text() + "\n# my own last line\n")
    commit_all(grown)
    updated = run("update", "--project", grown, "--json")
    assert updated.code == 3
    assert updated.json["conflicts"] == [f"{OP}/mine/__init__.py"]
    assert b"<<<<<<< before updating" in edited.read_bytes()
    assert git(grown, "diff", "--name-only", "--diff-filter=U") == f"{OP}/mine/__init__.py"
    stages = git(grown, "ls-files", "--unmerged").splitlines()
    assert [line.split()[2] for line in stages] == ["1", "2", "3"]
    git(grown, "checkout", "--theirs", "--", f"{OP}/mine/__init__.py")
    assert edited.read_text().endswith("# from the newer template\n")


def test_a_project_below_its_repository_is_updated(own_checkout, stamp, run, tmp_path):
    folder = stamp("elementwise", name="repository/below/my-kernels")
    commit_all(tmp_path / "repository")
    change_template(own_checkout, "src/*/_library.py.jinja", '"""', '"""Newer: ')
    assert run("update", "--project", folder).code == 0
    assert '"""Newer: ' in (folder / "src/my_kernels/_library.py").read_text()


def test_an_uncommitted_checkout_is_not_taken_in(grown, own_checkout, run):
    (own_checkout / "template/stray.txt").write_text("not committed\n")
    assert run("update", "--project", grown).code == 0
    assert not (grown / "stray.txt").exists()


def test_a_dirty_tree_is_refused(grown, run):
    (grown / "stray.txt").write_text("mine\n")
    refused = run("update", "--project", grown)
    assert refused.code == 1
    assert "uncommitted changes" in refused.err
    assert "Merging" not in refused.err


def test_a_project_without_git_is_refused(own_checkout, stamp, run):
    refused = run("update", "--project", stamp("elementwise"))
    assert refused.code == 1
    assert "git init" in refused.err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    (
        ("_commit: ", "was: ", "add the line `_commit: v"),
        ("_src_path: /", "_src_path: ", "is relative"),
        ("_src_path: /", "_src_path: /nowhere/", "The template cannot be read from /nowhere/"),
    ),
)
def test_a_project_that_cannot_say_where_it_is_from_is_refused(grown, run, old, new, says):
    answers = grown / ".copier-answers.yml"
    answers.write_text(answers.read_text().replace(old, new))
    commit_all(grown)
    refused = run("update", "--project", grown)
    assert refused.code == 1
    assert says in refused.err
