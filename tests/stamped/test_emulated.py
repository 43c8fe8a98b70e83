"""The emulated GPU as a device: a stamped project's CUDA sources are built, fuzzed and found at fault without a GPU."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.emulator import compiler, gpus
from kernelgen.emulator.compiler import EmulatorError
from kernelgen.emulator.library import has_toolkit

from .conftest import edit, run, stamp

# All of them on one worker: they change one project.
pytestmark = pytest.mark.slow
needs_headers = pytest.mark.skipif(not has_toolkit(), reason="needs the headers of a CUDA toolkit, and g++")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("emulated") / "p"
    stamp(folder, ops=[{"name": "elementwise", "recipe": "elementwise"}])
    return folder


def kernelgen(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "kernelgen", *arguments], project)


def fuzz(project: Path, *options: str) -> tuple[int, dict]:
    done = kernelgen(project, "fuzz", "elementwise", "--device", "emulated", "--json", *options)
    return done.returncode, json.loads(done.stdout)


@needs_headers
def test_fuzz_passes_and_list_says_so(project):
    code, report = fuzz(project, "--gpu", "sm_80")
    assert code == 0, report
    assert report["device"] == "emulated sm_80"
    listed = json.loads(kernelgen(project, "list", "--json").stdout)
    assert not listed["ops"][0]["proven"]["emulated sm_80"]["changed"]


@needs_headers
def test_an_access_past_the_end_is_named_by_line_and_tensor(project):
    source = project / "src/demo_kernels/ops/elementwise/kernel.cu"
    before = source.read_text()
    try:
        edit(source, ("i < n; i += threads", "i <= n; i += threads"))
        code, report = fuzz(project, "--count", "3", "--seed", "1")
    finally:
        source.write_text(before)
    assert code == 1
    failure = report["ops"][0]["failures"][0]
    assert failure["check"] == "emulated GPU"
    assert "past the end of tensor 1 that the op made" in failure["text"]
    assert "ops/elementwise/kernel.cu:" in failure["text"]
    assert "KERNELGEN_SCHEDULE=" in failure["text"]
    assert failure["command"].endswith("--device emulated --gpu sm_90a")


def test_missing_headers_name_the_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "_header_folders", lambda packages: iter([tmp_path]))
    with pytest.raises(EmulatorError, match="pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"):
        compiler._find_headers(tmp_path)


def test_a_missing_compiler_names_a_command(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(EmulatorError, match=r"apt-get install g\+\+"):
        compiler._find_gcc()


def test_the_gpus_are_those_of_the_table():
    assert [gpu.architecture for gpu in gpus.gpus()] == ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a"]
    assert gpus.find("sm_90a").build_architecture == "9.0a"
