"""The build of a stamped project: its outputs, the variables that it honours, the requests that it refuses."""

import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from .conftest import EVERY_OP, QUICK_NVCC, build, edit, has_cuda_13, python, quickly, run, stamp

PACKAGE = Path("src/demo_kernels")


@pytest.fixture
def project(small_project, copy_of, monkeypatch) -> Path:
    """A copy of the small project; its C++ is compiled again with the flags that it was compiled with."""
    for name, value in quickly().items():
        monkeypatch.setenv(name, value)
    return copy_of(small_project)


def fatbin_architectures(library: Path) -> set[int]:
    """The SM versions of the machine code in a library, read from the headers of its fat binaries."""
    data, architectures = library.read_bytes(), set()
    for match in re.finditer(re.escape(struct.pack("<IH", 0xBA55ED50, 1)), data):
        header_size, size = struct.unpack_from("<HQ", data, match.start() + 6)
        position, end = match.start() + header_size, match.start() + header_size + size
        while position < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, position)
            if kind == 2:
                architectures.add(struct.unpack_from("<I", data, position + 28)[0])
            position += entry_header + entry_size
    return architectures


def compiled(output: str) -> list[str]:
    return re.findall(r"\] (?:c\+\+|nvcc|link) +(\S+)", output)


def test_the_cuda_library_holds_both_architectures(full_project):
    assert fatbin_architectures(full_project / PACKAGE / "_cuda.so") == {80, 90}


def test_the_libraries_load_on_a_machine_without_a_gpu(full_project):
    result = python(full_project, "import demo_kernels; print(demo_kernels._library.missing)")
    assert result.stdout.strip() == "{'CPU': None, 'CUDA': None}", result.stderr


@pytest.mark.parametrize("library", ["_cpu.so", "_cuda.so"])
def test_only_the_stable_abi_is_needed(full_project, library):
    output = subprocess.check_output(["nm", "-DCu", str(full_project / PACKAGE / library)], text=True)
    names = [line.split(maxsplit=1)[1] for line in output.splitlines()]
    assert any(name.startswith("aoti_torch_") for name in names)
    assert not [name for name in names if re.match(r"(at|c10|torch|caffe2)::|Py", name)]


@pytest.mark.parametrize("op", [op["name"] for op in EVERY_OP if op["recipe"] != "blank"])
def test_the_objects_of_instantiations_can_be_linked(full_project, op):
    """Beside its instantiations, which may be in several objects, a kernel's file defines nothing for others to see.

    (nvcc gives what is in anonymous namespaces a name of the object's own.)
    """
    objects = [*(full_project / "build/release" / op).rglob("*.cu.*.o")]
    output = subprocess.check_output(["nm", "-AC", "--defined-only", *objects], text=True)
    assert " W " in output
    assert [line for line in output.splitlines() if re.search(r" [BDRT] (?!.*\(anonymous namespace\))", line)] == []


@pytest.mark.corpus
def test_every_instantiation_compiles_for_sm_80(tmp_path):
    """As users build it. The project of every recipe has one instantiation of each source for it."""
    ops = [op for op in EVERY_OP if op["recipe"] != "blank"]
    project = stamp(tmp_path / "demo-kernels", ops=ops)
    if has_cuda_13():
        edit(project / "setup.py", ("NVCC_FLAGS: dict[str, list[str]] = {}", QUICK_NVCC))
    result = build(project, USE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0", **quickly())
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_second_build_compiles_nothing(full_project, copy_of):
    project = copy_of(full_project)
    assert compiled(build(project).stdout) == []


def test_an_edit_compiles_what_it_touches(full_project, copy_of):
    project = copy_of(full_project)
    op = PACKAGE / "ops" / "elementwise"
    kernel = project / op / "kernel.cu"
    kernel.write_text(kernel.read_text() + "\n")
    assert compiled(build(project).stdout) == [f"{op}/kernel.cu", f"{PACKAGE}/_cuda.so"]


def test_a_changed_header_compiles_its_users_however_old_it_is_said_to_be(project):
    """As after `cp -p` and `rsync -a`, which keep a file's time."""
    (header,) = (project / PACKAGE / "include").rglob("vector.cuh")
    header.write_text(header.read_text() + "\n")
    os.utime(header, (1e9, 1e9))
    stale = run([sys.executable, "-m", "build_tools", "stale"], project)
    assert f"{header.relative_to(project)} changed since the last build" in stale.stdout
    assert compiled(build(project).stdout) == [f"{PACKAGE}/ops/elementwise/kernel.cu", f"{PACKAGE}/_cuda.so"]


def test_a_changed_flag_compiles_again(project):
    rebuilt = compiled(build(project, TORCH_CUDA_ARCH_LIST="9.0a").stdout)
    assert {Path(name).suffix for name in rebuilt} == {".cu", ".so"}
    assert fatbin_architectures(project / PACKAGE / "_cuda.so") == {90}


def test_going_back_to_architectures_is_one_link(project):
    assert build(project, TORCH_CUDA_ARCH_LIST="Hopper").returncode == 0
    assert compiled(build(project).stdout) == [f"{PACKAGE}/_cuda.so"]
    assert fatbin_architectures(project / PACKAGE / "_cuda.so") == {80, 90}


HOPPER_ALONE = """#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compiled for another architecture"
#endif
__global__ void hopper_alone(float* x) { *x = 1; }
"""


def test_a_file_named_for_an_architecture_is_compiled_for_it_alone(project):
    op = PACKAGE / "ops" / "elementwise"
    (project / op / "further.sm_90a.cu").write_text(HOPPER_ALONE)
    glue = project / op / "cuda.cpp"
    glue.write_text(glue.read_text() + "static_assert(HAS_SM_90A == 1);\n")
    result = build(project)
    assert result.returncode == 0, result.stdout + result.stderr
    rebuilt = [f"{op}/further.sm_90a.cu", f"{op}/kernel.cu", f"{op}/cuda.cpp", f"{PACKAGE}/_cuda.so"]
    assert sorted(compiled(result.stdout)) == sorted(rebuilt)
    glue.write_text(glue.read_text().replace("== 1", "== 0"))
    result = build(project, TORCH_CUDA_ARCH_LIST="8.0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{op}/further.sm_90a.cu" not in compiled(result.stdout)


def test_a_report_of_ptxas_is_kept_and_its_warnings_are_shown(full_project):
    (report,) = (full_project / "build/release/elementwise").glob("kernel.cu.*.o.txt")
    assert "Used " in report.read_text()
    script = full_project / "build/release/report.sed"
    printed = subprocess.check_output(["sed", "-Ef", script, "-"], input=report.read_text() + HINT, text=True)
    assert printed == HINT


HINT = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"


def test_a_removed_op_leaves_the_library(full_project, copy_of):
    import shutil

    project = copy_of(full_project)
    shutil.rmtree(project / PACKAGE / "ops" / "my_op")
    assert f"{PACKAGE}/_cuda.so" in compiled(build(project).stdout)
    result = python(project, "import demo_kernels; print('my_op' in demo_kernels.__all__)")
    assert result.stdout.strip() == "False", result.stderr


def test_a_debug_build_stands_beside_the_release_one(project):
    before = (project / PACKAGE / "_cpu.so").read_bytes()
    result = build(project, DEBUG="1", USE_CUDA="0")
    assert result.returncode == 0, result.stderr
    assert (project / "build" / "debug" / "_cpu.so").is_file()
    assert (project / PACKAGE / "_cpu.so").read_bytes() == before


def test_without_cuda_the_cpu_library_is_built_and_a_line_says_so(full_project, copy_of):
    project = copy_of(full_project)
    result = build(project, USE_CUDA="0")
    assert "USE_CUDA=0: building the CPU library only." in result.stderr
    assert not (project / PACKAGE / "_cuda.so").exists()
    result = python(project, "import demo_kernels; print(demo_kernels._library.missing['CUDA'])")
    assert "demo_kernels has no compiled CUDA library; build it with" in result.stdout


def test_without_a_toolkit_the_cpu_library_is_built_and_a_line_says_so(full_project, copy_of, tmp_path):
    project = copy_of(full_project)
    toolkit = project / "build_tools" / "toolkit.py"
    toolkit.write_text(toolkit.read_text().replace("/usr/local/cuda", str(tmp_path / "nowhere")))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("g++", "ld", "as", "mv", "sh"):
        (tools / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    result = build(project, PATH=str(tools))
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"no CUDA toolkit \(nvcc\) was found: building the CPU library only \(.*pip install", result.stderr
    )
    result = build(project, PATH=str(tools), USE_CUDA="1")
    assert result.returncode == 1
    assert re.search(
        r"no CUDA toolkit \(nvcc\) was found; install one with `kernelgen doctor --fix` or `pip .*`", result.stderr
    )


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"CUDA_HOME": "/nowhere"}, "CUDA_HOME=/nowhere holds no CUDA toolkit"),
        ({"TORCH_CUDA_ARCH_LIST": "gopher"}, "'gopher' is no CUDA architecture"),
        ({"TORCH_CUDA_ARCH_LIST": "3.5"}, "cannot compile for 3.5; it can for"),
        ({"NVCC_APPEND_FLAGS": "-gencode=arch=compute_80,code=sm_80"}, "NVCC_APPEND_FLAGS holds -gencode="),
        ({"SANITIZE": "thread"}, "SANITIZE=thread is not known"),
        ({"MAX_JOBS": "many"}, "MAX_JOBS=many is no number of processes"),
        ({"CXX": "no-such-compiler"}, "the C++ compiler 'no-such-compiler' was not found"),
    ],
)
def test_a_build_that_cannot_succeed_is_refused_in_a_sentence(full_project, copy_of, variables, sentence):
    result = build(copy_of(full_project), **variables)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wheel_holds_the_libraries_and_no_sources(full_project, copy_of, tmp_path):
    project = copy_of(full_project)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(tmp_path),
        ".",
    ]
    result = run(command, project, TORCH_CUDA_ARCH_LIST="8.0;9.0a")
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp310-abi3-linux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"demo_kernels/_cpu.so", "demo_kernels/_cuda.so"} <= set(names)
    assert zipfile.ZipFile(wheel).read("demo_kernels/_cuda.architectures") == b"8.0\n9.0a\n"
    assert not [name for name in names if name.endswith((".cu", ".cpp", ".h", ".cuh")) or "test_" in name]
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"demo_kernels"}  # No build_tools.

    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
        str(wheel),
    ]
    assert run(command, tmp_path).returncode == 0
    code = "import demo_kernels, torch; x = torch.ones(3); print(demo_kernels.elementwise(x, x, x))"
    result = run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert result.stdout.strip() == "tensor([2., 2., 2.])", result.stderr


def test_an_editable_install_builds_in_place(full_project, copy_of, tmp_path):
    project = copy_of(full_project)
    (project / PACKAGE / "_cpu.so").unlink()
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    command += ["--prefix", str(tmp_path / "prefix"), "-e", "."]
    result = run(command, project, TORCH_CUDA_ARCH_LIST="8.0;9.0a")
    assert result.returncode == 0, result.stdout + result.stderr
    assert (project / PACKAGE / "_cpu.so").is_file()
    site = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "prefix")})
    code = f"import site; site.addsitedir({site!r}); import demo_kernels; print(demo_kernels._library.missing)"
    result = run([sys.executable, "-c", code], tmp_path)
    assert result.stdout.strip() == "{'CPU': None, 'CUDA': None}", result.stderr


def test_a_wheel_is_built_from_a_source_distribution(project, tmp_path):
    result = run([sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)], project)
    assert result.returncode == 0, result.stdout + result.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"setup.py", "build_tools/__main__.py", f"{PACKAGE}/ops/elementwise/kernel.cu"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path)]
    result = run([*command, str(archive)], tmp_path, USE_CUDA="0")
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "demo_kernels/_cpu.so" in zipfile.ZipFile(wheel).namelist()


def test_an_editable_debug_install_is_found_by_import(project, tmp_path):
    result = run([sys.executable, "setup.py", "-q", "clean"], project)
    assert result.returncode == 0, result.stdout + result.stderr
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    command += ["--prefix", str(tmp_path / "prefix"), "-e", "."]
    result = run(command, project, DEBUG="1", USE_CUDA="0")
    assert result.returncode == 0, result.stdout + result.stderr
    site = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "prefix")})
    code = f"import site; site.addsitedir({site!r}); from demo_kernels import _library\n"
    code += "print(_library.VARIANT, _library.missing['CPU'])"
    result = run([sys.executable, "-c", code], tmp_path, DEMO_KERNELS_VARIANT=None)
    assert result.stdout == "debug None\n", result.stderr
    # A release build is preferred again as soon as there is one.
    assert build(project, USE_CUDA="0").returncode == 0
    result = run([sys.executable, "-c", code], tmp_path, DEMO_KERNELS_VARIANT=None)
    assert result.stdout == "release None\n", result.stderr


def test_clean_removes_what_builds_made(project):
    assert build(project, DEBUG="1", USE_CUDA="0").returncode == 0
    assert run([sys.executable, "setup.py", "clean"], project).returncode == 0
    left = [path for path in project.rglob("*") if path.suffix in (".so", ".o", ".ninja")]
    assert left == []
    assert not (project / "build/release").exists()


def test_build_isolation_is_refused_with_the_flag_that_helps(full_project, copy_of, tmp_path):
    # As under pip's build isolation, but without its downloads: a Python that sees no torch.
    project = copy_of(full_project)
    result = run([sys.executable, "-S", "-E", "-m", "build_tools", "configure"], project, PYTHONPATH=None)
    assert result.returncode == 1
    assert "torch is not installed" in result.stderr
    assert "--no-build-isolation" in result.stderr


SHORT_OF_MEMORY = """
import resource
import torch
from demo_kernels import elementwise

tensor = torch.empty(2**28)  # A gigabyte that nothing is written to.
elementwise(*[tensor[:8]] * 3)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, -1))
elementwise(tensor, tensor, tensor)
"""


# Some toolchains link libstdc++ statically. Mixed with PyTorch's own it would crash where a number is formatted.
@pytest.mark.parametrize("flags", ["", "-static-libstdc++"])
def test_too_little_memory_is_an_error_like_any_other(project, flags):
    result = build(project, LDFLAGS=flags)
    assert result.returncode == 0, result.stdout + result.stderr
    result = python(project, SHORT_OF_MEMORY)
    assert "RuntimeError: CPU out of memory. Tried to allocate a result of shape (268435456)" in result.stderr


def test_symbols_of_static_libraries_stay_inside(project):
    assert build(project, LDFLAGS="-static-libstdc++").returncode == 0
    for library in ("_cpu.so", "_cuda.so"):
        output = subprocess.check_output(["nm", "-DC", "--defined-only", str(project / PACKAGE / library)], text=True)
        # Weak symbols, which headers define, may stay visible.
        assert not re.search(r" [BDRT] (std::|cudaMalloc)", output)


def test_two_clean_builds_are_the_same(project):
    """In one folder: nvcc puts a hash of the path into names, and line numbers need the path."""
    shutil.rmtree(project / PACKAGE / "ops" / "my_op")  # One op shows it.

    def libraries() -> list[bytes]:
        shutil.rmtree(project / "build")
        assert build(project, USE_CUDA="1", TORCH_CUDA_ARCH_LIST="9.0a", CXXFLAGS="-O0").returncode == 0
        return [(project / PACKAGE / name).read_bytes() for name in ("_cpu.so", "_cuda.so")]

    assert libraries() == libraries()


def test_a_library_of_another_schema_is_not_used(project):
    """Its glue would read a number as a tensor."""
    init = project / PACKAGE / "ops" / "elementwise" / "__init__.py"
    edit(init, ('"(Tensor a, Tensor b, Tensor c) -> Tensor"', '"(Tensor a, Tensor b, float c) -> Tensor"'))
    call = "import torch, demo_kernels; x = torch.ones(3); print(torch.ops.demo_kernels.elementwise(x, x, 2.0))"
    result = python(project, call)
    assert "the library was built when its schema was elementwise(Tensor a, Tensor b, Tensor c)" in result.stderr
    assert "build it with `pip install" in result.stderr
    assert python(project, "import torch, demo_kernels; print(demo_kernels.my_op)").returncode == 0
