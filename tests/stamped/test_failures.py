"""Every row of docs/troubleshooting.md: the failure is made to happen, and what is printed is what the row says.

A function here makes a failure happen and returns what a user would read.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import REPOSITORY, run, stamp

PAGE = REPOSITORY / "docs" / "troubleshooting.md"
PACKAGE = Path("src/demo_kernels")
OP = PACKAGE / "ops" / "elementwise"
UNSET = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "DEBUG", "SANITIZE", "VIRTUAL_ENV")
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)

MADE: dict[str, Callable[["Bench"], str]] = {}


def row(symptom: str) -> Callable[[Callable[["Bench"], str]], Callable[["Bench"], str]]:
    """Says which row of the page a function makes happen."""

    def register(function: Callable[["Bench"], str]) -> Callable[["Bench"], str]:
        MADE[symptom] = function
        return function

    return register


def symptoms() -> list[str]:
    """The first cell of each row, without its backticks."""
    return re.findall(r"^\| `(.+?)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def pattern(symptom: str) -> str:
    """`…` stands for anything on the same line."""
    return ".*".join(map(re.escape, symptom.split("…")))


class Bench:
    """A copy of a project, and ways to run things in it."""

    def __init__(self, project: Path, scratch: Path) -> None:
        self.project, self.scratch = project, scratch

    def run(self, *command: object, **variables: str | None) -> str:
        """All that a command prints, in an environment that asks for nothing but these variables."""
        done = run([str(word) for word in command], self.project, **{**dict.fromkeys(UNSET), **variables})
        return done.stdout + done.stderr

    def build(self, **variables: str | None) -> str:
        return self.run(sys.executable, "setup.py", "build_ext", "--inplace", **variables)

    def kernelgen(self, verb: str, *arguments: object, **variables: str | None) -> str:
        command = (sys.executable, "-m", "kernelgen", verb, *arguments, "--python", sys.executable)
        return self.run(*command, PYTHONPATH=str(REPOSITORY), **variables)

    def python(self, code: str, **variables: str | None) -> str:
        """Runs code that ends in an error; only the error's own line and what follows it are returned."""
        lines = f"import torch\n{code}"
        wrapped = f"try:\n    exec({lines!r})\nexcept Exception as error:\n    print(f'{{type(error).__name__}}: {{error}}')"
        return self.run(sys.executable, "-c", wrapped, PYTHONPATH="src", **variables)

    def edit(self, path: Path, old: str, new: str) -> None:
        text = (self.project / path).read_text()
        assert old in text
        (self.project / path).write_text(text.replace(old, new))

    def script(self, name: str, text: str) -> Path:
        path = self.scratch / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def module(self, name: str, text: str) -> Path:
        """A folder to put on PYTHONPATH, with a package in it that stands in for a real one."""
        folder = self.scratch / "modules"
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text(text)
        return folder

    def hide_cuda(self) -> str:
        """A PATH with a compiler and without nvcc; setup.py does not look in the usual place either."""
        self.edit(Path("setup.py"), "/usr/local/cuda", "/nowhere")
        for name in ("g++", "ld", "as", "mv", "sh"):
            self.script(name, f'exec {shutil.which(name)} "$@"')
        return str(self.scratch / "bin")


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """A project of one op with its CPU library. Shared: do not change it."""
    project = stamp(
        tmp_path_factory.mktemp("failures") / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}]
    )
    run([sys.executable, "setup.py", "build_ext", "--inplace"], project, USE_CUDA="0").check_returncode()
    return project


@pytest.fixture
def bench(demo, tmp_path) -> Bench:
    return Bench(Path(shutil.copytree(demo, tmp_path / "demo")), tmp_path)


def test_the_page_and_these_failures_are_the_same():
    assert sorted(symptoms()) == sorted(MADE)


@pytest.mark.parametrize("symptom", symptoms())
def test_what_is_printed_is_what_the_page_says(symptom, bench):
    output = MADE[symptom](bench)
    assert re.search(pattern(symptom), output), output
    assert "Traceback" not in output


# ---- Python, torch, Ninja -------------------------------------------------------------------------------


@row("torch is not installed in this environment")
def torch_missing(bench):
    # What pip's build isolation does, without its downloads: a Python that sees no torch.
    return bench.run(BASE_PYTHON, "-S", "-E", "setup.py", "configure")


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
    return bench.run(BASE_PYTHON, "-S", "setup.py", "configure", **paths)


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
    hide = "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n, *a: None if n == 'torch' else find(n, *a)"
    return bench.run(sys.executable, "-c", f"{hide}\n{code}", PYTHONPATH=str(REPOSITORY))


# ---- Compilers ------------------------------------------------------------------------------------------


@row("the C++ compiler '…' was not found")
def compiler_missing(bench):
    return bench.build(CXX="no-such-compiler")


@row("too old for torch's headers")
def compiler_old(bench):
    old = bench.script("old-g++", 'case "$*" in *dumpfullversion*) echo 7.5.0;; *) echo "g++ (GCC) 7.5.0";; esac')
    return bench.kernelgen("doctor", CXX=str(old))


@row("this nvcc takes g++ up to")
def compiler_new(bench):
    text = 'case "$*" in *dumpfullversion*) echo 99.1.0;; *--version*) echo "g++ 99";; *) exec g++ "$@";; esac'
    return bench.kernelgen("doctor", CXX=str(bench.script("new-g++", text)))


@row("the native build failed; the compiler's messages are above")
def compile_error(bench):
    bench.edit(OP / "cpu.cpp", "multiply_add(", "multiply_ad(")
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


@row("nvcc … does not match torch's CUDA")
def toolkit_of_another_version(bench):
    return bench.build(CUDA_HOME=fake_toolkit(bench, 12040))


@row("CUDA_HOME=… holds no CUDA toolkit")
def toolkit_elsewhere(bench):
    return bench.build(CUDA_HOME="/nowhere")


@row("has no libcudart_static.a")
def toolkit_without_runtime(bench):
    import torch

    return bench.build(CUDA_HOME=fake_toolkit(bench, int(torch.version.cuda.split(".")[0]) * 1000))


@row("has no …, which building a kernel needs")
def toolkit_without_headers(bench):
    import torch

    return bench.kernelgen("doctor", CUDA_HOME=fake_toolkit(bench, int(torch.version.cuda.split(".")[0]) * 1000))


def fake_toolkit(bench: Bench, version: int) -> str:
    home = bench.script("nvcc", "exit 1").parents[1]
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
    return str(home)


@row("nvcc … cannot compile for")
def architecture_unknown_to_nvcc(bench):
    return bench.build(TORCH_CUDA_ARCH_LIST="3.0")


@row("'…' is no CUDA architecture")
def architecture_misspelt(bench):
    return bench.build(TORCH_CUDA_ARCH_LIST="hoper")


@row("_FLAGS holds …, which would change the architectures unseen")
def architecture_flag(bench):
    return bench.build(NVCC_APPEND_FLAGS="-arch=sm_80")


@row("no GPU here: compiling for")
def no_gpu(bench):
    return bench.build(PATH=bench.script("nvidia-smi", "exit 1").parent.as_posix() + os.pathsep + os.environ["PATH"])


@row("does not run on this machine's")
def architecture_of_another_gpu(bench):
    return bench.kernelgen("doctor", PATH=a_gpu(bench), TORCH_CUDA_ARCH_LIST="9.0a")


@row("is too old to run what CUDA … builds")
def driver_old(bench):
    return bench.kernelgen("doctor", PATH=a_gpu(bench))


def a_gpu(bench: Bench) -> str:
    text = 'case "$*" in *name*) echo "NVIDIA A100, 8.0, 470.82.01";; *) echo 8.0;; esac'
    return f"{bench.script('nvidia-smi', text).parent}{os.pathsep}{os.environ['PATH']}"


# ---- The machine ----------------------------------------------------------------------------------------


@row("MAX_JOBS=… is no number of processes")
def jobs_misspelt(bench):
    return bench.build(MAX_JOBS="many")


@row("No space left on device")
def disk_full(bench):
    # A device that takes nothing, where an object is to be written.
    target = bench.project / "build" / "release" / "elementwise" / "cpu.cpp.o"
    target.unlink()
    target.symlink_to("/dev/full")
    return bench.build(USE_CUDA="0")


@row("Permission denied")
def project_read_only(bench):
    bench.edit(OP / "cpu.cpp", "// ", "//  ")
    for folder, _, _ in os.walk(bench.project / "build"):
        Path(folder).chmod(0o555)
    # The superuser may write anywhere, unless this is taken away.
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
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "USE_CUDA": "0"},
        ) as build:
            lines = [build.stderr.readline() for _ in range(2)]
            fcntl.flock(file, fcntl.LOCK_UN)
            build.communicate()
    return "".join(lines)


@row("and no process holds it; torch's JIT loader hangs on it")
def stale_lock(bench):
    lock = bench.scratch / "cache" / "torch_extensions" / "py311_cu130" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    return bench.kernelgen("doctor", XDG_CACHE_HOME=str(bench.scratch / "cache"), TORCH_EXTENSIONS_DIR=None)


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

    bench.edit(OP / "cpu.cpp", "#include", "#include <c10/core/ScalarType.h>\nnamespace c10 { void other(); }\n#include")
    bench.edit(OP / "cpu.cpp", "  check_arguments(a, b, c);", "  check_arguments(a, b, c);\n  c10::other();")
    bench.build(USE_CUDA="0")
    library = bench.project / PACKAGE / "_cpu.so"
    return "\n".join(finding.text for finding in check_library(library.name, library.read_bytes()))


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
