"""What each kernel uses of a GPU: registers, shared memory, stack and spills, as ptxas reported them."""

import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelgen.toolchain.build import Outcome
from kernelgen.toolchain.kernel_names import name_in_source

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass
class Kernel:
    """One kernel, compiled for one architecture. Memory is in bytes; shared memory is the static part."""

    source: str
    name: str
    architecture: str
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read(root: Path, outcome: Outcome) -> list[Kernel]:
    """Every kernel of the build, by source; ptxas's report lies beside each object."""
    kernels = []
    for path, source in outcome.configuration["objects"].items():
        report = root / f"{path}.txt"
        if is_kernel_object(path) and report.is_file():
            kernels += parse(source, report.read_text())
    return sorted(demangled(kernels), key=lambda kernel: (kernel.source, kernel.name, kernel.architecture))


def is_kernel_object(path: str) -> bool:
    """Whether an object was made by nvcc: one of kernel.cu is called kernel.cu.90a.o, or kernel.cu.float16.90a.o."""
    return ".cu." in Path(path).name


def parse(source: str, report: str) -> list[Kernel]:
    """The kernels of one report, under the linker's names."""
    kernels: list[Kernel] = []
    for line in report.splitlines():
        if entry := _ENTRY.search(line):
            number, suffix = re.fullmatch(r"(\d+)([a-z]?)", entry[2]).groups()
            kernels.append(Kernel(source, entry[1], f"{number[:-1]}.{number[-1]}{suffix}"))
        elif kernels and (match := _SPILLS.search(line)):
            # ptxas reports the functions that a kernel calls after it; they count as part of it.
            kernels[-1].stack += int(match[1])
            kernels[-1].spill_stores += int(match[2])
            kernels[-1].spill_loads += int(match[3])
        elif kernels and (match := _USED.search(line)):
            kernels[-1].registers = int(match[1])
            shared = _SHARED.search(line)
            kernels[-1].shared = int(shared[1]) if shared else 0
    return kernels


def demangled(kernels: list[Kernel]) -> list[Kernel]:
    """The kernels under the names in the source, without arguments and the names of unnamed namespaces."""
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if tool and kernels:
        names = "\n".join(kernel.name for kernel in kernels)
        done = subprocess.run([tool], input=names, capture_output=True, text=True, check=True).stdout
        for kernel, name in zip(kernels, done.splitlines(), strict=True):
            kernel.name = name_in_source(name)
    return kernels


def table(kernels: list[Kernel]) -> str:
    """A row for each kernel and architecture: registers a thread; shared memory, stack and spills in bytes."""
    if not kernels:
        return "no kernels: nothing was compiled for a GPU"
    head = ("kernel", "for", "registers", "shared", "stack", "spilled")
    rows, source = [head], ""
    for kernel in kernels:
        if kernel.source != source:
            source = kernel.source
            rows.append((source, "", "", "", "", ""))
        spilled = f"{kernel.spill_stores}+{kernel.spill_loads}" if kernel.spill_stores or kernel.spill_loads else "-"
        numbers = (str(kernel.registers), str(kernel.shared), str(kernel.stack), spilled)
        rows.append((f"  {kernel.name}", kernel.architecture, *numbers))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = (
        f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
