"""Nothing stale answers: what tests or measures an op builds what changed first, or refuses it with --no-build."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.toolchain import current

SOURCE = Path("src/demo_kernels/ops/elementwise/cpu.cpp")
LIBRARY = Path("src/demo_kernels/_cpu.so")
FUZZ = ("fuzz", "elementwise", "--count", "1", "--device", "cpu", "--python", sys.executable)


def changed(project: Path) -> None:
    """The op answers something else from now on."""
    source = project / SOURCE
    text = source.read_text()
    source.write_text(text.replace("+ Accumulate(c", "- Accumulate(c"))
    assert source.read_text() != text


def test_fuzz_builds_what_changed(built_patient, run, monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O0")
    assert run(*FUZZ).code == 0
    changed(built_patient)
    done = run(*FUZZ)
    assert f"kernelgen: {SOURCE} changed since the last build: building …" in done.err
    assert done.code == 1, done.out


def test_no_build_refuses_what_is_stale(built_patient, run):
    before = (built_patient / LIBRARY).read_bytes()
    assert run(*FUZZ, "--no-build").code == 0
    changed(built_patient)
    for verb in (FUZZ, ("bench", *FUZZ[1:2], *FUZZ[4:]), ("profile", *FUZZ[1:2], *FUZZ[4:])):
        done = run(*verb, "--no-build")
        assert done.code == 2
        assert f"{SOURCE} changed since the last build, and --no-build leaves it so" in done.err
        assert "`kernelgen build`" in done.err
    assert (built_patient / LIBRARY).read_bytes() == before


def test_no_build_goes_with_no_library_that_is_always_built(built_patient, run):
    for options in (("--perturb",), ("--device", "emulated")):
        done = run("fuzz", "elementwise", "--no-build", *options)
        assert done.code == 2
        assert "--no-build is for the project's own libraries" in done.err


def test_pytest_builds_what_changed_and_no_build_refuses_it(built_patient):
    def pytest_run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_accuracy", *options]
        variables = {**os.environ, "PYTHONPATH": "src", "CXXFLAGS": "-O0"}
        return subprocess.run(command, cwd=built_patient, env=variables, capture_output=True, text=True, check=False)

    changed(built_patient)
    refused = pytest_run("--no-build")
    assert refused.returncode == 4
    assert f"{SOURCE} changed since the last build, and --no-build leaves it so" in refused.stderr
    failed = pytest_run()
    assert failed.returncode == 1
    assert "failed" in failed.stdout


def test_list_says_what_is_stale(built_patient, run):
    assert json.loads(run("list", "--json").out)["stale"] == ""
    changed(built_patient)
    assert json.loads(run("list", "--json").out)["stale"] == f"{SOURCE} changed since the last build"
    assert f"{SOURCE} changed since the last build: `kernelgen build`" in run("list").out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda project: (project / LIBRARY).unlink(), f"{LIBRARY} is not built"),
        (lambda project: os.utime(project / "setup.py"), "setup.py changed"),
        (lambda project: os.utime(project / "src/demo_kernels/include/cpu/half.h"), "include/cpu/half.h changed"),
        (lambda project: (project / SOURCE).with_name("cpu_more.cpp").touch(), "which sources there are changed"),
        (lambda project: (project / "build/release/environment.json").unlink(), "nothing is built yet"),
        (lambda project: os.utime(project / "README.md"), ""),
    ],
)
def test_what_makes_a_library_stale(built_patient, change, words):
    change(built_patient)
    reason = current.reason(built_patient, Path(sys.executable), "cpu")
    assert words in reason
    assert bool(words) == bool(reason)


def test_another_environment_makes_no_library_stale(built_patient, monkeypatch, tmp_path):
    monkeypatch.setenv("CXXFLAGS", "-O1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert current.reason(built_patient, Path(sys.executable), "cpu") == ""
