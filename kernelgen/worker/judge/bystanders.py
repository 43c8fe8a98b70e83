"""What was on a GPU before any process of an op was: other programs' processes, and the memory that they had taken."""

import functools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernelgen.worker import machine_state
from kernelgen.worker.judge import gpu_memory


class Bystanders:
    """Has to be made before the first process of the op starts.

    An op that left all of its time to a program that it started itself would be excused for it. So a program counts
    that was on the GPU before, or is another user's: an op cannot become one, nor signal or start its processes. None
    counts that descends from what started this process, such as the judge of a version that takes turns with this one.
    """

    def __init__(self) -> None:
        self._earlier = _earlier()
        self._taken = gpu_memory.taken()

    def count(self) -> int:
        """How many processes of other programs are on the GPU now."""
        family = os.getppid()
        return sum(
            (pid in self._earlier or _is_another_users(pid)) and family not in _line_of(pid)
            for pid in machine_state.gpu_processes()
        )

    def more_taken(self) -> int:
        """The bytes of the GPU's memory that were taken since, by whomever but this process."""
        return gpu_memory.taken() - self._taken


@functools.cache
def _earlier() -> frozenset[int]:
    """Asked once in a process: what the first op left running was not there before the second."""
    return frozenset(machine_state.gpu_processes())


def _is_another_users(pid: int) -> bool:
    """Of a process that can be seen here; in a container NVML may name processes otherwise."""
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid != os.getuid()
    return False


def _line_of(pid: int) -> Iterator[int]:
    """The process, the one that started it, and so on."""
    while pid > 0:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return
