"""What changes, ends or runs beside a verb that writes: nothing of it is lost, and what was begun is undone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.scaffold import journal
from kernelgen.scaffold.plan import Plan
from tests.conftest import ROOT, commit_all, git, tree
from tests.scaffold.processes import LIMIT_S, kernelgen
from tests.scaffold.small_template import (
    ANSWERS_FILE,
    MINE,
    OPS,
    edit,
    lines,
    newer,
    newer_everywhere,
    recorded,
)


@pytest.mark.parametrize("moment", ("planned", "captured"))
def test_a_file_saved_while_the_update_runs_is_kept(project, source, run, monkeypatch, moment):
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


def test_a_file_created_while_the_update_runs_is_kept(project, source, run, monkeypatch):
    newer(source, {"new.txt": lines("new")})
    link = os.link

    def creating(place, target):
        if not os.path.lexists(target):
            Path(target).write_text(MINE)
        return link(place, target)

    monkeypatch.setattr(os, "link", creating)
    assert run("update").code == 3
    assert (project / "new.txt").read_text() == MINE


def test_an_op_cannot_be_added_while_an_update_runs(project, source, run, monkeypatch):
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


def test_ops_added_at_once_are_all_recorded(project):
    adding = [kernelgen("add-op", f"op_{number}", "--recipe", "beta") for number in range(6)]
    outcomes = [(process.communicate(timeout=LIMIT_S)[1], process.returncode) for process in adding]
    assert [code for _, code in outcomes] == [0] * 6, outcomes
    assert set(recorded(project)) == {"alpha", *(f"op_{number}" for number in range(6))}
    assert {path.name for path in (project / OPS).iterdir()} == set(recorded(project))


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_a_signal_undoes_and_is_the_exit_code(project, source, run, monkeypatch, number):
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


def test_after_a_kill_the_next_verb_undoes_first(project, source, run, monkeypatch):
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


def test_a_stale_lock_of_the_index_is_refused_before_anything_is_written(project, source, run):
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
def test_a_full_disk_behind_standard_output_does_not_deny_what_was_done(project):
    with Path("/dev/full").open("w") as full:
        process = kernelgen("add-op", "second", "--recipe", "alpha", stdout=full)
        _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "nothing was changed" not in error
    assert "the output is incomplete" in error
    assert "second" in recorded(project)


def test_the_journal_is_no_part_of_the_project(project):
    assert not (project / journal.FOLDER).exists()


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
