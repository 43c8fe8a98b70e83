"""`kernelgen verdict`: one answer from a build, fuzz, tests and times."""

import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import op_tests, trusted_tests, verdict
from kernelgen.lab.op_tests import OpTests
from kernelgen.lab.selection import Selection
from kernelgen.lab.step import FAILED, OPEN, PASSED, Step
from kernelgen.lab.verdict import Request, Verdict

ASK = (
    "verdict",
    "elementwise",
    "--device",
    "cpu",
    "--python",
    sys.executable,
    "--cases",
    "small",
    "--seed",
    "0",
    "--json",
)
OP = "src/lab_kernels/ops/elementwise"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([PASSED, PASSED], 0), ([PASSED, OPEN], 2), ([PASSED, OPEN, FAILED], 1), ([FAILED], 1)],
)
def test_the_exit_code_is_that_of_the_worst_step(outcomes, code):
    steps = [Step("fuzz", outcome, "") for outcome in outcomes]
    assert Verdict("op", Request(), steps).exit_code == code


@pytest.mark.parametrize("step", ["_fuzz", "_share"])
def test_ctrl_c_ends_the_verdict_and_not_one_step_of_it(monkeypatch, step):
    ended_early = SimpleNamespace(finished=False)
    monkeypatch.setattr(verdict, "fuzz", lambda *_, **__: ended_early)
    monkeypatch.setattr(verdict.bench, "measure", lambda *_, **__: ended_early)
    with pytest.raises(KeyboardInterrupt):
        getattr(verdict, step)(Selection(Path(), "pkg", Path(sys.executable), ["mine"]), Request())


def report(*cases: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<testsuites>{''.join(cases)}</testsuites>")


def test_failed_tests_are_named():
    failed = [f'<testcase name="f{i}"><failure/></testcase>' for i in range(4)]
    step = op_tests.step_of(report('<testcase name="a"/>', *failed))
    assert (step.outcome, step.text) == (FAILED, "4 of 5 failed: f0, f1, f2 and 1 more")
    assert step.facts["failed"] == ["f0", "f1", "f2", "f3"]


def test_tests_that_were_all_skipped_show_nothing():
    step = op_tests.step_of(report('<testcase name="a"><skipped/></testcase>'))
    assert (step.outcome, step.text) == (OPEN, "no test ran; 1 were skipped")


EDITS = """
import tempfile
from pathlib import Path

def test_edits():
    Path(__file__).with_name("lab.py").write_text("OP = None")

def test_is_right():
    (Path(tempfile.gettempdir()) / "note").touch()
"""
CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--no-build', action='store_true')\n"


def test_tests_of_an_op_cannot_edit_what_judges_it(tmp_path):
    folder = tmp_path / "src" / "pkg" / "ops" / "mine"
    folder.mkdir(parents=True)
    (folder / "test_mine.py").write_text(EDITS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    with OpTests(Selection(tmp_path, "pkg", Path(sys.executable), ["mine"])) as tests:
        step = tests.step()
    if (folder / "lab.py").exists():
        pytest.skip("this kernel has no Landlock")
    assert step.outcome == FAILED
    assert step.text.startswith("1 of 2 failed: test_edits\nPermissionError")


def test_tests_come_from_the_revision_to_trust_and_code_from_the_working_tree(tmp_path):
    root, rule, linked = (tmp_path / name for name in ("root", "rule", "linked"))
    for folder, code, test in ((root, "2", "assert True"), (rule, "1", "from pkg.ops.mine import X; assert X == 1")):
        op = folder / "src" / "pkg" / "ops" / "mine"
        op.mkdir(parents=True)
        (op / "__init__.py").write_text(f"X = {code}\n")
        (op / "test_mine.py").write_text(f"def test_x():\n    {test}\n")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['src']\n")
    (root / "src/pkg/ops/mine/test_more.py").write_text("def test_y():\n    pass\n")
    linked.mkdir()
    trusted_tests.link(linked, root, rule, "pkg", "mine")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "src/pkg/ops/mine"]
    done = subprocess.run(command, cwd=linked, capture_output=True, text=True, check=False)
    assert "1 failed" in done.stdout
    assert "assert 2 == 1" in done.stdout
    changed = trusted_tests.changes(root, rule, "pkg", "mine")
    assert changed == ["src/pkg/ops/mine/test_mine.py", "src/pkg/ops/mine/test_more.py"]


@pytest.fixture
def few_cases(monkeypatch):
    """These tests ask what is said of a fuzz run, not how much a run tries."""
    monkeypatch.setattr(verdict, "fuzz", functools.partial(verdict.fuzz, count=25))


def outcomes(answer: dict) -> dict[str, str]:
    return {step["name"]: step["outcome"] for step in answer["steps"]}


@pytest.mark.slow
def test_a_right_op_passes_every_step(lab_project, few_cases, run):
    done = run(*ASK)
    assert done.code == 0, done.out
    assert outcomes(done.json) == dict.fromkeys(("build", "fuzz", "tests", "share"), PASSED)


@pytest.mark.parametrize(
    ("message", "free", "outcome"),
    [
        ("the compiler refused a source", 2**30, FAILED),
        ("fatal error: error writing to /tmp/cc.s: No space left on device", 2**30, OPEN),
        ("the native build failed", 0, OPEN),
    ],
)
def test_a_disk_that_is_full_refutes_nothing(tmp_path, monkeypatch, message, free, outcome):
    def fail() -> Step:
        raise KernelgenError("the build failed", {"errors": [{"message": message}]})

    monkeypatch.setattr(verdict, "_steps", lambda *_: (step for step in [("build", fail)]))
    monkeypatch.setattr(verdict.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    judged = verdict.judge(SimpleNamespace(ops=["clip"], root=tmp_path), Request())
    assert [step.outcome for step in judged.steps] == [outcome]
    assert judged.exit_code == (1 if outcome == FAILED else LabError.exit_code)


@pytest.mark.slow
def test_after_a_step_that_fails_the_rest_does_not_run(lab_project, monkeypatch, run):
    # The first case fails, and each that does is shrunk.
    monkeypatch.setattr(verdict, "fuzz", functools.partial(verdict.fuzz, count=1))
    source = lab_project / OP / "cpu.cpp"
    text = source.read_text()
    source.write_text(text.replace("+ Accumulate(c", "- Accumulate(c"))
    done = run(*ASK)
    assert (done.code, outcomes(done.json)) == (1, {"build": PASSED, "fuzz": FAILED})
    assert f"{OP}/cpu.cpp changed since the last build" in done.json["steps"][0]["text"]
    assert "kernelgen fuzz elementwise --seed 0 --case" in done.json["steps"][1]["text"]
    source.write_text(f"{text}\nint f() {{ return nothing; }}\n")
    done = run(*ASK)
    assert (done.code, outcomes(done.json)) == (1, {"build": FAILED})
    assert done.json["steps"][0]["errors"][0]["line"] == text.count("\n") + 2


@pytest.mark.slow
def test_against_a_revision_the_time_is_compared(lab_project, few_cases, run):
    done = run(*ASK, "--against", "HEAD", "--blocks", "10")
    assert done.code in (0, 2), done.out  # Ten blocks may be too few to rule 3% out.
    assert set(outcomes(done.json)) == {"build", "fuzz", "tests", "compare", "share"}
    (step,) = (step for step in done.json["steps"] if step["name"] == "compare")
    assert not step["faster"]
    assert [case["case"] for case in step["comparison"]["cases"]] == ["elementwise · small · float32"]
