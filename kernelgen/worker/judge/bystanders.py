"""The other programs on a GPU, as far as NVML shows them: what they do may look like what an op does."""

import os
from collections.abc import Callable

from kernelgen import process_tree
from kernelgen.worker import machine_state
from kernelgen.worker.judge import gpu_memory

UNSEEN = "this system does not show which other processes use this GPU"
PRESENT = "other processes use this GPU"


class Bystanders:
    """Has to be made before the first process of the op starts, which could take memory.

    None of them descends from what started this process, as do the op, its peers, and the judge of a version that takes
    turns with this one. An op could have another program of the user's start something for it; that raises a doubt in
    place of a fault, and with a doubt no gain is believed.

    Args:
        own: how many processes of the measurement use the GPU, this one among them: in a container NVML may give them
            other numbers than the system does here, so that they cannot be told from others but by how many they are.
    """

    def __init__(self, own: Callable[[], int]) -> None:
        self._own = own
        self._taken = gpu_memory.taken()

    def sentence(self) -> str | None:
        """Why a GPU that is slow, or whose memory lacks, says nothing of the op; None where it is the op's alone."""
        pids = machine_state.gpu_processes()
        if not pids:  # NVML is absent or refuses; or it shows no process, though this one is there.
            return UNSEEN
        if os.getpid() in pids:
            family = os.getppid()
            count = sum(family not in process_tree.line_of(pid) for pid in pids)
        else:
            count = len(pids) - self._own()
        return PRESENT if count > 0 else None

    def more_taken(self) -> int:
        """The bytes of the GPU's memory that were taken since, by whomever but this process."""
        return gpu_memory.taken() - self._taken
