"""The record of a project's ops, which branches merge and owners edit."""

import shutil
import subprocess

import pytest

from kernelgen.scaffold import mend
from kernelgen.scaffold import project as project_module
from tests.conftest import commit_all, git, tree
from tests.scaffold import small_template as small
from tests.scaffold.small_template import (
    ANSWERS_FILE,
    MINE,
    OPS,
    first,
    newer,
    recorded,
)

_MARKS = ("<" * 7, "=" * 7, ">" * 7)


def test_branches_that_add_ops_merge_and_both_lines_may_stay(project, run):
    main = git(project, "branch", "--show-current")
    for name in ("beta_one", "beta_two"):
        git(project, "checkout", "--quiet", "-b", name, main)
        assert run("add-op", name, "--recipe", "beta").code == 0
        commit_all(project)
    merged = subprocess.run(["git", "merge", "--quiet", "beta_one"], capture_output=True, check=False)
    if merged.returncode:
        kept = [line for line in (project / ANSWERS_FILE).read_text().splitlines() if line[:7] not in _MARKS]
        (project / ANSWERS_FILE).write_text("\n".join(kept) + "\n")
    assert set(recorded(project)) == {"alpha", "beta_one", "beta_two"}
    assert run("list").code == 0
    assert run("add-op", "third", "--recipe", "alpha").code == 0


@pytest.mark.parametrize("verb", (["list"], ["add-op", "x"], ["remove-op", "alpha"], ["update"], ["diff"]))
@pytest.mark.parametrize(
    ("line", "says"),
    (
        ("  {name: alpha, recipe: beta},\n]", "lists alpha more than once"),
        ("  {name: other, recipe: gamma},\n]", "of the recipe 'gamma'"),
        ("]\nops: []", "`ops:` twice"),
    ),
)
def test_a_record_that_cannot_be_right_is_refused_by_all_verbs_alike(project, run, verb, line, says):
    text = (project / ANSWERS_FILE).read_text()
    assert text.endswith("]\n")
    (project / ANSWERS_FILE).write_text(text[:-2] + line + "\n")
    commit_all(project)
    before = tree(project)
    refused = run(*verb)
    assert refused.code == 1
    assert says in refused.err
    assert tree(project) == before


def test_the_owner_s_comments_in_the_record_stay(project, source, run):
    text = (project / ANSWERS_FILE).read_text()
    text = text.replace("package_name:", "# why this name\npackage_name:").replace(
        "  {name", "  # my first op\n  {name"
    )
    (project / ANSWERS_FILE).write_text(text.replace("recipe: alpha},", "recipe: alpha},  # the fast one"))
    commit_all(project)
    assert run("add-op", "zeta", "--recipe", "beta").code == 0
    newer(source)
    commit_all(project)
    assert run("update").code == 0
    text = (project / ANSWERS_FILE).read_text()
    assert "# why this name\npackage_name:" in text
    assert "  # my first op\n  {name: alpha, recipe: alpha},  # the fast one\n" in text
    assert text.count("#") == 5


@pytest.mark.parametrize("schema", ("7", "{text: 5}", "null", "[]", "{arguments: {}}"))
def test_a_damaged_entry_ends_in_no_traceback(project, run, schema):
    text = (
        (project / ANSWERS_FILE)
        .read_text()
        .replace("recipe: alpha}", f"recipe: alpha, schema: {schema}, version: [1]}}")
    )
    (project / ANSWERS_FILE).write_text(text)
    commit_all(project)
    for verb in (["list"], ["update"], ["add-op", "x", "--recipe", "beta"], ["remove-op", "alpha"], ["diff"]):
        assert run(*verb).code in (0, 1), verb


def test_doctor_mends_the_record_of_renamed_and_deleted_folders(project, source, run):
    assert run("add-op", "gone", "--recipe", "beta").code == 0
    shutil.rmtree(project / OPS / "gone")
    (project / OPS / "alpha").rename(project / OPS / "renamed")
    (project / OPS / "own").mkdir()
    (project / OPS / "own/__init__.py").write_text(MINE)
    with project_module.writing(project) as home:
        plan, sentences = mend.mend(home)
        plan.apply()
    assert set(recorded(project)) == {"renamed"}
    assert len(sentences) == 2
    assert "renamed" in sentences[0]
    assert mend.mend(project_module.find(project))[1] == []


def test_a_record_with_windows_line_ends_keeps_them(project, run):
    (project / ANSWERS_FILE).write_bytes((project / ANSWERS_FILE).read_bytes().replace(b"\n", b"\r\n"))
    before = (project / ANSWERS_FILE).read_bytes()
    assert run("add-op", "second", "--recipe", "beta").code == 0
    assert (project / ANSWERS_FILE).read_bytes().count(b"\r\n") == before.count(b"\r\n") + 1
    assert run("remove-op", "second").code == 0
    assert (project / ANSWERS_FILE).read_bytes() == before


def test_a_comment_that_the_template_changes_in_the_record_is_not_the_owner_s(project, source, run):
    name = small.ANSWERS
    newer(source, {name: first()[name].replace("# What this project", "# Which template this project")})
    assert run("update").code == 0
    text = (project / ANSWERS_FILE).read_text()
    assert text.startswith("# Which template this project")
    assert "# What this project" not in text
