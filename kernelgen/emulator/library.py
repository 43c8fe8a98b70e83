"""Compiles a stamped project's CUDA sources for the CPU, with the emulated GPU of device/, and calls their functions.

    library = build(op_folder, '''
        #include "kernel.cuh"
        extern "C" int forward(const float* x, float* y, int64_t n) { return my_op_kernel::forward(x, y, n, nullptr); }
    ''')
    library("forward", x, y, n, seed=3)

Tensors are passed by their address, None as a null pointer, whole numbers as int64_t, other numbers as double. A fault
that the emulator detects raises an EmulatorError, which says where the threads were.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelgen.emulator.lock import locked
from kernelgen.emulator.rewrite import rewrite
from kernelgen.toolchain import build_tools

HERE = Path(__file__).resolve().parent
DEVICE = HERE / "device"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelgen" / "emulator"
# Only the toolkit's headers are used.
TOOLKITS = (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", f"{sysconfig.get_path('purelib')}/nvidia/cu13")
CUDA = next((folder for folder in TOOLKITS if folder and Path(folder, "include", "cuda_fp16.h").is_file()), "")
# As nvcc compiles: any type may be read as another, and integers wrap around.
FLAGS = ["-std=c++20", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"]
FLAGS.append("-fno-gnu-unique")  # Otherwise libraries share the static variables of templates.
# An access that is not aligned raises a signal: see failures.cpp.
KERNEL_FLAGS = ["-O1", "-ftrivial-auto-var-init=pattern", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
RUNTIME_FLAGS = ["-O3", "-U_FORTIFY_SOURCE"]


class EmulatorError(Exception):
    """A kernel's fault, an instruction that the emulator does not know, or a source that cannot be compiled."""


def has_toolkit() -> bool:
    return bool(CUDA) and shutil.which("g++") is not None


class EmulatedLibrary:
    """The functions of a library whose kernels run on the emulated GPU."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.emulator_failure.restype = ctypes.c_char_p

    def __call__(
        self, name: str, *arguments: Any, seed: int = 0, capability: int = 90, multiprocessors: int = 4
    ) -> None:
        """Calls an exported function that returns a cudaError_t.

        Args:
            name: the function.
            arguments: tensors, numbers or None.
            seed: selects the schedule of threads and of asynchronous operations.
            capability: the GPU's compute capability, 90 for 9.0.
            multiprocessors: how many the GPU has.

        Raises:
            EmulatorError: a kernel is at fault, or the function returned an error.
        """
        self._library.emulator_begin(ctypes.c_uint64(seed), capability, multiprocessors)
        code = getattr(self._library, name)(*map(_argument, arguments))
        failure = self._library.emulator_failure().decode()
        if failure or code:
            raise EmulatorError(f"seed {seed}: {self._with_lines(failure) or f'cudaError {code}'}")

    def _with_lines(self, report: str) -> str:
        """The report, its addresses replaced by files and lines."""
        base = next(
            int(line.split("-")[0], 16)
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith(str(self.path))
        )
        # Minus 1, since an address is the one that a call returns to.
        addresses = {int(address, 16) - base - 1 for address in re.findall(r"\[(0x[0-9a-f]+)\]", report)}
        command = ["addr2line", "-a", "-i", "-e", str(self.path), *map(hex, addresses)]
        places: dict[int, str] = {}
        for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
            if line.startswith("0x"):
                address = int(line, 16)
            elif not line.startswith("?") and ":?" not in line and str(DEVICE) not in line:
                places[address] = places.get(address, "") + f"\n    {Path(line.split(' ')[0]).name}"
        return re.sub(r" ?\[(0x[0-9a-f]+)\]", lambda match: places.get(int(match[1], 16) - base - 1, ""), report)


def _argument(value: Any) -> Any:
    if value is None:
        return ctypes.c_void_p(None)
    if hasattr(value, "data_ptr"):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)


def build(
    op: Path,
    entry: str,
    sources: Sequence[str] = (),
    defines: Sequence[str] = (),
    *,
    headers: Sequence[Path] = (),
    cache: Path = CACHE,
) -> EmulatedLibrary:
    """Compiles an op's kernels for the emulated GPU, or takes the library of the same sources from the cache.

    Args:
        op: the op's folder in a stamped project.
        entry: a CUDA source that may include the op's headers and sources; its `extern "C"` functions are called.
        sources: further sources of the op, as paths in its folder.
        defines: macros, such as "INSTANCE_T=float16".
        headers: further folders that the entry includes headers from.
        cache: where libraries are kept.

    Raises:
        EmulatorError: a source cannot be compiled; the message holds the compiler's output.
    """
    includes = _include_folders(op.parents[1] / "include")
    digest = hashlib.sha256(repr((entry, sources, defines, FLAGS, KERNEL_FLAGS, RUNTIME_FLAGS)).encode())
    inputs = [HERE / "rewrite.py", *DEVICE.iterdir()]
    for path in sorted([*op.rglob("*"), *(path for folder in (*includes, *headers) for path in folder.iterdir())]):
        if path.suffix in (".h", ".cuh", ".cu", ".json"):
            inputs.append(path)
    for path in inputs:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    library = cache / digest.hexdigest()[:20] / f"{op.name}.so"
    with locked(cache / f"{library.parent.name}.lock"):
        if not library.exists():
            _remove_unused(cache)
            work = library.parent
            work.mkdir(parents=True, exist_ok=True)
            (work / "entry.cu").write_text(entry)
            _write_headers(op, work)
            flags = [*FLAGS, *KERNEL_FLAGS, *(f"-D{define}" for define in defines)]
            flags += [f"-I{folder}" for folder in (DEVICE, *headers, op, *includes, work / "generated")]
            _link(library, [work / "entry.cu", *(op / source for source in sources)], flags, _runtime(cache))
        os.utime(library.parent)
    return EmulatedLibrary(library)


def _include_folders(include: Path) -> list[Path]:
    """The project's include folder and the folders in it."""
    return [include, *sorted(path for path in include.iterdir() if path.is_dir())]


def _remove_unused(cache: Path, days: int = 7) -> None:
    """Removes libraries that nothing has used for so many days."""
    for path in cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - days * 86_400:
            shutil.rmtree(path, ignore_errors=True)


def _link(library: Path, sources: Sequence[Path], flags: list[str], runtime: Sequence[Path]) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        targets = [library.parent / f"{index}-{source.stem}.o" for index, source in enumerate(sources)]
        list(pool.map(lambda source, target: _compile_kernel(source, target, flags), sources, targets))
    unfinished = library.with_suffix(".unfinished")
    _run(["g++", "-shared", "-Wl,-Bsymbolic", "-o", str(unfinished), *map(str, [*targets, *runtime])])
    unfinished.rename(library)
    for part in (*targets, *library.parent.glob("*.ii")):
        part.unlink()


def _write_headers(op: Path, work: Path) -> None:
    """Writes the headers that a build generates for the op to work/generated. Tuned values are those of the op's
    tuned.json for compute capability 9.0, else the defaults."""
    build_tools.ask(op.parents[3], Path(sys.executable), "headers", op.name, str(work.resolve()), "9.0a")


def _compile_kernel(source: Path, target: Path, flags: list[str]) -> None:
    include = ["-include", "prelude.h", f"-isystem{CUDA}/include"]
    text = _run(["g++", "-E", "-x", "c++", *flags, *include, str(source)])
    rewritten = target.with_suffix(".ii")
    rewritten.write_text(rewrite(text))
    _run(["g++", "-c", *flags, "-o", str(target), str(rewritten)])


def _runtime(cache: Path) -> list[Path]:
    """The emulated GPU itself, compiled once."""
    texts = "".join(path.read_text() for path in sorted(DEVICE.iterdir()))
    folder = cache / f"runtime-{hashlib.sha256((texts + repr(RUNTIME_FLAGS)).encode()).hexdigest()[:20]}"
    with locked(cache / f"{folder.name}.lock"), ThreadPoolExecutor(os.cpu_count()) as pool:
        folder.mkdir(exist_ok=True)
        os.utime(folder)
        sources = sorted(DEVICE.glob("*.cpp"))
        return list(pool.map(lambda source: _compile_runtime(source, folder / f"{source.stem}.o"), sources))


def _compile_runtime(source: Path, target: Path) -> Path:
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        includes = [f"-I{DEVICE}", f"-isystem{CUDA}/include"]
        _run(["g++", "-c", *FLAGS, *RUNTIME_FLAGS, *includes, "-o", str(unfinished), str(source)])
        unfinished.rename(target)
    return target


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise EmulatorError(f"{' '.join(command)}\n{result.stderr}")
    return result.stdout
