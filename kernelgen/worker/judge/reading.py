"""Copies of an op's results, which its judge reads as they were when the clock stopped."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelgen.worker.judge.errors import CallError
from kernelgen.worker.judge.gpu_memory import Allocation, GpuMemory
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.judge.results import rebuilt
from kernelgen.worker.protocol import is_fatal

# Where a result lies, by address, dtype, shape and stride.
Result = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]


class CpuReader:
    """Reads from the memory of a process, which is stopped."""

    def __init__(self, process: OpProcess) -> None:
        self._process = process

    def read(self, results: Sequence[Result]) -> list[Tensor] | None:
        """Contiguous copies; None if they lie where only `open` can tell.

        Raises:
            CallError: there is no such memory.
        """
        return [rebuilt(self._process, *facts) for facts in results]

    def is_current(self) -> bool:
        """Whether what was open is still the memory of the last results."""
        return True

    def open(self) -> None:
        """Has the process tell where its last results lie."""

    def close(self) -> None:
        """Lets go of the process' memory, which it could not free otherwise."""


class GpuReader(CpuReader):
    """Reads from allocations of a process on a GPU. It can open them only by a word of the process, which goes on then:
    what was read before is what counts."""

    def __init__(self, process: OpProcess) -> None:
        super().__init__(process)
        self._memory = GpuMemory()

    def read(self, results: Sequence[Result]) -> list[Tensor] | None:
        try:
            copies = [self._memory.read(*facts) for facts in results]
        except RuntimeError as error:
            if is_fatal(error) or isinstance(error, torch.OutOfMemoryError):
                raise
            return None
        torch.cuda.synchronize()  # Before the process goes on, and writes there.
        return copies

    def is_current(self) -> bool:
        return self._memory.covers(self._allocations())

    def open(self) -> None:
        try:
            self._memory.open(self._allocations())
        except (RuntimeError, ValueError) as error:
            if is_fatal(error):
                raise
            raise CallError(f"its results cannot be read: {error}") from None

    def close(self) -> None:
        self._memory.close()

    def _allocations(self) -> list[Allocation]:
        return self._process.ask("allocations")["allocations"]


def reader_of(process: OpProcess, device: str) -> CpuReader:
    return (GpuReader if torch.device(device).type == "cuda" else CpuReader)(process)
