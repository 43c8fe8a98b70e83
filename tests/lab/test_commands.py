"""`bench`, `compare` and `report` from end to end, on a compiled op of a stamped project; and its workflow.

How fast anything is, is not asserted: only what is said of it, and how it ends.
"""

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from kernelgen.lab import results
from kernelgen.toolchain import revision
from tests import warm_start
from tests.conftest import commit_all, git
from tests.stamped.conftest import edit

QUICK = ("--samples", "10")


def slow_down(project: Path) -> None:
    """Every element of the CPU kernel is computed many times over."""
    source = project / "src" / "lab_kernels" / "ops" / "elementwise" / "cpu.cpp"
    again = "for (volatile int again = 0; again < 20; again = again + 1) out[i] ="
    edit(source, ("    out[i] =", f"    {again}"))


# ---- bench ----------------------------------------------------------------------------------------------------


def test_bench_measures_saves_and_reports(lab_project, run, tmp_path):
    result = run("bench", "elementwise", *QUICK, "--save-baseline", "--out", tmp_path / "all.json")
    assert result.code == 0, result.err
    for text in ("elementwise · small · float32", "elementwise · odd · float32", "torch", "copy"):
        assert text in result.out
    measured = results.read(tmp_path / "all.json")
    assert [case["case"] for case in measured["cases"]] == ["small", "odd"]
    assert all(len(case["functions"]["op"]["seconds"]) == 10 for case in measured["cases"])
    assert measured["environment"]["git"] == {"revision": git(lab_project, "rev-parse", "HEAD"), "changed": False}
    (baseline,) = (lab_project / "baselines").glob("*/elementwise.json")
    assert results.read(baseline)["cases"] == measured["cases"]
    commit_all(lab_project)
    result = run("report")
    assert result.code == 0, result.err
    assert (lab_project / "build" / "report" / "report.html").exists()
    # The same file on both sides: nothing differs.
    assert run("compare", tmp_path / "all.json", baseline).code == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--cases", "huge"), "has no case 'huge' on cpu; it has 'small', 'odd'"),
        (("--peers", "liger"), "has no peer 'liger'; it has 'torch'"),
        (("--dtype", "int8"), "does not take int8"),
        (("--device", "cuda"), "torch sees no GPU here"),
        (("--samples", "3"), "3 is no whole number from 10 to"),
    ],
)
def test_bench_refuses_in_a_sentence(lab_project, run, arguments, sentence):
    result = run("bench", "elementwise", *arguments)
    assert result.code == 2
    assert sentence in result.out + result.err


def test_what_bench_measured_before_ctrl_c_is_kept(lab_project, run, tmp_path, monkeypatch):
    from kernelgen.lab.bench import BenchRun

    add = BenchRun.add

    def interrupt(run, event):
        add(run, event)
        if event["event"] == "case":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(BenchRun, "add", interrupt)
    result = run("bench", "elementwise", "--samples", "200", "--out", tmp_path / "part.json")
    assert result.code == 130
    assert "what was measured is kept" in result.err
    assert [case["case"] for case in results.read(tmp_path / "part.json")["cases"]][:1] == ["small"]


def test_results_that_cannot_be_saved_are_one_object_of_json(lab_project, run, monkeypatch):
    from kernelgen.lab import bench

    def save(out, project):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    measured = SimpleNamespace(results=results.new({"device": "cpu"}) | {"notes": []}, save=save)
    monkeypatch.setattr(bench, "measure", lambda *arguments, **options: measured)
    result = run("bench", "elementwise", "--out", "all.json", "--json")
    assert result.code == 2
    assert result.json["cases"] == []
    assert "all.json cannot be written: No space left on device" in result.err


# ---- Revisions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "option", "code"),
    [
        *(("bench", "--trust", 2), ("fuzz", "--trust", 2), ("verdict", "--against", 2), ("profile", "--against", 2)),
        *(("compare", "--against", 3), ("tune", "--trust", 3)),
    ],
)
def test_a_revision_that_there_is_not_is_said_before_anything_is_built(lab_project, run, verb, option, code):
    (lab_project / "src" / "lab_kernels" / "ops" / "elementwise" / "cpu.cpp").write_text("no C++")
    result = run(verb, "elementwise", option, "nowhere")
    assert (result.code, "There is no revision 'nowhere'" in result.err) == (code, True), result.err
    shutil.rmtree(lab_project / ".git")
    result = run(verb, "elementwise", option, "HEAD")
    assert (result.code, "`git init` and commit first" in result.err) == (code, True), result.err


# ---- compare --against ----------------------------------------------------------------------------------------


def compare(run, *arguments):
    return run("compare", "--against", "HEAD", "elementwise", "--cases", "small", "--blocks", "12", *arguments)


@pytest.mark.slow
def test_a_revision_that_became_slower_is_found(lab_project, run):
    slow_down(lab_project)
    result = compare(run, "--markdown")
    assert result.code == 1, result.err + result.out
    assert "1 regression" in result.out
    assert "🔴 regression" in result.out
    assert "confirmed by other processes" in result.out
    assert "Cases that got slower: elementwise · small · float32." in result.out
    assert "Interleaved: 12 blocks" in result.out
    assert "by `kernelgen compare --against HEAD elementwise --blocks 12 --cases small`" in result.out
    assert "torch " in result.out


# What it takes is what a slower one takes; what is said of a faster one, test_paired_measurement.py holds.
@pytest.mark.corpus
@pytest.mark.slow
def test_a_revision_that_became_faster_is_found(lab_project, run):
    slow_down(lab_project)
    commit_all(lab_project)
    git(lab_project, "checkout", "--quiet", "HEAD~1", "--", "src")
    comparison = compare(run, "--json").json
    assert [verdict["verdict"] for verdict in comparison["cases"]] == ["improvement"]
    assert comparison["exit_code"] == 0
    assert comparison["evidence"]


def test_a_wrong_result_is_found(lab_project, run):
    edit(
        lab_project / "src" / "lab_kernels" / "ops" / "elementwise" / "cpu.cpp",
        ("i < end; ++i) {", "i + 1 < end; ++i) {"),
    )
    result = compare(run)
    assert result.code == 1
    assert "wrong result" in result.out


def test_compare_refuses_in_a_sentence(lab_project, run):
    for arguments, sentence in (
        (("--against", "nowhere", "elementwise"), "no revision 'nowhere'"),
        (("--against", "HEAD", "nothing"), "no op 'nothing'"),
        (("--against", "HEAD", "elementwise", "--cases", "huge"), "has no case 'huge'"),
    ):
        result = run("compare", *arguments)
        assert result.code == 3
        assert sentence in result.err


def test_compare_builds_nothing_for_a_gpu_that_is_not_here(lab_project, run, monkeypatch):
    monkeypatch.setattr(revision, "build", lambda *_: pytest.fail("it was built"))
    result = run("compare", "--against", "HEAD", "elementwise", "--device", "cuda")
    assert (result.code, result.out) == (3, "")
    assert "torch sees no GPU here" in result.err


# ---- The workflow ---------------------------------------------------------------------------------------------


@pytest.fixture
def step(lab_project, tmp_path):
    """Runs a step of the stamped workflow `gpu` by its name, on the CPU; returns what it did and what it put out."""
    workflow = yaml.safe_load((lab_project / ".github" / "workflows" / "gpu.yml").read_text())
    steps = {step.get("name"): step for step in workflow["jobs"]["measure"]["steps"]}
    tool = tmp_path / "bin" / "kernelgen"
    tool.parent.mkdir()
    # Fewer blocks and cases than a workflow takes: what is done, and what comes of it, is the same.
    script = 'case "$1" in compare) set -- "$@" --blocks 12;; fuzz) set -- "$@" --count 25;; esac\n'
    script += f'exec {shlex.quote(sys.executable)} {shlex.join(warm_start.kernelgen())} "$@"\n'
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)

    def call(name: str) -> tuple[subprocess.CompletedProcess[str], str]:
        output = tmp_path / "output"
        output.write_text("")
        path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
        variables = {"DEVICE": "cpu", "BASE": "HEAD", "GITHUB_OUTPUT": str(output), "PATH": path, "USE_CUDA": "0"}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]["run"]]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        return done, output.read_text()

    return call


def test_the_workflow_compares_and_says_so(step, lab_project):
    done, output = step("Compare")
    assert done.returncode == 0, done.stderr
    assert output in ("code=0\n", "code=1\n", "code=2\n")
    text = Path("comparison.md").read_text()
    assert text.startswith("### `HEAD (")
    assert text.count("| elementwise · ") == 2


def test_the_workflow_has_nothing_to_compare_a_new_op_with(step, lab_project):
    git(lab_project, "rm", "-r", "--quiet", "--cached", "src/lab_kernels/ops/elementwise")
    git(lab_project, "commit", "--quiet", "--message", "without the op")
    done, output = step("Compare")
    assert (done.returncode, output) == (0, "code=0\n"), done.stderr
    assert "nothing to compare" in Path("comparison.md").read_text()


def test_the_workflow_s_fuzz(step, lab_project):
    edit(
        lab_project / "src" / "lab_kernels" / "ops" / "elementwise" / "lab.py",
        ("DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)", "DTYPES = (torch.float32,)"),
    )
    done, _ = step("Fuzz")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases passed on cpu" in Path("fuzz.txt").read_text()
