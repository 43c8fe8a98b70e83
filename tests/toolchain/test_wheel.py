"""The check of a wheel: what it lets pass, and what it names."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import elf
from kernelgen.toolchain.wheel import build_wheel, check_library, check_wheel
from tests.stamped.conftest import stamp

FREE = 'extern "C" int aoti_torch_device_type_cpu(); extern "C" int f() { return aoti_torch_device_type_cpu(); }'


@pytest.fixture
def compiled(tmp_path):
    """A shared library of some C++ text, as bytes."""

    def call(text: str, *flags: str) -> bytes:
        (tmp_path / "library.cpp").write_text(text)
        command = ["g++", "-shared", "-fPIC", "-o", tmp_path / "library.so", tmp_path / "library.cpp", *flags]
        subprocess.run(command, check=True)
        return (tmp_path / "library.so").read_bytes()

    return call


def problems(data: bytes) -> list[str]:
    return [finding.text for finding in check_library("_cpu.so", data)]


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return folder / name


@pytest.mark.skipif(not shutil.which("nm"), reason="there is no nm to compare with")
def test_symbols_are_those_that_nm_lists(compiled, tmp_path):
    data = compiled("#include <iostream>\nvoid f() { std::cout << 1; }")
    output = subprocess.check_output(["nm", "-D", "--undefined-only", tmp_path / "library.so"], text=True)
    lines = map(str.split, output.splitlines())
    assert elf.read(data).symbols.keys() == {name.split("@")[0] for kind, name in lines if kind == "U"}


def test_the_stable_abi_and_the_system_pass(compiled):
    assert problems(compiled(f"#include <iostream>\n{FREE}\nvoid g() {{ std::cout << 1; }}")) == []


@pytest.mark.parametrize(
    ("declaration", "call", "why"),
    [
        ("namespace c10 { void g(); }", "c10::g()", "belongs to torch's C++ ABI"),
        ("namespace at { struct Tensor { void g() const; }; }", "at::Tensor().g()", "belongs to torch's C++ ABI"),
        ('extern "C" void PyList_New();', "PyList_New()", "belongs to Python"),
        ('extern "C" void cudaMalloc();', "cudaMalloc()", "is outside torch's stable ABI"),
    ],
)
def test_other_symbols_are_named(compiled, declaration, call, why):
    (problem,) = problems(compiled(f"{declaration}\nvoid f() {{ {call}; }}"))
    assert why in problem


def test_other_libraries_are_named(compiled, tmp_path):
    subprocess.run(["g++", "-shared", "-o", tmp_path / "libcudart.so.13", "-xc++", os.devnull], check=True)
    data = compiled(FREE, "-Wl,--no-as-needed", str(tmp_path / "libcudart.so.13"), f"-Wl,-rpath,{tmp_path}:$ORIGIN")
    needs, looks = problems(data)
    assert "libcudart.so.13, which not every torch brings" in needs
    assert f"looks for libraries in {tmp_path}, a folder of the machine that built it" in looks


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x01\x01", b"\x7fELF\x02\x01" + bytes(20)])
def test_what_is_no_library_is_refused(data):
    with pytest.raises(KernelgenError):
        elf.read(data)


def test_the_tag_and_the_contents(compiled, tmp_path):
    files = {"demo/_cpu.so": compiled(FREE), "demo/_cuda.so": compiled(FREE)}
    (fine,) = check_wheel(wheel(tmp_path, "demo-1-cp310-abi3-linux_x86_64.whl", files))
    assert fine.state == "ok"
    found = check_wheel(wheel(tmp_path, "demo-1-cp311-cp311-linux_x86_64.whl", {}))
    assert [finding.check for finding in found] == ["tag", "contents", "contents"]


def test_no_wheel(tmp_path):
    (tmp_path / "demo.whl").write_bytes(b"nonsense")
    with pytest.raises(KernelgenError, match="is no wheel"):
        check_wheel(tmp_path / "demo.whl")


def test_a_project_makes_a_portable_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    project = stamp(tmp_path / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
    made, *found = build_wheel(project, Path(sys.executable), tmp_path / "dist")
    assert zipfile.is_zipfile(made.text)
    assert [(finding.check, finding.state) for finding in found] == [("contents", "warning"), ("portable", "ok")]


def test_a_project_that_does_not_build(tmp_path):
    (tmp_path / "setup.py").write_text("raise SystemExit('no')")
    with pytest.raises(KernelgenError, match="The wheel does not build"):
        build_wheel(tmp_path, Path(sys.executable), tmp_path / "dist")
