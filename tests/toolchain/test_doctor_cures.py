"""What `kernelgen doctor --fix` installs, and what `kernelgen env` prints."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.toolchain import packages
from kernelgen.toolchain.facts import Answer, Facts
from tests.toolchain.conftest import script, without_cuda


def facts(torch_cuda: str | None, installed: dict[str, str] | None = None) -> Facts:
    torch = {"home": "/torch", "version": "2.11.0", "cuda": torch_cuda}
    return Facts(Path(), Path(sys.executable), {"torch": Answer(torch), "installed": Answer(installed or {})})


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


def test_fix_says_what_it_runs_and_looks_again(patient, run, tmp_path, monkeypatch):
    # A Python whose `-m pip` only notes what it was asked for: nothing is installed by this test.
    python = script(tmp_path / "env" / "bin" / "python", f'[ "$1 $2" = "-m pip" ] || exec {sys.executable} "$@"')
    without_cuda(patient)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    result = run("doctor", "--fix", "--json", "--python", python)
    assert f"kernelgen: running {python} -m pip install 'nvidia-cuda-nvcc==" in result.err
    assert result.json["installed"][0].startswith("nvidia-cuda-nvcc==")
    assert result.code == 3


def test_fix_that_fails(patient, run, tmp_path, monkeypatch):
    python = script(
        tmp_path / "env" / "bin" / "python", f'[ "$1 $2" = "-m pip" ] && exit 1; exec {sys.executable} "$@"'
    )
    without_cuda(patient)
    monkeypatch.setenv("PATH", str(script(tmp_path / "tools" / "g++", f'exec {shutil.which("g++")} "$@"').parent))
    result = run("doctor", "--fix", "--python", python)
    assert result.code == 1
    assert "failed; its messages are above" in result.err


# ---- kernelgen env --------------------------------------------------------------------------------------


def test_env_is_what_a_build_uses(patient, run, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "3")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 9.0a")
    result = run("env", "--json", "--python", sys.executable)
    assert result.json["MAX_JOBS"] == "3"
    assert result.json["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0a"
    assert Path(result.json["CUDA_HOME"], "bin", "nvcc").is_file()


def test_a_shell_takes_env(patient, run, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0a")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    text = run("env", "--python", sys.executable).out
    shown = subprocess.run(["sh", "-c", f'{text}\necho "$TORCH_CUDA_ARCH_LIST $PATH"'], capture_output=True, text=True)
    assert shown.stdout.startswith(f"8.0;9.0a {Path(sys.executable).parent}:")
    assert shown.stdout.endswith(":/usr/bin:/bin\n")


def test_env_for_fish_and_docker(patient, run, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "3")
    assert "set -gx MAX_JOBS 3\n" in run("env", "--shell", "fish", "--python", sys.executable).out
    lines = run("env", "--shell", "docker", "--python", sys.executable).out.splitlines()
    assert 'ENV MAX_JOBS="3"' in lines
    assert all(line.startswith("ENV ") for line in lines)


def test_env_without_a_toolkit_says_so(patient, run, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    result = run("env", "--python", sys.executable)
    assert "CUDA_HOME" not in result.out
    assert "USE_CUDA=0" in result.err


def test_json_is_one_object(patient, run):
    text = run("doctor", "--json", "--python", sys.executable).out
    assert json.loads(text).keys() == {"builds", "installed", "findings"}
