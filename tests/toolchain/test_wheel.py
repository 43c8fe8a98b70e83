"""The check of a wheel: what it lets pass, and what it names."""

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import elf, fatbin, gpus
from kernelgen.toolchain.wheel import build_wheel, check_gpus, check_library, check_wheel, refuse_native
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
    findings = check_wheel(wheel(tmp_path, "demo-1-cp311-cp311-linux_x86_64.whl", {}))
    assert [finding.check for finding in findings] == ["tag", "contents", "contents"]


def fat_binary(*entries: tuple[int, int, int]) -> bytes:
    """A container as nvcc writes it, of entries without code: the kind (1 is PTX), the architecture, flags."""
    inside = b"".join(
        struct.pack("<HHIQ12xI8xQ16x", kind, 0x101, 64, 0, number, flags) for kind, number, flags in entries
    )
    return b"before" + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inside)) + inside + b"after"


def test_the_gpus_of_a_library_are_read_from_it():
    ampere, hopper, family, ptx = (2, 80, 0x11), (2, 90, 0x100011), (2, 100, 0x1200011), (1, 90, 0x8011)
    architectures = fatbin.architectures(fat_binary(ptx, hopper, ampere) + fat_binary(family, ampere))
    assert architectures == ["8.0", "9.0a", "10.0f", "9.0+PTX"]
    assert fatbin.architectures(b"no kernels") == []


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc here")
def test_the_gpus_are_those_that_nvcc_compiled_for(tmp_path):
    (tmp_path / "kernel.cu").write_text("__global__ void kernel(float* x) { *x = 1; }\n")
    command = ["nvcc", "-shared", "-Xcompiler=-fPIC", "-gencode=arch=compute_90a,code=sm_90a"]
    command += ["-gencode=arch=compute_80,code=[sm_80,compute_80]", "-o", "library.so", "kernel.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert fatbin.architectures((tmp_path / "library.so").read_bytes()) == ["8.0", "9.0a", "8.0+PTX"]


def test_a_library_for_one_gpu_alone_is_warned_of():
    """Its wheel would be installed anywhere, by its name, and run on no other GPU."""
    (finding,) = check_gpus("_cuda.so", fat_binary((2, 89, 0x11)))
    assert (finding.state, finding.check) == ("warning", "gpus")
    assert finding.text == (
        "_cuda.so holds code for 8.9, and no PTX: it runs on no newer GPU; it does not run on 7.5 (T4, RTX 20), "
        "8.0 (A100), 8.6 (A10, RTX 30), 9.0 (H100, H200), 10.0 (B200), 12.0 (RTX 50); no name says so."
    )
    (finding,) = check_gpus("_cuda.so", fat_binary((2, 90, 0x100011), (1, 90, 0x108011)))
    assert finding.state == "warning"  # PTX for 9.0a is for 9.0 alone.
    (finding,) = check_gpus("_cuda.so", fat_binary((2, 80, 0x11), (1, 90, 0x8011)))
    assert finding.state == "ok"
    assert "8.0, 9.0+PTX, and newer GPUs compile the PTX" in finding.text
    assert finding.text.endswith("it does not run on 7.5 (T4, RTX 20)")
    assert list(check_gpus("_cpu.so", b"")) == []


@pytest.mark.parametrize(
    ("architectures", "missing"),
    [
        (["8.0", "9.0+PTX"], ["7.5"]),
        (["7.5+PTX"], []),
        (["8.6", "9.0a"], ["7.5", "8.0", "10.0", "12.0"]),
        (["10.0f", "9.0a+PTX"], ["7.5", "8.0", "8.6", "8.9", "12.0"]),
    ],
)
def test_which_gpus_code_runs_on(architectures, missing):
    assert gpus.unserved(architectures) == missing


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc here")
def test_a_wheel_for_native_is_refused_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    project = stamp(tmp_path / "demo", cuda_architectures="native")
    python = Path(sys.executable)
    with pytest.raises(
        KernelgenError, match=r'--wheel --arch "8.0;9.0\+PTX" for every GPU from 8.0 on, or --arch native'
    ):
        refuse_native(project, python, {})
    refuse_native(project, python, {"TORCH_CUDA_ARCH_LIST": "native"})
    refuse_native(project, python, {"USE_CUDA": "0"})
    refuse_native(project, python, {"USE_CUDA": "Off"})
    pinned = stamp(tmp_path / "pinned", cuda_architectures="9.0a")
    refuse_native(pinned, python, {})


def test_no_wheel(tmp_path):
    (tmp_path / "demo.whl").write_bytes(b"nonsense")
    with pytest.raises(KernelgenError, match="is no wheel"):
        check_wheel(tmp_path / "demo.whl")


def test_a_project_makes_a_portable_wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("USE_CUDA", "0")
    project = stamp(tmp_path / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
    built, *findings = build_wheel(project, Path(sys.executable), tmp_path / "dist")
    assert zipfile.is_zipfile(built.text)
    assert [(finding.check, finding.state) for finding in findings] == [("contents", "warning"), ("portable", "ok")]


def test_a_project_that_does_not_build(tmp_path):
    (tmp_path / "setup.py").write_text("raise SystemExit('no')")
    with pytest.raises(KernelgenError, match="The wheel does not build"):
        build_wheel(tmp_path, Path(sys.executable), tmp_path / "dist")
