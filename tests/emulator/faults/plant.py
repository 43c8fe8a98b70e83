"""Plants a fault in a copy of a kernel, compiles it for the emulated GPU, and says what came of it."""

import functools
import hashlib
import os
import resource
from collections.abc import Sequence

from kernelgen.emulator import compiler, library
from kernelgen.emulator.library import EmulatedLibrary
from kernelgen.emulator.lock import locked
from tests.emulator.faults import Fault
from tests.emulator.faults.outcome import Outcome, outcome_of
from tests.emulator.faults.recipe_checks import CHECKS, checked
from tests.emulator.faults.registered import REGISTRATION, RegisteredMemory, RegisteringLibrary
from tests.emulator.styles import STYLES, Style

CACHE = compiler.HERE.parents[1] / "build" / "emulator"
# Every order of warps and every pace of asynchronous operations: see kernelgen/emulator/README.md.
SEEDS = (0, 4, 8, 10)


def compile_style(style: Style, text: str = "") -> EmulatedLibrary:
    """The library of a style, or of a text that takes the place of its source."""
    text = (text or style.source.read_text()) + REGISTRATION
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


def outcome(style: Style, kernel: EmulatedLibrary, seed: int) -> Outcome:
    """What one seed makes of a style's problems."""
    return outcome_of(functools.partial(_check, style, kernel, seed))


def _check(style: Style, kernel: EmulatedLibrary, seed: int) -> None:
    memory = RegisteredMemory()
    for problem in style.problems(memory):
        names = {result.data_ptr(): name for name, result in problem.results.items()}
        library = RegisteringLibrary(kernel, memory, names)
        library(style.function, *problem.arguments, seed=seed, capability=style.capability)
        problem.check()
        memory.check()


def outcomes(fault: Fault, seeds: Sequence[int] = SEEDS) -> list[Outcome]:
    """What each seed makes of a style with the fault; of a recipe, what its check does, which has seeds of its own.

    Raises:
        EmulatorError: it does not compile, which is a fault of the corpus.
    """
    if fault.subject in CHECKS:
        return [checked(fault.subject, fault)]
    style = STYLES[fault.subject]
    kernel = compile_style(style, fault.planted(style.source.read_text()))
    return [outcome(style, kernel, seed) for seed in seeds]


def cpu_seconds() -> float:
    """CPU time of this process and of the compilers that it ran."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
