"""What once lost a line, or left a project in a wrong state: each is a test of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.scaffold import journal, mend, template
from kernelgen.scaffold import project as project_module
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.render import parse_yaml
from tests.conftest import ROOT, commit_all, git, tree
from tests.scaffold import small_template as small
from tests.scaffold.small_template import (
    ANSWERS_FILE,
    KERNEL,
    MINE,
    OPS,
    edit,
    edited,
    first,
    lines,
    newer,
    newer_everywhere,
    op_folder,
)

# Only a process that hangs takes so long, however busy the machine is.
LIMIT_S = 600


def recorded(project: Path) -> dict[str, dict]:
    return {op["name"]: op for op in parse_yaml((project / ANSWERS_FILE).read_bytes())["ops"]}


def kernelgen(*arguments: str, **options) -> subprocess.Popen:
    """`kernelgen` as a process, with the template of this test."""
    code = (
        "import sys; from pathlib import Path; from kernelgen.scaffold import template; "
        "template.HOME = Path(sys.argv.pop(1)); from kernelgen.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, str(template.HOME), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, env=environment, **pipes)


# 1: what changes while a verb runs


@pytest.mark.parametrize("moment", ("planned", "captured"))
def test_1_a_file_saved_while_the_update_runs_is_kept(project, source, run, monkeypatch, moment):
    newer(source)
    path = project / OPS / "alpha/kernel.cu"
    original = Plan.apply if moment == "planned" else os.replace

    def saving(*arguments, **options):
        if moment == "planned" or Path(arguments[0]) == path:
            path.write_text(MINE)
        return original(*arguments, **options)

    monkeypatch.setattr(*((Plan, "apply") if moment == "planned" else (os, "replace")), saving)
    refused = run("update")
    assert refused.code == 3
    assert f"{OPS}/alpha/kernel.cu changed while kernelgen ran" in refused.err
    assert path.read_text() == MINE
    assert "v1.0" in (project / ANSWERS_FILE).read_text()


def test_1_a_file_created_while_the_update_runs_is_kept(project, source, run, monkeypatch):
    newer(source, {"new.txt": lines("new")})
    link = os.link

    def creating(place, target):
        if not os.path.lexists(target):
            Path(target).write_text(MINE)
        return link(place, target)

    monkeypatch.setattr(os, "link", creating)
    assert run("update").code == 3
    assert (project / "new.txt").read_text() == MINE


def test_1_an_op_cannot_be_added_while_an_update_runs(project, source, run, monkeypatch):
    newer(source)
    adding = []
    apply = Plan.apply

    def slow(plan, keep=None):
        adding.append(kernelgen("add-op", "late", "--recipe", "alpha"))
        assert "Waiting for another kernelgen command" in adding[0].stderr.readline()
        assert "late" not in recorded(project)
        return apply(plan, keep)

    monkeypatch.setattr(Plan, "apply", slow)
    assert run("update").code == 0
    adding[0].communicate(timeout=LIMIT_S)
    assert adding[0].returncode == 0
    assert "from the newer template" in (project / OPS / "late/kernel.cu").read_text()
    assert recorded(project)["late"]["version"] == "v2.0"


# 2, 3: what git does not keep


@pytest.mark.parametrize("how", ("ignored", "hidden"))
def test_2_an_unknown_file_where_the_template_adds_one_is_refused_by_name(project, source, run, how):
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


@pytest.mark.parametrize("flag", ("--skip-worktree", "--assume-unchanged"))
def test_3_edits_that_git_is_told_not_to_see_are_refused_by_name(project, source, run, flag):
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


# 4: what the template deletes or renames


def test_4_an_edit_goes_along_with_a_renamed_file(project, source, run):
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


def test_4_the_edit_of_an_op_goes_along_to_the_same_op(project, source, run):
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


def test_4_the_owner_s_files_go_along_with_a_renamed_folder(project, source, run):
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


def test_4_an_edit_of_a_deleted_file_stays_and_is_a_conflict(project, source, run):
    edit(project / "setup.py")
    commit_all(project)
    newer(source, {"setup.py": None})
    updated = run("update")
    assert updated.code == 3
    assert MINE in (project / "setup.py").read_text()
    assert "setup.py: the template deleted it, and you had edited it" in updated.err
    assert git(project, "diff", "--name-only", "--diff-filter=U") == "setup.py"


def test_4_an_edit_of_a_renamed_recipe_goes_along(project, source, run):
    edit(project / OPS / "alpha/kernel.cu")
    commit_all(project)
    files = {path.replace("ops_by_recipe.alpha", "ops_by_recipe.gamma"): text for path, text in first().items()}
    small.write(source, files, "v2.0", recipes=("gamma", "beta"))
    updated = run("update")
    assert updated.code == 0, updated.err
    assert MINE in (project / OPS / "alpha/kernel.cu").read_text()
    assert recorded(project)["alpha"]["recipe"] == "gamma"
    assert run("list").code == 0


def test_4_an_op_of_a_deleted_recipe_stays_as_the_owner_s(project, source, run):
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


# 5, 6: git's settings


@pytest.mark.parametrize("setting", ("whitespace", "attributes", "merge driver", "autocrlf", "hooks"))
def test_5_no_setting_of_git_s_loses_an_edit(project, source, run, setting, tmp_path):
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


def test_6_a_stamped_file_that_a_global_ignore_names_is_kept(source, stamp, run, tmp_path):
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


# 7, 8: bytes


@pytest.mark.parametrize("version", (None, "v2.0"))
@pytest.mark.parametrize("content", (b"\0binary\xff" + MINE.encode(), f"é {MINE}\n".encode("latin-1"), b"", b"\r\n"))
def test_7_8_files_are_merged_by_bytes(project, source, run, version, content):
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


def test_7_both_versions_of_a_binary_file_lie_side_by_side(project, source, run):
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


def test_8_latin_1_and_crlf_merge_with_the_template_s_changes(project, source, run):
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


# 9: conflicts


def test_9_a_conflict_is_shown_in_the_file_and_never_as_a_rejected_patch(project, source, run, monkeypatch):
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


def test_9_an_update_with_conflicts_can_be_undone(project, source, run):
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


# 10, 11, 12, 13: several at once, kills, locks, full disks


def test_10_ops_added_at_once_are_all_recorded(project):
    adding = [kernelgen("add-op", f"op_{number}", "--recipe", "beta") for number in range(6)]
    outcomes = [(process.communicate(timeout=LIMIT_S)[1], process.returncode) for process in adding]
    assert [code for _, code in outcomes] == [0] * 6, outcomes
    assert set(recorded(project)) == {"alpha", *(f"op_{number}" for number in range(6))}
    assert {path.name for path in (project / OPS).iterdir()} == set(recorded(project))


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_11_a_signal_undoes_and_is_the_exit_code(project, source, run, monkeypatch, number):
    newer(source)
    before = tree(project)
    link = os.link

    def stopped(*arguments):
        link(*arguments)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(os, "link", stopped)
    result = run("update")
    assert result.code == 128 + number
    assert tree(project) == before
    assert git(project, "status", "--porcelain", "--ignored") == ""


def test_11_after_a_kill_the_next_verb_undoes_first(project, source, run, monkeypatch):
    newer_everywhere(source)
    before = tree(project)
    script = (
        "import os, sys; from pathlib import Path; from kernelgen.scaffold import template, journal; "
        "template.HOME = Path(sys.argv.pop(1)); write = journal._replace; calls = iter(range(99)); "
        "journal._replace = lambda *a: (write(*a), next(calls) == 2 and os.kill(os.getpid(), 9)); "
        "from kernelgen.cli import main; main()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", script, str(source), "update"], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert tree(project) != before
    listed = run("list")
    assert listed.code == 0
    assert "is undone" in listed.err
    assert tree(project) == before
    assert run("update").code == 0
    assert "v2.0" in (project / ANSWERS_FILE).read_text()


def test_12_a_stale_lock_of_the_index_is_refused_before_anything_is_written(project, source, run):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    newer(source)
    (project / ".git/index.lock").touch()
    before = tree(project)
    refused = run("update")
    assert refused.code == 3
    assert "index.lock exists" in refused.err
    assert tree(project) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_13_a_full_disk_behind_standard_output_does_not_deny_what_was_done(project):
    with Path("/dev/full").open("w") as full:
        process = kernelgen("add-op", "second", "--recipe", "alpha", stdout=full)
        _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "nothing was changed" not in error
    assert "the output is incomplete" in error
    assert "second" in recorded(project)


# 14, 15, 16, 17: versions and the record


def test_14_a_tag_that_is_no_version_and_a_dirty_checkout_record_a_commit_that_exists(source, stamp, run):
    git(source, "tag", "--delete", "v1.0")
    git(source, "tag", "nightly")
    (source / "template/setup.py").write_text("not committed\n")
    folder = stamp("alpha")
    commit_all(folder)
    (source / "template/setup.py").write_text(lines("setup"))
    newer(source, tag="later")
    (source / "template/setup.py").write_text("not committed\n")
    assert run("update", "--project", folder).code == 0
    commit = parse_yaml((folder / ANSWERS_FILE).read_bytes())["_commit"]
    assert git(source, "rev-parse", f"{commit}^{{commit}}") == git(source, "rev-parse", "HEAD")
    assert run("list", "--project", folder).code == 0


def test_14_a_project_stamped_between_releases_is_no_downgrade(source, stamp, run):
    newer(source, tag=None)
    folder = stamp("alpha")
    commit_all(folder)
    updated = run("update", "--project", folder)
    assert updated.code == 0
    assert "has nothing new" in updated.out


def test_14_a_commit_that_does_not_exist_is_one_sentence(project, run):
    text = (project / ANSWERS_FILE).read_text()
    (project / ANSWERS_FILE).write_text(text.replace("_commit: v1.0", "_commit: v1.0-1-gdeadbee"))
    commit_all(project)
    refused = run("update")
    assert refused.code == 1
    assert "`_commit: v1.0-1-gdeadbee`" in refused.err
    assert refused.err.count("\n") == 1


def test_15_an_op_of_an_older_branch_gets_the_changes_of_the_update_that_it_missed(project, source, run):
    git(project, "checkout", "--quiet", "-b", "branch")
    assert run("add-op", "late", "--recipe", "alpha").code == 0
    edit(project / OPS / "late/kernel.cu")
    commit_all(project)
    git(project, "checkout", "--quiet", "-")
    newer(source)
    assert run("update").code == 0
    commit_all(project)
    git(project, "merge", "--quiet", "--no-edit", "branch")
    assert "newer template" not in (project / OPS / "late/kernel.cu").read_text()
    assert run("update").code == 0
    text = (project / OPS / "late/kernel.cu").read_text()
    assert "from the newer template" in text
    assert MINE in text
    assert recorded(project)["late"]["version"] == "v2.0"
    commit_all(project)
    assert run("update").code == 0
    assert git(project, "status", "--porcelain") == ""


def test_16_branches_that_add_ops_merge_and_both_lines_may_stay(project, run):
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


_MARKS = ("<" * 7, "=" * 7, ">" * 7)


@pytest.mark.parametrize("verb", (["list"], ["add-op", "x"], ["remove-op", "alpha"], ["update"], ["diff"]))
@pytest.mark.parametrize(
    ("line", "says"),
    (
        ("  {name: alpha, recipe: beta},\n]", "lists alpha more than once"),
        ("  {name: other, recipe: gamma},\n]", "of the recipe 'gamma'"),
        ("]\nops: []", "`ops:` twice"),
    ),
)
def test_16_a_record_that_cannot_be_right_is_refused_by_all_verbs_alike(project, run, verb, line, says):
    text = (project / ANSWERS_FILE).read_text()
    assert text.endswith("]\n")
    (project / ANSWERS_FILE).write_text(text[:-2] + line + "\n")
    commit_all(project)
    before = tree(project)
    refused = run(*verb)
    assert refused.code == 1
    assert says in refused.err
    assert tree(project) == before


def test_16_the_owner_s_comments_in_the_record_stay(project, source, run):
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


def test_17_an_op_s_folder_renamed_by_hand_does_not_come_back(project, source, run):
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


# 18, 19, and what ended in a traceback


def test_18_executable_bits_arrive_and_the_owner_s_stay(project, source, run):
    (project / "setup.py").chmod(0o755)
    commit_all(project)
    newer(source, {}, executable=("tools/run.sh",))
    assert run("update").code == 0
    assert os.access(project / "tools/run.sh", os.X_OK)
    assert os.access(project / "setup.py", os.X_OK)


def test_19_remove_op_refuses_a_library_that_is_in_git(project, run):
    library = project / OPS / "alpha/mine.so"
    library.write_bytes(b"\x7fELF")
    git(project, "add", "--force", str(library))
    commit_all(project)
    refused = run("remove-op", "alpha")
    assert refused.code == 3
    assert "mine.so" in refused.err
    assert library.exists()


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


@pytest.mark.parametrize("name", ("my kernels ", "ärger", "a\nb"))
def test_a_folder_of_any_name_is_updated(source, stamp, run, name):
    folder = stamp("alpha", name=name)
    (folder / f"{name}.txt").write_text("mine")
    commit_all(folder)
    newer(source)
    assert run("update", "--project", folder).code == 0
    assert "newer" in (folder / OPS / "alpha/kernel.cu").read_text()


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


def test_a_folder_of_another_owner_is_told_by_git_s_own_line(project, source, run, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = run("update")
    assert refused.code == 1
    assert "dubious ownership" in refused.err


# The plan


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


def test_nothing_new_touches_nothing(project, run):
    edit(project / "setup.py")
    commit_all(project)
    before = tree(project)
    updated = run("update", "--json")
    assert updated.code == 0
    assert updated.json["applied"] is False
    assert tree(project) == before


def test_an_update_goes_to_the_version_that_is_named(project, source, run):
    newer(source)
    small.write(source, first() | {"third.txt": "3\n"}, "v3.0")
    assert run("update", "--to", "v2.0", "--json").json["after"] == "v2.0"
    assert not (project / "third.txt").exists()
    commit_all(project)
    refused = run("update", "--to", "nowhere")
    assert refused.code == 2
    assert "no tag, branch or commit 'nowhere'" in refused.err
    assert run("update").code == 0
    assert (project / "third.txt").exists()


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


def test_a_project_of_an_installed_package_is_updated_offline(source, stamp, run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "site-packages/kernelgen/_template"

    def install(version: str) -> None:
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(source, package, ignore=shutil.ignore_patterns(".git"))
        monkeypatch.setattr(template, "HOME", package)
        monkeypatch.setattr(template, "__version__", version)

    install("1.0")
    folder = stamp("alpha")
    assert "_src_path" not in (folder / ANSWERS_FILE).read_text()
    edit(folder / OPS / "alpha/kernel.cu")
    commit_all(folder)
    newer(source)
    install("2.0")
    assert run("list", "--project", folder).code == 0
    updated = run("update", "--project", folder, "--json")
    assert updated.code == 0, updated.err
    assert (updated.json["before"], updated.json["after"]) == ("v1.0", "v2.0")
    text = (folder / OPS / "alpha/kernel.cu").read_text()
    assert MINE in text
    assert "from the newer template" in text
    shutil.rmtree(tmp_path / "cache")
    git(folder, "reset", "--quiet", "--hard")
    refused = run("update", "--project", folder)
    assert refused.code == 1
    assert "kernelgen==1.0" in refused.err


def test_a_project_of_a_repository_s_address_is_updated(project, source, run, tmp_path, monkeypatch):
    git(tmp_path, "clone", "--quiet", "--bare", str(source), "bare.git")
    monkeypatch.setattr("kernelgen.scaffold.template.url", lambda place: str(tmp_path / "bare.git"))
    text = (project / ANSWERS_FILE).read_text().replace(f"_src_path: {source}", "_src_path: gh:someone/kernels")
    (project / ANSWERS_FILE).write_text(text)
    commit_all(project)
    newer(source)
    git(source, "push", "--quiet", "--tags", str(tmp_path / "bare.git"))
    assert run("update").code == 0
    assert "_src_path: gh:someone/kernels" in (project / ANSWERS_FILE).read_text()
    assert "from the newer template" in (project / OPS / "alpha/kernel.cu").read_text()
    commit_all(project)
    shutil.rmtree(tmp_path / "bare.git")
    refused = run("update")
    assert refused.code == 1
    assert "cannot be reached" in refused.err


def test_the_journal_is_no_part_of_the_project(project):
    assert not (project / journal.FOLDER).exists()


def test_17_doctor_mends_the_record_of_renamed_and_deleted_folders(project, source, run):
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


def test_a_record_with_windows_line_ends_keeps_them(project, run):
    (project / ANSWERS_FILE).write_bytes((project / ANSWERS_FILE).read_bytes().replace(b"\n", b"\r\n"))
    before = (project / ANSWERS_FILE).read_bytes()
    assert run("add-op", "second", "--recipe", "beta").code == 0
    assert (project / ANSWERS_FILE).read_bytes().count(b"\r\n") == before.count(b"\r\n") + 1
    assert run("remove-op", "second").code == 0
    assert (project / ANSWERS_FILE).read_bytes() == before


def test_a_new_file_that_git_ignores_is_told(project, source, run):
    newer(source, {"cached.log": "log"})
    (project / ".git/info/exclude").write_text("*.log\n")
    updated = run("update")
    assert updated.code == 0
    assert "git add --force: cached.log" in updated.err


def test_what_git_alone_undid_is_forgotten(project, source, run):
    edit(project / OPS / "alpha/kernel.cu", 2)
    commit_all(project)
    newer(source)
    assert run("update").code == 3
    git(project, "reset", "--quiet", "--hard")
    assert run("update", "--abort").code == 1
    assert run("update").code == 3
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "with git alone")
    assert run("update").code == 0
    assert not (project / ".kernelgen").exists()


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


def test_a_comment_that_the_template_changes_in_the_record_is_not_the_owner_s(project, source, run):
    name = small.ANSWERS
    newer(source, {name: first()[name].replace("# What this project", "# Which template this project")})
    assert run("update").code == 0
    text = (project / ANSWERS_FILE).read_text()
    assert text.startswith("# Which template this project")
    assert "# What this project" not in text
