"""Plants a fault in a copy of a style, compiles it for the emulated GPU, and says what came of it."""

import ctypes
import hashlib
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelgen.emulator import compiler, library
from kernelgen.emulator.library import EmulatedLibrary, EmulatorError
from kernelgen.emulator.lock import locked
from tests.emulator.conftest import Memory
from tests.emulator.faults import Fault
from tests.emulator.styles import STYLES, Problem, Style

CACHE = compiler.HERE.parents[1] / "build" / "emulator"
# Every order of warps and every pace of asynchronous operations: see kernelgen/emulator/README.md.
SEEDS = (0, 4, 8, 10)


@dataclass(frozen=True)
class Outcome:
    """What a seed made of a kernel: the emulator's report, or how results differ from those expected; "" if right."""

    report: str = ""
    difference: str = ""

    def __bool__(self) -> bool:
        return bool(self.report or self.difference)

    def __str__(self) -> str:
        return self.report or self.difference or "right"


# Added to a style, so that accesses outside of its tensors are named: torch_glue registers an op's tensors likewise.
_REGISTRATION = """
#include "memory.h"
extern "C" void begin_problem(const char* name) {
  emulator::begin_call(name);
}
extern "C" void register_tensor(
    const char* name, char* data, int64_t itemsize, int64_t rows, int64_t columns, int64_t initialised) {
  const size_t bytes = rows * columns * itemsize;
  emulator::note_tensor({name, data, itemsize, {rows, columns}, {columns, 1}, data, bytes}, initialised);
}
"""


def compile_style(style: Style, text: str = "") -> EmulatedLibrary:
    """The library of a style, or of a text that takes the place of its source."""
    text = (text or style.source.read_text()) + _REGISTRATION
    tools = compiler.find()
    digest = hashlib.sha256(repr((text, tools.kernel_flags(), tools.runtime_flags())).encode())
    for path in (compiler.HERE / "rewrite.py", *sorted(compiler.DEVICE.rglob("*"))):
        digest.update(path.read_bytes() if path.is_file() else b"")
    folder = CACHE / digest.hexdigest()[:20]
    target = folder / f"{style.name}.so"
    with locked(CACHE / f"{folder.name}.lock"):
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            source = folder / style.source.name
            source.write_text(text)
            library._link(target, [source], [], tools, CACHE)
        os.utime(folder)
    return EmulatedLibrary(target)


class RegisteredMemory(Memory):
    """Guarded memory whose tensors the emulator knows, so that it names what lies outside of them or is not written."""

    def __init__(self) -> None:
        super().__init__()
        self._initialised: dict[int, bool] = {}

    def copy(self, tensor: torch.Tensor | None, shift: int = 0) -> torch.Tensor | None:
        result = super().copy(tensor, shift)
        if result is not None:
            self._initialised[result.data_ptr()] = True
        return result

    def register(self, kernel: EmulatedLibrary, problem: Problem) -> None:
        """Registers the arguments of the next call."""
        names = {result.data_ptr(): name for name, result in problem.results.items()}
        functions = kernel._library
        functions.begin_problem(b"a style")
        for number, tensor in enumerate(problem.arguments):
            if isinstance(tensor, torch.Tensor):
                address = tensor.data_ptr()
                columns = tensor.shape[-1] if tensor.dim() > 1 else tensor.numel()
                name = names.get(address, f"argument {number}").encode()
                sizes = (tensor.itemsize, tensor.numel() // max(columns, 1), columns)
                known = self._initialised.get(address, False)
                functions.register_tensor(name, ctypes.c_void_p(address), *map(ctypes.c_int64, (*sizes, known)))


def outcome(style: Style, kernel: EmulatedLibrary, seed: int) -> Outcome:
    """Runs a style's problems under one seed, until one of them goes wrong."""
    memory = RegisteredMemory()
    for problem in style.problems(memory):
        memory.register(kernel, problem)
        try:
            kernel(style.function, *problem.arguments, seed=seed, capability=style.capability)
        except EmulatorError as error:
            return Outcome(report=str(error))
        try:
            problem.check()
            memory.check()
        except AssertionError as error:
            return Outcome(difference=str(error) or "wrong")
    return Outcome()


def outcomes(fault: Fault, seeds: Sequence[int] = SEEDS) -> list[Outcome]:
    """What each seed makes of a style with the fault. Where it does not compile, that is a fault of the corpus."""
    style = STYLES[fault.subject]
    kernel = compile_style(style, fault.planted(style.source.read_text()))
    return [outcome(style, kernel, seed) for seed in seeds]


def cpu_seconds() -> float:
    """CPU time of this process and of the compilers that it ran."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
