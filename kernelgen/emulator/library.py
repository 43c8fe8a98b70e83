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
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelgen.cores import usable_cores
from kernelgen.emulator import compiler
from kernelgen.emulator.cache import cache_folder, remove_unused
from kernelgen.emulator.compile import RULES, compile_kernel
from kernelgen.emulator.compiler import DEVICE, Compiler, EmulatorError
from kernelgen.emulator.link import link
from kernelgen.emulator.lock import locked
from kernelgen.emulator.runtime import device_objects
from kernelgen.toolchain import build_tools


def has_toolkit() -> bool:
    """Whether there are g++ and CUDA's headers."""
    try:
        compiler.find()
    except EmulatorError:
        return False
    return True


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
            raise EmulatorError(f"seed {seed}: {failure or f'cudaError {code}'}")


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
    cache: Path | None = None,
) -> EmulatedLibrary:
    """Compiles an op's kernels for the emulated GPU, or takes the library of the same sources from the cache.

    Args:
        op: the op's folder in a stamped project.
        entry: a CUDA source that may include the op's headers and sources; its `extern "C"` functions are called.
        sources: further sources of the op, as paths in its folder.
        defines: macros, such as "INSTANCE_T=float16".
        headers: further folders that the entry includes headers from.
        cache: where libraries are kept, if not in the user's cache.

    Raises:
        EmulatorError: a source cannot be compiled; the message holds the compiler's output.
    """
    includes = _include_folders(op.parents[1] / "include")
    tools = compiler.find()
    digest = hashlib.sha256(repr((entry, sources, defines, tools.kernel_flags(), tools.runtime_flags())).encode())
    inputs = [*RULES, *(path for path in sorted(DEVICE.rglob("*")) if path.is_file())]
    for path in sorted([*op.rglob("*"), *(path for folder in (*includes, *headers) for path in folder.iterdir())]):
        if path.suffix in (".h", ".cuh", ".cu", ".json"):
            inputs.append(path)
    for path in inputs:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    cache = cache or cache_folder()
    library = cache / digest.hexdigest()[:20] / f"{op.name}.so"
    with locked(cache / f"{library.parent.name}.lock"):
        if not library.exists():
            remove_unused(cache)
            work = library.parent
            work.mkdir(parents=True, exist_ok=True)
            (work / "entry.cu").write_text(entry)
            _write_headers(op, work)
            flags = [*(f"-D{define}" for define in defines)]
            flags += [f"-I{folder}" for folder in (*headers, op, *includes, work / "generated")]
            _link(library, [work / "entry.cu", *(op / source for source in sources)], flags, tools, cache)
        os.utime(library.parent)
    return EmulatedLibrary(library)


def _include_folders(include: Path) -> list[Path]:
    """The project's include folder and the folders in it."""
    return [include, *sorted(path for path in include.iterdir() if path.is_dir())]


def _link(library: Path, sources: Sequence[Path], flags: list[str], tools: Compiler, cache: Path) -> None:
    targets = [library.parent / f"{index}-{source.stem}.o" for index, source in enumerate(sources)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(lambda source, target: compile_kernel(tools, source, target, flags), sources, targets))
    link(tools.command, library, [str(path) for path in (*targets, *device_objects(tools, cache))])
    for target in targets:
        target.unlink()


def _write_headers(op: Path, work: Path) -> None:
    """Writes the headers that a build generates for the op to work/generated. Tuned values are those of the op's
    tuned.json for compute capability 9.0, else the defaults."""
    build_tools.ask(op.parents[3], Path(sys.executable), "headers", op.name, str(work.resolve()), "9.0a")
