"""What an owner replaced, deleted or changed stays; what an update would do is shown."""

import os

import pytest

from tests.conftest import commit_all, git, tree
from tests.scaffold.processes import LIMIT_S, kernelgen
from tests.scaffold.small_template import (
    MINE,
    OPS,
    PACKAGE,
    edit,
    edited,
    lines,
    newer,
    newer_everywhere,
    op_folder,
)


def test_executable_bits_arrive_and_the_owner_s_stay(project, source, run):
    (project / "setup.py").chmod(0o755)
    commit_all(project)
    newer(source, {}, executable=("tools/run.sh",))
    assert run("update").code == 0
    assert os.access(project / "tools/run.sh", os.X_OK)
    assert os.access(project / "setup.py", os.X_OK)


def test_a_stamped_file_replaced_by_a_folder_stays_a_folder(project, source, run):
    (project / "setup.py").unlink()
    (project / "setup.py").mkdir()
    (project / "setup.py/mine.txt").write_text(MINE)
    commit_all(project)
    newer_everywhere(source)
    updated = run("update", "--json")
    assert updated.code == 0, updated.err
    assert updated.json["skipped"] == ["setup.py"]
    assert (project / "setup.py/mine.txt").read_text() == MINE


def test_a_deleted_stamped_file_stays_deleted_and_is_told(project, source, run):
    (project / OPS / "alpha/kernel.cu").unlink()
    commit_all(project)
    newer(source)
    updated = run("update")
    assert updated.code == 0
    assert not (project / OPS / "alpha/kernel.cu").exists()
    assert f"you deleted it, so it stays deleted: {OPS}/alpha/kernel.cu" in updated.err


def test_a_link_in_place_of_a_stamped_file_stays(project, source, run, tmp_path):
    (tmp_path / "elsewhere.h").write_text(MINE)
    path = project / OPS / "alpha/tuning.h"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.h")
    commit_all(project)
    newer_everywhere(source)
    assert run("update").code == 3
    assert path.is_symlink()
    assert (tmp_path / "elsewhere.h").read_text() == MINE


def test_a_folder_that_became_a_link_is_updated_where_its_files_are(project, source, run):
    (project / "src/my_kernels/include").rename(project / "headers")
    (project / "src/my_kernels/include").symlink_to("../../headers")
    edit(project / "headers/math.h")
    commit_all(project)
    newer(source, {f"{PACKAGE}/include/math.h": edited(lines("math"), 2, "newer")})
    updated = run("update")
    assert updated.code == 0, updated.err
    assert (project / "src/my_kernels/include").is_symlink()
    assert {MINE, "newer"} <= set((project / "headers/math.h").read_text().splitlines())


@pytest.mark.parametrize("language", ("C", "en_US.ISO-8859-1"))
def test_a_dry_run_in_a_locale_of_ascii_alone_ends_in_no_traceback(project, source, language):
    (project / "ä\udcff.txt").write_text("mine")
    edit(project / OPS / "alpha/kernel.cu", mark="ä mine")
    commit_all(project)
    newer(source, {"ö.txt": "ö\n", "setup.py": None})
    environment = {"LC_ALL": language, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process = kernelgen("update", "--dry-run", env=environment, text=False)
    out, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, error
    assert b"new file mode" in out
    assert b"Traceback" not in error


def test_a_dry_run_is_a_patch_that_git_applies(project, source, run, tmp_path):
    edit(project / "setup.py")
    (project / OPS / "alpha/tuning.h").write_bytes(b"\0mine\xff" * 40)
    commit_all(project)
    changes = {"setup.py": None, "moved.py": edited(lines("setup"), 2, "newer"), "a b.txt": "new", "ä.txt": ""}
    changes |= {f"{op_folder('alpha')}/tuning.h": None, f"{op_folder('alpha')}/sub/tuning.h": lines("tuning")}
    newer(source, changes, executable=("tools/run.sh",))
    before = tree(project)
    shown = run("update", "--dry-run")
    assert shown.code == 0, shown.err
    assert tree(project) == before
    (tmp_path / "plan.diff").write_bytes(shown.out.encode("utf-8", "surrogateescape"))
    git(project, "apply", str(tmp_path / "plan.diff"))
    by_git = tree(project)
    git(project, "add", "--all")
    git(project, "reset", "--quiet", "--hard")
    assert run("update").code == 0
    assert tree(project) == by_git


def test_an_answer_is_changed_and_files_move_with_it(project, source, run):
    edit(project / OPS / "alpha/kernel.cu")
    (project / OPS / "alpha/mine.txt").write_text("mine")
    commit_all(project)
    newer(source)
    updated = run("update", "--data", "package_name=other")
    assert updated.code == 0, updated.err
    assert MINE in (project / "src/other/ops/alpha/kernel.cu").read_text()
    assert (project / "src/other/ops/alpha/mine.txt").exists()
    assert not (project / "src/my_kernels").exists()
    commit_all(project)
    assert run("update", "--data", "nonsense=1").code == 2
    assert run("list").code == 0


def test_diff_shows_what_the_owner_changed(project, source, run):
    edit(project / "setup.py")
    (project / "tools/run.sh").unlink()
    (project / "own.txt").write_text("mine")
    (project / "README.md").write_bytes((project / "README.md").read_bytes().replace(b"\n", b"\r\n"))
    shown = run("diff", "--json").json
    assert shown["edited"] == ["setup.py"]
    assert shown["deleted"] == ["tools/run.sh"]
    assert f"+{MINE}" in run("diff").out
