"""Every row of docs/troubleshooting.md: its failure is caused, and prints what the row says.

Each function with a `row` causes a failure and returns what a user would read.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .bench import FAILURES, Bench, pattern, row, symptoms
from .conftest import REPOSITORY, one_op_project

PACKAGE = Path("src/demo_kernels")
OP = PACKAGE / "ops" / "elementwise"
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture(scope="session")
def demo(made_once) -> Path:
    return one_op_project(made_once)


@pytest.fixture
def bench(demo, tmp_path) -> Bench:
    return Bench(Path(shutil.copytree(demo, tmp_path / "demo")), tmp_path)


def test_the_page_has_a_row_for_each_failure_and_no_other():
    assert sorted(symptoms()) == sorted(FAILURES)


@pytest.mark.parametrize("symptom", symptoms())
def test_the_failure_prints_what_the_page_says(symptom, bench):
    output = FAILURES[symptom](bench)
    assert re.search(pattern(symptom), output), output
    assert "Traceback" not in output


# ---- Python, torch, Ninja -------------------------------------------------------------------------------


@row("torch is not installed in this environment")
def torch_missing(bench):
    # As under pip's build isolation, but without its downloads: a Python that sees no torch.
    return bench.run(BASE_PYTHON, "-S", "-E", "-m", "build_tools", "configure")


@row("torch … is too old for the stable ABI")
def torch_old(bench):
    folder = bench.module("torch", "")
    (folder / "torch" / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
    return bench.build(PYTHONPATH=str(folder))


@row("ninja is not installed")
def ninja_missing(bench):
    folder = bench.module("torch", "")
    (folder / "torch" / "version.py").write_text("__version__ = '2.11.0'\n")
    bench.script("g++", 'exec /usr/bin/g++ "$@"')
    paths = {"PYTHONPATH": str(folder), "PATH": str(bench.scratch / "bin"), "USE_CUDA": "0"}
    return bench.run(BASE_PYTHON, "-S", "-m", "build_tools", "configure", **paths)


@row("setuptools … is too old")
def setuptools_old(bench):
    folder = bench.module("setuptools", "__version__ = '66.1.1'\nExtension = setup = None\n")
    bench.module("setuptools/command", "")
    for name in ("build_ext", "build_py"):
        (folder / "setuptools" / "command" / f"{name}.py").write_text(f"class {name}: pass\n")
    return bench.build(PYTHONPATH=str(folder))


@row("No Python with torch was found for")
def python_missing(bench):
    code = "import sys; from kernelgen.cli import main; sys.exit(main(['doctor']))"
    hide = "import kernelgen.toolchain.python as python; python.find_spec = lambda name: None"
    return bench.run(sys.executable, "-c", f"{hide}\n{code}", PYTHONPATH=str(REPOSITORY))


# ---- Compilers ------------------------------------------------------------------------------------------


@row("the C++ compiler '…' was not found")
def compiler_missing(bench):
    return bench.build(CXX="no-such-compiler")


@row("too old for torch's headers")
def compiler_old(bench):
    old = bench.script("old-g++", 'case "$*" in *dumpfullversion*) echo 7.5.0;; *) echo "g++ (GCC) 7.5.0";; esac')
    return bench.doctor(CXX=str(old))


@row("this nvcc takes g++ up to")
def compiler_new(bench):
    text = 'case "$*" in *dumpfullversion*) echo 99.1.0;; *--version*) echo "g++ 99";; *) exec g++ "$@";; esac'
    return bench.doctor(CXX=str(bench.script("new-g++", text)))


@row("the native build failed; the compiler's messages are above")
def compile_error(bench):
    bench.append(OP / "cpu.cpp", "int answer = forty_two;")
    return bench.build(USE_CUDA="0")


@row("static assertion failed: the C++ signature of … is not what the schema of … says")
def schema_mismatch(bench):
    bench.edit(OP / "__init__.py", "Tensor c) -> Tensor", "float c) -> Tensor")
    return bench.build(USE_CUDA="0")


@row("needs a literal SCHEMAS")
def schema_computed(bench):
    bench.edit(OP / "__init__.py", '"(Tensor a, ', 'str() + "(Tensor a, ')
    return bench.build(USE_CUDA="0")


# ---- CUDA -----------------------------------------------------------------------------------------------


@row("no CUDA toolkit (nvcc) was found: building the CPU library only")
def toolkit_missing(bench):
    return bench.build(PATH=bench.hide_cuda())


@row("no CUDA toolkit (nvcc) was found; install one")
def toolkit_missing_and_asked_for(bench):
    return bench.build(PATH=bench.hide_cuda(), USE_CUDA="1")


@row("is built without CUDA: get one built with CUDA")
def toolkit_missing_and_torch_without_cuda(bench):
    folder = bench.module("torch", "")
    (folder / "torch" / "version.py").write_text("__version__ = '2.11.0+cpu'\ncuda = None\n")
    output = bench.run(sys.executable, "-m", "build_tools", "configure", PATH=bench.hide_cuda(), PYTHONPATH=str(folder))
    assert "doctor --fix" not in output
    return output


@row("nvcc … does not match torch's CUDA")
def toolkit_of_another_version(bench):
    return bench.build(CUDA_HOME=bench.toolkit(12040))


@row("CUDA_HOME=… holds no CUDA toolkit")
def toolkit_elsewhere(bench):
    return bench.build(CUDA_HOME="/nowhere")


@row("has no libcudart_static.a")
def toolkit_without_runtime(bench):
    import torch

    return bench.build(CUDA_HOME=bench.toolkit(int(torch.version.cuda.split(".")[0]) * 1000))


@row("has no …, which building a kernel needs")
def toolkit_without_headers(bench):
    import torch

    return bench.doctor(CUDA_HOME=bench.toolkit(int(torch.version.cuda.split(".")[0]) * 1000))


@row("nvcc … cannot compile for")
def architecture_unknown_to_nvcc(bench):
    return bench.build(TORCH_CUDA_ARCH_LIST="3.0")


@row("'…' is no CUDA architecture")
def architecture_misspelt(bench):
    return bench.build(TORCH_CUDA_ARCH_LIST="hoper")


@row("_FLAGS holds …, which would replace the chosen architectures")
def architecture_flag(bench):
    return bench.build(NVCC_APPEND_FLAGS="-arch=sm_80")


@row("no GPU here: compiling for")
def no_gpu(bench):
    return bench.build(PATH=bench.script("nvidia-smi", "exit 1").parent.as_posix() + os.pathsep + os.environ["PATH"])


@row("does not run on this machine's")
def architecture_of_another_gpu(bench):
    return bench.doctor(PATH=bench.gpu(), TORCH_CUDA_ARCH_LIST="9.0a")


@row("holds code for …, and no PTX")
def wheel_for_one_gpu(bench):
    from kernelgen.toolchain.wheel import check_gpus
    from tests.toolchain.test_wheel import fat_binary

    return "\n".join(finding.text for finding in check_gpus("_cuda.so", fat_binary((2, 89, 0))))


@row('setup.py pins CUDA_ARCHITECTURES = "native", so this wheel')
def wheel_for_the_building_machine(bench):
    """As on a machine with a toolkit, whether this is one or not."""
    from unittest.mock import patch

    from kernelgen.errors import KernelgenError
    from kernelgen.toolchain import wheel

    facts = {
        "pinned": {"value": "native"},
        "toolkit": {"value": {"home": "/cuda"}},
        "architectures": {"value": ["8.9"]},
    }
    with patch.object(wheel, "ask", lambda *arguments: facts), pytest.raises(KernelgenError) as refused:
        wheel.refuse_native(bench.project, Path(sys.executable), {})
    return str(refused.value)


@row("is too old to run what CUDA … builds")
def driver_old(bench):
    return bench.doctor(PATH=bench.gpu())


# ---- The machine ----------------------------------------------------------------------------------------


@row("MAX_JOBS=… is no number of processes")
def jobs_misspelt(bench):
    return bench.build(MAX_JOBS="many")


@row("No space left on device")
def disk_full(bench):
    # In the place of an object lies a link to a device that is always full.
    target = bench.project / "build" / "release" / "elementwise" / "cpu.cpp.o"
    target.unlink()
    target.symlink_to("/dev/full")
    return bench.build(USE_CUDA="0")


@row("is no folder that you can write to, and nvcc writes there")
def temporary_folder_gone(bench):
    return bench.doctor(TMPDIR=str(bench.scratch / "gone"))


@row("set XDG_CACHE_HOME to a folder that can be written")
def cache_unwritable(bench):
    (bench.scratch / "file").touch()
    cache = str(bench.scratch / "file")
    return bench.kernelgen("fuzz", "elementwise", "--device", "emulated", XDG_CACHE_HOME=cache)


@row("Permission denied")
def project_read_only(bench):
    bench.append(OP / "cpu.cpp", "// Edited.")
    for folder, _, _ in os.walk(bench.project / "build"):
        Path(folder).chmod(0o555)
    # The superuser may write anywhere unless this capability is dropped.
    drop = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    return bench.run(*drop, sys.executable, "setup.py", "build_ext", "--inplace", USE_CUDA="0")


@row("waiting for another build (pid …)")
def build_under_way(bench):
    lock = bench.project / "build" / "release.lock"
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with subprocess.Popen(
            [sys.executable, "setup.py", "build_ext", "--inplace"],
            cwd=bench.project,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "USE_CUDA": "0"},
        ) as build:
            message = build.stderr.readline()
            fcntl.flock(file, fcntl.LOCK_UN)
            build.communicate()
    return message


@row("and no process holds it; torch's JIT loader hangs on it")
def stale_lock(bench):
    lock = bench.scratch / "cache" / "torch_extensions" / "py311_cu130" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    return bench.doctor(XDG_CACHE_HOME=str(bench.scratch / "cache"), TORCH_EXTENSIONS_DIR=None)


# ---- A project that is built ----------------------------------------------------------------------------


@row("has no compiled CPU library")
def not_built(bench):
    (bench.project / PACKAGE / "_cpu.so").unlink()
    return bench.python("import demo_kernels\nx = torch.ones(3)\ndemo_kernels.elementwise(x, x, x)")


@row("does not load into torch")
def library_damaged(bench):
    (bench.project / PACKAGE / "_cpu.so").write_bytes(b"\x7fELF")
    return bench.python("import demo_kernels\nx = torch.ones(3)\ndemo_kernels.elementwise(x, x, x)")


@row(".so is older than")
def library_stale(bench):
    os.utime(bench.project / OP / "cpu.cpp")
    return bench.kernelgen("doctor")


@row("belongs to torch's C++ ABI")
def wheel_not_portable(bench):
    from kernelgen.toolchain.wheel import check_library

    code = '__attribute__((used, visibility("default"))) void needs() { c10::other(); }'
    bench.append(OP / "cpu.cpp", f"namespace c10 {{ void other(); }}\n{code}")
    bench.build(USE_CUDA="0")
    library = bench.project / PACKAGE / "_cpu.so"
    return "\n".join(finding.text for finding in check_library(library.name, library.read_bytes()))


@row("has no build_tools: it is of an older layout")
def older_layout(bench):
    shutil.rmtree(bench.project / "build_tools")
    return bench.kernelgen("build")


@row("setup.py makes no PROJECT")
def setup_without_project(bench):
    (bench.project / "setup.py").write_text("")
    return bench.kernelgen("build")


@row("setup.py stopped with")
def setup_in_conflict(bench):
    (bench.project / "setup.py").write_text("<<<<<<< before updating\n")
    return bench.kernelgen("build")


@row("setup.py has flags for …, and there is no such op")
def flags_of_no_op(bench):
    bench.edit(Path("setup.py"), "NVCC_FLAGS: dict[str, list[str]] = {}", 'NVCC_FLAGS = {"elementwize": ["-O2"]}')
    return bench.build(USE_CUDA="0")


@row("the SCHEMAS of … changed since its import")
def jit_schema(bench):
    code = "import pathlib\nfrom demo_kernels import jit\nimport demo_kernels.ops.elementwise as op\n"
    code += "file = pathlib.Path(op.__file__)\nfile.write_text(file.read_text().replace('Tensor c)', 'Tensor d)'))\n"
    return bench.python(f"{code}jit.load('elementwise')", USE_CUDA="0", XDG_CACHE_HOME=str(bench.scratch))


@row("jit compiles in a source checkout")
def jit_elsewhere(bench):
    code = f"from demo_kernels import jit\njit.load({str(bench.scratch / 'elementwise')!r})"
    shutil.copytree(bench.project / OP, bench.scratch / "elementwise")
    return bench.python(code, USE_CUDA="0", XDG_CACHE_HOME=str(bench.scratch))
