"""`kernelgen doctor`: what it finds, and its exit code."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelgen.toolchain.checks import machine
from kernelgen.toolchain.facts import Answer, Facts
from kernelgen.toolchain.finding import builds, error, exit_code, ok
from tests.toolchain.conftest import script, without_cuda

PACKAGE = Path("src/demo_kernels")


@pytest.fixture
def examine(run):
    """The worst finding of each check of `kernelgen doctor` with these arguments, and its exit code."""

    def call(*arguments):
        result = run("doctor", "--json", "--python", sys.executable, *arguments)
        badness = ["ok", "warning", "error"].index
        by_badness = sorted(result.json["findings"], key=lambda finding: badness(finding["state"]))
        worst = {finding["check"]: finding for finding in by_badness}
        assert all(finding["cure"] for finding in worst.values() if finding["state"] == "error")
        return worst, result.code

    return call


# ---- The verdict ----------------------------------------------------------------------------------------


def test_a_machine_with_a_toolkit_is_well(built_patient, examine):
    findings, code = examine()
    assert [check for check, finding in findings.items() if finding["state"] == "error"] == []
    assert code == 0


def test_text_shows_each_finding_with_its_cure(patient, run, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = run("doctor", "--python", sys.executable)
    assert "the C++ compiler 'no-such-compiler' was not found" in result.out
    assert "-> unset CXX, or set it to a compiler that is installed" in result.out
    assert result.out.endswith("No build would succeed.\n")
    assert result.code == 1


def test_the_exit_code_says_what_would_build():
    fine, cuda, cpu = ok("a", "b"), error("a", "b", "c", stops="cuda"), error("a", "b", "c", stops="cpu")
    harmless = error("a", "b", "c")
    assert (exit_code([fine, harmless]), exit_code([cuda]), exit_code([cuda, cpu])) == (0, 3, 1)
    assert builds([cpu]) == {"cpu": False, "cuda": False}


def test_outside_a_project_the_machine_is_examined(tmp_path, monkeypatch, examine):
    monkeypatch.chdir(tmp_path)
    findings, _ = examine()
    assert {"python", "torch", "ninja", "compiler", "disk"} <= findings.keys()
    assert not {"ops", "libraries"} & findings.keys()


def test_a_folder_that_is_no_project_is_refused(tmp_path, run):
    result = run("doctor", "--project", tmp_path)
    assert result.code == 1
    assert "is not inside a kernelgen project" in result.err


def test_it_takes_little_time(built_patient, examine):
    def processor_time() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    examine()
    start = processor_time()
    examine()
    assert processor_time() - start < 10  # 1.8 s where nothing else runs, most of it the import of torch


# ---- What is examined -----------------------------------------------------------------------------------


def test_a_python_that_does_not_run(patient, run):
    result = run("doctor", "--json", "--python", shutil.which("false"))
    assert result.code == 1
    assert "does not run as a Python" in result.json["findings"][0]["text"]


def test_a_setup_that_is_broken(patient, examine):
    (patient / "setup.py").write_text("def\n")
    findings, code = examine()
    assert findings["setup.py"]["text"].startswith("setup.py stopped with SyntaxError")
    assert code == 1


def test_an_old_compiler(patient, examine, tmp_path, monkeypatch):
    old = script(tmp_path / "old-g++", 'case "$*" in *dumpfullversion*) echo 7.5.0;; *) echo "g++ (GCC) 7.5.0";; esac')
    monkeypatch.setenv("CXX", str(old))
    findings, code = examine()
    assert "is g++ 7.5.0, too old for torch's headers" in findings["compiler"]["text"]
    assert code == 1


def test_a_compiler_too_new_for_nvcc(patient, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *dumpfullversion*) echo 99.1.0;; *--version*) echo "g++ 99";; *) exec g++ "$@";; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "new-g++", text)))
    findings, code = examine()
    assert "this nvcc takes g++ up to" in findings["host compiler"]["text"]
    assert code == 3


def test_a_compiler_of_conda_too_new_for_nvcc(patient, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *dumpfullversion*) echo 99.1.0;; *--version*) echo "g++ 99";; *) exec g++ "$@";; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "x86_64-conda-linux-gnu-g++", text)))
    findings, _ = examine()
    assert findings["host compiler"]["cure"].startswith("conda install 'gxx<")


def test_folders_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    findings = {finding.check: finding for finding in machine.check(Facts(tmp_path, None, {}))}
    assert findings["temporary"].cure == "unset TMPDIR"
    assert "the emulated GPU" in findings["cache"].text
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "cache"))
    assert {"temporary", "cache"}.isdisjoint(finding.check for finding in machine.check(Facts(tmp_path, None, {})))


def test_a_driver_too_old_for_torch_where_there_is_no_toolkit():
    facts = Facts(Path(), None, {"torch": Answer({"cuda": "13.0"})})
    (finding,) = machine._driver(facts, "535.104.05")
    assert finding.text.startswith(
        "driver 535.104.05 is too old to run torch, which is built with CUDA 13; it takes 580"
    )


def test_a_compiler_without_headers(patient, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *-E*) echo "x.h:1: fatal error: string: No such file" >&2; exit 1;; *) exec g++ "$@";; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "bare-g++", text)))
    findings, code = examine()
    assert "cannot read torch's headers: x.h:1: fatal error: string" in findings["compiler"]["text"]
    assert code == 1


@pytest.mark.parametrize(
    ("variable", "flags", "check", "sentence", "code"),
    [
        ("CXXFLAGS", "-O2 -fno-such-flag", "compiler", "CXXFLAGS='-O2 -fno-such-flag' breaks every build", 1),
        ("CXXFLAGS", '"-O2', "compiler", "it is no list of words", 1),
        ("LDFLAGS", "-lno_such_library", "compiler", "cannot find -lno_such_library", 1),
        ("NVCC_APPEND_FLAGS", "--no-such-flag", "nvcc flags", "nvcc stops at the flags in NVCC_APPEND_FLAGS", 3),
        ("NVCC_PREPEND_FLAGS", "-arch=sm_90", "nvcc flags", "NVCC_PREPEND_FLAGS holds -arch=sm_90", 3),
    ],
)
def test_flags_that_break_a_build(patient, examine, monkeypatch, variable, flags, check, sentence, code):
    monkeypatch.setenv(variable, flags)
    findings, answer = examine()
    assert sentence in findings[check]["text"]
    assert answer == code


def test_no_toolkit(patient, examine, tmp_path, monkeypatch):
    without_cuda(patient)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    findings, code = examine()
    assert findings["nvcc"]["text"] == "no CUDA toolkit (nvcc) was found."
    assert code == 3


def test_a_toolkit_with_parts_missing(patient, examine, tmp_path, monkeypatch):
    script(tmp_path / "cuda" / "bin" / "nvcc", "exit 1")
    (tmp_path / "cuda" / "include").mkdir()
    major = torch.version.cuda.split(".")[0]
    header = tmp_path / "cuda" / "include" / "cuda_runtime_api.h"
    header.write_text(f"#define CUDART_VERSION  {major}000\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    findings, code = examine()
    assert "has no libcudart_static.a, which building a kernel needs" in findings["toolkit"]["text"]
    assert code == 3


def test_cuda_switched_off(patient, examine, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    findings, code = examine()
    assert findings["nvcc"]["cure"] == "unset USE_CUDA"
    assert code == 3


def test_an_architecture_that_nvcc_does_not_know(patient, examine, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "3.0")
    findings, code = examine()
    assert "cannot compile for 3.0" in findings["architectures"]["text"]
    assert code == 3


def test_gpus_and_their_driver(patient, examine, tmp_path, monkeypatch):
    text = 'case "$*" in *name*) echo "NVIDIA A100, 8.0, 525.60.13";; *) echo 8.0;; esac'
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'tools' / 'nvidia-smi', text).parent}:{os.environ['PATH']}")
    findings, code = examine()
    assert findings["gpu"]["text"] == "NVIDIA A100, compute capability 8.0, driver 525.60.13"
    assert "driver 525.60.13 is too old to run what CUDA 13 builds" in findings["driver"]["text"]
    assert "for the GPU here" in findings["architectures"]["text"]
    assert code == 0  # A build needs neither a GPU nor a driver.
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    findings, _ = examine()
    assert "does not run on this machine's NVIDIA A100 (8.0)" in findings["architectures"]["text"]


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


def test_a_compiler_cache_and_its_hits(patient, examine, tmp_path, monkeypatch):
    text = r"printf 'direct_cache_hit\t30\npreprocessed_cache_hit\t10\ncache_miss\t10\n'"
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'tools' / 'ccache', text).parent}:{os.environ['PATH']}")
    findings, _ = examine()
    assert findings["compiler cache"]["text"] == "ccache, 40 hits in 50 calls (80%)"


def test_stale_locks(patient, examine, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    lock = tmp_path / "py311_cu130" / "my_extension" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w"):
        assert "stale lock" not in examine()[0]
    findings, code = examine()
    assert findings["stale lock"]["cure"] == f"rm {lock}"
    assert code == 0


def test_a_process_that_ends_and_a_lock_that_is_removed_meanwhile(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    stale, removed = tmp_path / "a" / "lock", tmp_path / "b" / "lock"
    for lock in (stale, removed):
        lock.parent.mkdir()
        lock.touch()
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

    def end_before(list_names):
        def call(folder):
            if str(folder) == f"/proc/{process.pid}/fd":
                process.communicate()
                removed.unlink()
            return list_names(folder)

        return call

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, end_before(getattr(os, name)))
    assert [finding.cure for finding in machine._locks()] == [f"rm {stale}"]
    assert process.returncode == 0


def test_a_full_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40, 2**20))
    findings = list(machine.check(Facts(tmp_path, None, {})))
    assert exit_code(findings) == 1
    assert any(finding.text.startswith("only 0.0 GiB free in") for finding in findings)


def test_a_read_only_project(patient, examine, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != patient)
    findings, code = examine()
    assert "is read-only for you" in findings["disk"]["text"]
    assert code == 1


def test_the_record_against_the_disk(patient, examine):
    ops = patient / PACKAGE / "ops"
    shutil.copytree(ops / "elementwise", ops / "stranger")
    assert "ops/stranger is built, and" in examine()[0]["ops"]["text"]
    shutil.rmtree(ops / "stranger")
    shutil.rmtree(ops / "elementwise")
    findings, _ = examine()
    assert "lists the op elementwise, and there is no folder" in findings["ops"]["text"]


def test_libraries_against_their_sources(built_patient, examine):
    assert examine()[0]["libraries"]["text"] == "_cpu.so is as new as its sources and loads"
    source = built_patient / PACKAGE / "ops" / "elementwise" / "cpu.cpp"
    os.utime(source)
    assert examine()[0]["libraries"]["text"] == f"_cpu.so is older than {source.relative_to(built_patient)}."
    (built_patient / PACKAGE / "_cpu.so").write_bytes(b"nonsense")
    assert "does not load into torch" in examine()[0]["libraries"]["text"]
    (built_patient / PACKAGE / "_cpu.so").unlink()
    assert examine()[0]["libraries"]["text"] == "nothing is compiled yet."


def test_a_package_that_does_not_import(built_patient, examine):
    (built_patient / PACKAGE / "ops" / "elementwise" / "__init__.py").write_text("import nothing_like_it\n")
    assert "No module named 'nothing_like_it'" in examine()[0]["import"]["text"]
