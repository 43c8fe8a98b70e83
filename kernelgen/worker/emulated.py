"""The emulated GPU in a worker: the schedules of its threads, and the sizes that it can work on in a short time."""

import ctypes
import importlib
import os
import zlib
from typing import Any

from kernelgen.worker.inputs import work_of
from kernelgen.worker.op import Op

# A case takes no more of either, in all of its inputs and by the op's own count.
MOST_ELEMENTS, MOST_FLOPS = 2**14, 2**23
SIZES = f"up to {MOST_ELEMENTS:,} elements and {MOST_FLOPS // 2**20} million operations, which suit the emulated GPU"


def schedule(*facts: object) -> int:
    """The number of the schedules that follow from these facts; KERNELGEN_SCHEDULE overrides them."""
    return int(os.environ.get("KERNELGEN_SCHEDULE") or zlib.crc32(repr(facts).encode()))


def set_schedules(package: str, number: int) -> None:
    """Has the next launches take the schedules of this number; in the op's process."""
    library = importlib.import_module(f"{package}._library")
    ctypes.CDLL(str(library.LIBRARIES / "_cpu.so")).emulator_set_schedules(ctypes.c_uint64(number))


def fitted(op: Op, case: dict[str, Any]) -> dict[str, Any]:
    """The case, its largest sizes halved until the emulated GPU can work on it in a short time."""
    case = dict(case)
    while _is_too_large(op, {name: case[name] for name in op.domain}):
        size, name = max((case[name] - low, name) for name, (low, _) in op.domain.items())
        if size <= 0:
            break
        # An odd size stays odd.
        case[name] = max(op.domain[name][0], case[name] // 2 | (case[name] & 1 if case[name] > 3 else 0))
    return case


def _is_too_large(op: Op, sizes: dict[str, int]) -> bool:
    elements, flops = work_of(op, sizes)
    return elements > MOST_ELEMENTS or flops > MOST_FLOPS
