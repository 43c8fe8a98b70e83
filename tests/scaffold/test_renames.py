"""Edits go along where the template renames or deletes files and folders, and where the owner does."""

import pytest

from tests.conftest import commit_all, git, tree
from tests.scaffold import small_template as small
from tests.scaffold.small_template import (
    MINE,
    OPS,
    edit,
    edited,
    first,
    lines,
    newer,
    newer_everywhere,
    op_folder,
    recorded,
)


def test_an_edit_goes_along_with_a_renamed_file(project, source, run):
    edit(project / "setup.py")
    commit_all(project)
    newer(source, {"setup.py": None, "build/setup_project.py": edited(lines("setup"), 2, "newer")})
    updated = run("update")
    assert updated.code == 0, updated.err
    text = (project / "build/setup_project.py").read_text()
    assert MINE in text
    assert "newer" in text
    assert not (project / "setup.py").exists()
    assert "setup.py → build/setup_project.py" in updated.err


def test_the_edit_of_an_op_goes_along_to_the_same_op(project, source, run):
    """Both ops have the same tuning.h, so git alone would not know which of the renamed files is whose."""
    for name in ("one", "two", "three"):
        assert run("add-op", name, "--recipe", "beta").code == 0
    edit(project / OPS / "two/tuning.h")
    commit_all(project)
    changes = {}
    for recipe in ("alpha", "beta"):
        changes |= {f"{op_folder(recipe)}/tuning.h": None, f"{op_folder(recipe)}/tunables.h": lines("tuning")}
    newer(source, changes)
    assert run("update").code == 0
    texts = {name: (project / OPS / name / "tunables.h").read_text() for name in ("alpha", "one", "two", "three")}
    assert [name for name, text in texts.items() if MINE in text] == ["two"]


def test_the_owner_s_files_go_along_with_a_renamed_folder(project, source, run):
    (project / "src/my_kernels/include/mine.h").write_text(MINE)
    edit(project / "src/my_kernels/include/common.h")
    commit_all(project)
    folder = f"{small.PACKAGE}/include"
    changes = {f"{folder}/{name}.h": None for name in ("common", "math")}
    newer(source, changes | {f"{folder}/torch/{name}.h": lines(name) for name in ("common", "math")})
    assert run("update").code == 0
    assert MINE in (project / "src/my_kernels/include/torch/common.h").read_text()
    assert list(project.glob("src/my_kernels/include/**/mine.h"))
    assert (project / "src/my_kernels/include/torch/math.h").exists()


def test_an_edit_of_a_deleted_file_stays_and_is_a_conflict(project, source, run):
    edit(project / "setup.py")
    commit_all(project)
    newer(source, {"setup.py": None})
    updated = run("update")
    assert updated.code == 3
    assert MINE in (project / "setup.py").read_text()
    assert "setup.py: the template deleted it, and you had edited it" in updated.err
    assert git(project, "diff", "--name-only", "--diff-filter=U") == "setup.py"


def test_an_edit_of_a_renamed_recipe_goes_along(project, source, run):
    edit(project / OPS / "alpha/kernel.cu")
    commit_all(project)
    files = {path.replace("ops_by_recipe.alpha", "ops_by_recipe.gamma"): text for path, text in first().items()}
    small.write(source, files, "v2.0", recipes=("gamma", "beta"))
    updated = run("update")
    assert updated.code == 0, updated.err
    assert MINE in (project / OPS / "alpha/kernel.cu").read_text()
    assert recorded(project)["alpha"]["recipe"] == "gamma"
    assert run("list").code == 0


def test_an_op_of_a_deleted_recipe_stays_as_the_owner_s(project, source, run):
    edit(project / OPS / "alpha/kernel.cu")
    commit_all(project)
    before = tree(project / OPS)
    files = {path: text for path, text in first().items() if "alpha" not in path}
    small.write(source, files, "v2.0", recipes=("beta",))
    updated = run("update", "--json")
    assert updated.code == 0
    assert updated.json["orphans"] == ["alpha"]
    assert tree(project / OPS) == before
    assert recorded(project) == {}


def test_an_op_s_folder_renamed_by_hand_does_not_come_back(project, source, run):
    git(project, "mv", f"{OPS}/alpha", f"{OPS}/renamed")
    edit(project / OPS / "renamed/kernel.cu")
    commit_all(project)
    newer_everywhere(source)
    updated = run("update")
    assert updated.code == 0, updated.err
    assert not (project / OPS / "alpha").exists()
    text = (project / OPS / "renamed/kernel.cu").read_text()
    assert MINE in text
    assert "newer" in text


def test_a_file_and_a_folder_of_one_name_are_both_kept(project, source, run):
    (project / "docs").mkdir()
    (project / "docs/mine.txt").write_text(MINE)
    edit(project / "setup.py")
    commit_all(project)
    newer(source, {"docs": lines("docs"), "setup.py": None, "setup.py/part.py": lines("part")})
    updated = run("update", "--json")
    assert updated.code == 3
    assert (project / "docs/mine.txt").read_text() == MINE
    assert (project / "setup.py/part.py").exists()
    assert any(MINE in path.read_text() for path in project.glob("setup.py*") if path.is_file())
    assert run("update", "--abort").code == 0
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("mine", ("tools.d", "tools.d/setup.py/mine.txt", "tools.d/setup.py"))
def test_a_renamed_file_takes_the_place_of_none_of_the_owner_s(project, source, run, mine):
    (project / mine).parent.mkdir(parents=True, exist_ok=True)
    (project / mine).write_text("the owner's other line")
    edit(project / "setup.py")
    commit_all(project)
    newer(source, {"setup.py": None, "tools.d/setup.py": edited(lines("setup"), 2, "newer")})
    run("update")
    texts = [path.read_text() for path in project.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert any(MINE in text for text in texts)
    assert any("the owner's other line" in text for text in texts)


def test_files_of_two_renamed_folders_that_become_one_are_both_kept(project, source, run):
    changes = {f"{name}/{name}.txt": lines(name) for name in ("left", "right")}
    newer(source, changes)
    assert run("update").code == 0
    for name in ("left", "right"):
        (project / name / "mine.txt").write_text(f"mine, {name}")
    commit_all(project)
    newer(source, {f"both/{name}.txt": lines(name) for name in ("left", "right")}, "v3.0")
    assert run("update").code == 0
    texts = [path.read_text() for path in project.rglob("mine.txt")]
    assert sorted(texts) == ["mine, left", "mine, right"]
    assert (project / "both/left.txt").exists()
