"""What is linked with the names of PyTorch's functions loads PyTorch, and has what only PyTorch itself has."""

import subprocess
from pathlib import Path

import pytest
import torch

from kernelgen.emulator import compiler
from kernelgen.emulator.compiler import EmulatorError
from kernelgen.emulator.link import link
from kernelgen.emulator.torch_names import names_folder

LIBRARIES = Path(torch.__file__).parent / "lib"
# A function of the stable ABI; one of C++, which the names lack; one that nobody has.
STABLE = 'extern "C" int aoti_torch_get_dim(void*, long*); int used(long* n) { return aoti_torch_get_dim(nullptr, n); }'
OTHER = "namespace at { int get_num_threads(); } int used() { return at::get_num_threads(); }"
MISSING = 'extern "C" int aoti_torch_of_no_release(); int used() { return aoti_torch_of_no_release(); }'


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """Links a source against PyTorch by its names; returns the library, and the libraries that it loads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = compiler.find().command

    def call(text: str) -> tuple[Path, list[str]]:
        source, target = tmp_path / "used.cpp", tmp_path / "used.so"
        source.write_text(text)
        subprocess.run([command, "-fPIC", "-c", str(source), "-o", str(tmp_path / "used.o")], check=True)
        words = [str(tmp_path / "used.o"), "-Wl,--no-as-needed", f"-L{LIBRARIES}", "-ltorch", "-ltorch_cpu"]
        link(command, target, words, names_folder(command, LIBRARIES))
        output = subprocess.check_output(["readelf", "-d", str(target)], text=True)
        return target, [line.split("[")[1].rstrip("]") for line in output.splitlines() if "(NEEDED)" in line]

    return call


@pytest.mark.parametrize("text", [STABLE, OTHER])
def test_a_library_loads_pytorch(linked, text):
    needed = linked(text)[1]
    assert needed[:2] == ["libtorch.so", "libtorch_cpu.so"]


def test_a_function_that_pytorch_lacks_is_named(linked):
    with pytest.raises(EmulatorError, match="does not have aoti_torch_of_no_release"):
        linked(MISSING)


def test_the_names_suffice_for_the_stable_abi(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = names_folder(compiler.find().command, LIBRARIES)
    names = subprocess.check_output(["nm", "-D", "--defined-only", folder / "libtorch_cpu.so"], text=True)
    assert " aoti_torch_get_dim\n" in names
    assert (folder / "libtorch_cpu.so").stat().st_size < (LIBRARIES / "libtorch_cpu.so").stat().st_size / 50
