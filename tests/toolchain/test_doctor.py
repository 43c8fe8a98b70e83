"""`kernelgen doctor` and `kernelgen env`: what they find, the cure they name, and the exit code."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kernelgen.toolchain import packages
from kernelgen.toolchain.checks import machine
from kernelgen.toolchain.facts import Answer, Facts
from kernelgen.toolchain.finding import builds, error, exit_code, ok
from tests.stamped.conftest import build, stamp

PACKAGE = Path("src/demo_kernels")
VARIABLES = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "TORCH_EXTENSIONS_DIR")


@pytest.fixture(scope="module")
def stamped(tmp_path_factory) -> Path:
    """A project of one op with its CPU library. Shared: do not change it."""
    project = stamp(tmp_path_factory.mktemp("doctor") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
    build(project, USE_CUDA="0").check_returncode()
    return project


@pytest.fixture
def demo(stamped, tmp_path, monkeypatch) -> Path:
    """A copy of the project; the test is inside it, in an environment that asks for nothing."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    project = Path(shutil.copytree(stamped, tmp_path / "demo"))
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def examine(run):
    """The worst finding of each check of `kernelgen doctor` with these arguments, and its exit code."""

    def call(*arguments):
        result = run("doctor", "--json", "--python", sys.executable, *arguments)
        badness = ["ok", "warning", "error"].index
        by_badness = sorted(result.json["findings"], key=lambda finding: badness(finding["state"]))
        found = {finding["check"]: finding for finding in by_badness}
        assert all(finding["cure"] for finding in found.values() if finding["state"] == "error")
        return found, result.code

    return call


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def without_cuda(project: Path) -> None:
    setup = project / "setup.py"
    setup.write_text(setup.read_text().replace("/usr/local/cuda", "/nowhere"))


def facts(torch_cuda: str | None, installed: dict[str, str] | None = None) -> Facts:
    torch = {"home": "/torch", "version": "2.11.0", "cuda": torch_cuda}
    return Facts(Path(), Path(sys.executable), {"torch": Answer(torch), "installed": Answer(installed or {})})


# ---- The verdict ----------------------------------------------------------------------------------------


def test_a_machine_with_a_toolkit_is_well(demo, examine):
    found, code = examine()
    assert {check: f["state"] for check, f in found.items() if f["state"] == "error"} == {}
    assert code == 0


def test_text_shows_each_finding_with_its_cure(demo, run, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = run("doctor", "--python", sys.executable)
    assert "the C++ compiler 'no-such-compiler' was not found" in result.out
    assert "-> apt-get install g++" in result.out
    assert result.out.endswith("No build would succeed.\n")
    assert result.code == 1


def test_the_exit_code_says_what_would_build():
    fine, cuda, cpu = ok("a", "b"), error("a", "b", "c", stops="cuda"), error("a", "b", "c", stops="cpu")
    harmless = error("a", "b", "c")
    assert (exit_code([fine, harmless]), exit_code([cuda]), exit_code([cuda, cpu])) == (0, 3, 1)
    assert builds([cpu]) == {"cpu": False, "cuda": False}


def test_outside_a_project_the_machine_is_examined(tmp_path, monkeypatch, examine):
    monkeypatch.chdir(tmp_path)
    found, _ = examine()
    assert {"python", "torch", "ninja", "compiler", "disk"} <= found.keys()
    assert not {"ops", "libraries"} & found.keys()


def test_a_folder_that_is_no_project_is_refused(tmp_path, run):
    result = run("doctor", "--project", tmp_path)
    assert result.code == 1
    assert "is not inside a kernelgen project" in result.err


def test_it_takes_little_time(demo, examine):
    examine()
    start = time.perf_counter()
    examine()
    assert time.perf_counter() - start < 10  # 1.8 s where nothing else runs, most of it the import of torch


# ---- What is examined -----------------------------------------------------------------------------------


def test_a_python_that_does_not_run(demo, run):
    result = run("doctor", "--json", "--python", shutil.which("false"))
    assert result.code == 1
    assert "does not run as a Python" in result.json["findings"][0]["text"]


def test_a_setup_that_is_broken(demo, examine):
    (demo / "setup.py").write_text("def\n")
    found, code = examine()
    assert found["setup.py"]["text"].startswith("setup.py stopped with SyntaxError")
    assert code == 1


def test_an_old_compiler(demo, examine, tmp_path, monkeypatch):
    old = script(tmp_path / "old-g++", 'case "$*" in *dumpfullversion*) echo 7.5.0;; *) echo "g++ (GCC) 7.5.0";; esac')
    monkeypatch.setenv("CXX", str(old))
    found, code = examine()
    assert "is g++ 7.5.0, too old for torch's headers" in found["compiler"]["text"]
    assert code == 1


def test_a_compiler_too_new_for_nvcc(demo, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *dumpfullversion*) echo 99.1.0;; *--version*) echo "g++ 99";; *) exec g++ "$@";; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "new-g++", text)))
    found, code = examine()
    assert "this nvcc takes g++ up to" in found["host compiler"]["text"]
    assert code == 3


def test_a_compiler_without_headers(demo, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *-E*) echo "x.h:1: fatal error: string: No such file" >&2; exit 1;; *) exec g++ "$@";; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "bare-g++", text)))
    found, code = examine()
    assert "cannot read torch's headers: x.h:1: fatal error: string" in found["compiler"]["text"]
    assert code == 1


def test_no_toolkit(demo, examine, tmp_path, monkeypatch):
    without_cuda(demo)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    found, code = examine()
    assert found["nvcc"]["text"] == "no CUDA toolkit (nvcc) was found."
    assert code == 3


def test_a_toolkit_with_parts_missing(demo, examine, tmp_path, monkeypatch):
    script(tmp_path / "cuda" / "bin" / "nvcc", "exit 1")
    (tmp_path / "cuda" / "include").mkdir()
    major = torch.version.cuda.split(".")[0]
    header = tmp_path / "cuda" / "include" / "cuda_runtime_api.h"
    header.write_text(f"#define CUDART_VERSION  {major}000\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found, code = examine()
    assert "has no libcudart_static.a, which building a kernel needs" in found["toolkit"]["text"]
    assert code == 3


def test_cuda_switched_off(demo, examine, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    found, code = examine()
    assert found["nvcc"]["cure"] == "unset USE_CUDA"
    assert code == 3


def test_an_architecture_that_nvcc_does_not_know(demo, examine, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "3.0")
    found, code = examine()
    assert "cannot compile for 3.0" in found["architectures"]["text"]
    assert code == 3


def test_gpus_and_their_driver(demo, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *name*) echo "NVIDIA A100, 8.0, 525.60.13";; *) echo 8.0;; esac'
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'tools' / 'nvidia-smi', text).parent}:{os.environ['PATH']}")
    found, code = examine()
    assert found["gpu"]["text"] == "NVIDIA A100, compute capability 8.0, driver 525.60.13"
    assert "driver 525.60.13 is too old to run what CUDA 13 builds" in found["driver"]["text"]
    assert "for the GPU here" in found["architectures"]["text"]
    assert code == 0  # A build needs neither.
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    found, _ = examine()
    assert "does not run on this machine's NVIDIA A100 (8.0)" in found["architectures"]["text"]


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("8.0", "8.6", True),
        ("8.6", "8.0", False),
        ("9.0a", "9.0", True),
        ("10.0a", "10.3", False),
        ("10.0f", "10.3", True),
        ("8.0", "9.0", False),
        ("8.0+PTX", "12.0", True),
    ],
)
def test_which_code_runs_where(architecture, capability, runs):
    assert machine.runs_on(architecture, capability) is runs


def test_a_compiler_cache_and_its_hits(demo, examine, tmp_path, monkeypatch):
    text = r"printf 'direct_cache_hit\t30\npreprocessed_cache_hit\t10\ncache_miss\t10\n'"
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'tools' / 'ccache', text).parent}:{os.environ['PATH']}")
    found, _ = examine()
    assert found["compiler cache"]["text"] == "ccache, 40 hits in 50 calls (80%)"


def test_stale_locks(demo, examine, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    lock = tmp_path / "py311_cu130" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w"):
        assert "stale lock" not in examine()[0]
    found, code = examine()
    assert found["stale lock"]["cure"] == f"rm {lock}"
    assert code == 0


def test_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40, 2**20))
    found = list(machine.check(Facts(tmp_path, None, {})))
    assert exit_code(found) == 1
    assert any(finding.text.startswith("only 0.0 GiB free in") for finding in found)


def test_the_record_against_the_disk(demo, examine):
    ops = demo / PACKAGE / "ops"
    shutil.copytree(ops / "elementwise", ops / "stranger")
    assert "ops/stranger is built, and" in examine()[0]["ops"]["text"]
    shutil.rmtree(ops / "stranger")
    shutil.rmtree(ops / "elementwise")
    found, _ = examine()
    assert "lists the op elementwise, and there is no folder" in found["ops"]["text"]


def test_libraries_against_their_sources(demo, examine):
    assert examine()[0]["libraries"]["text"] == "_cpu.so is as new as its sources and loads"
    source = demo / PACKAGE / "ops" / "elementwise" / "cpu.cpp"
    os.utime(source)
    assert examine()[0]["libraries"]["text"] == f"_cpu.so is older than {source.relative_to(demo)}."
    (demo / PACKAGE / "_cpu.so").write_bytes(b"nonsense")
    assert "does not load into torch" in examine()[0]["libraries"]["text"]
    (demo / PACKAGE / "_cpu.so").unlink()
    assert examine()[0]["libraries"]["text"] == "nothing is compiled yet."


def test_a_package_that_does_not_import(demo, examine):
    (demo / PACKAGE / "ops" / "elementwise" / "__init__.py").write_text("import nothing_like_it\n")
    assert "No module named 'nothing_like_it'" in examine()[0]["import"]["text"]


# ---- Cures ----------------------------------------------------------------------------------------------


def test_a_toolkit_from_packages_matches_torch_and_keeps_what_it_pins():
    nvcc = ["nvidia-cuda-nvcc==13.0.*", "nvidia-cuda-crt==13.0.*", "nvidia-nvvm==13.0.*"]
    libraries = ["nvidia-cuda-runtime==13.0.*", "nvidia-cuda-cccl==13.0.*"]
    assert packages.toolkit(facts("13.0")) == nvcc + libraries
    held = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cuda-cccl": "13.3.5"}
    assert packages.toolkit(facts("13.0", held)) == nvcc


@pytest.mark.parametrize("cuda", ["12.8", None])
def test_there_is_no_nvcc_among_packages_of_cuda_12(cuda):
    assert packages.toolkit(facts(cuda)) == []


def test_fix_says_what_it_runs_and_looks_again(demo, run, tmp_path, monkeypatch):
    # A Python whose `-m pip` only notes what it was asked for: nothing is installed by this test.
    python = script(tmp_path / "env" / "bin" / "python", f'[ "$1 $2" = "-m pip" ] || exec {sys.executable} "$@"')
    without_cuda(demo)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    result = run("doctor", "--fix", "--json", "--python", python)
    assert f"kernelgen: running {python} -m pip install 'nvidia-cuda-nvcc==" in result.err
    assert result.json["installed"][0].startswith("nvidia-cuda-nvcc==")
    assert result.code == 3


def test_fix_that_fails(demo, run, tmp_path, monkeypatch):
    python = script(
        tmp_path / "env" / "bin" / "python", f'[ "$1 $2" = "-m pip" ] && exit 1; exec {sys.executable} "$@"'
    )
    without_cuda(demo)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    result = run("doctor", "--fix", "--python", python)
    assert result.code == 1
    assert "failed; its messages are above" in result.err


# ---- kernelgen env --------------------------------------------------------------------------------------


def test_env_is_what_a_build_uses(demo, run, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "3")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 9.0a")
    result = run("env", "--json", "--python", sys.executable)
    assert result.json["MAX_JOBS"] == "3"
    assert result.json["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0a"
    assert Path(result.json["CUDA_HOME"], "bin", "nvcc").is_file()


def test_a_shell_takes_env(demo, run, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0a")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    text = run("env", "--python", sys.executable).out
    shown = subprocess.run(["sh", "-c", f'{text}\necho "$TORCH_CUDA_ARCH_LIST $PATH"'], capture_output=True, text=True)
    assert shown.stdout.startswith(f"8.0;9.0a {Path(sys.executable).parent}:")
    assert shown.stdout.endswith(":/usr/bin:/bin\n")


def test_env_for_fish_and_docker(demo, run, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "3")
    assert "set -gx MAX_JOBS 3\n" in run("env", "--shell", "fish", "--python", sys.executable).out
    lines = run("env", "--shell", "docker", "--python", sys.executable).out.splitlines()
    assert 'ENV MAX_JOBS="3"' in lines
    assert all(line.startswith("ENV ") for line in lines)


def test_env_without_a_toolkit_says_so(demo, run, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    result = run("env", "--python", sys.executable)
    assert "CUDA_HOME" not in result.out
    assert "USE_CUDA=0" in result.err


def test_json_is_one_object(demo, run):
    text = run("doctor", "--json", "--python", sys.executable).out
    assert json.loads(text).keys() == {"builds", "installed", "findings"}
