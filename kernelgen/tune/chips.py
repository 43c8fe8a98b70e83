"""What each kind of GPU allows a kernel: the limits of its compute capability.

Source: NVIDIA, CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability" and "Shared Memory"
(each block's shared memory is 1 KiB larger than asked for from 8.0 on), and its tuning guides for the sizes of sectors.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """The limits of one compute capability. Memory is in bytes; what is `_sm` is of one multiprocessor."""

    capability: str
    threads_sm: int
    blocks_sm: int
    shared_block: int
    shared_sm: int
    # The widest load or store of a thread, in one instruction.
    widest_access: int = 16
    reserved_shared: int = 1024
    threads_block: int = 1024
    registers_thread: int = 255
    registers_sm: int = 65536
    # Registers are handed to a warp in units of so many.
    register_unit: int = 256
    warp: int = 32
    # Global memory is moved in sectors of this size; shared memory has so many banks of four bytes.
    sector: int = 32
    banks: int = 32


KIB = 1024

CHIPS = {
    chip.capability: chip
    for chip in (
        Chip("7.5", 1024, 16, 64 * KIB, 64 * KIB, reserved_shared=0),
        Chip("8.0", 2048, 32, 163 * KIB, 164 * KIB),
        Chip("8.6", 1536, 16, 99 * KIB, 100 * KIB),
        Chip("8.7", 1536, 16, 163 * KIB, 164 * KIB),
        Chip("8.9", 1536, 24, 99 * KIB, 100 * KIB),
        Chip("9.0", 2048, 32, 227 * KIB, 228 * KIB),
        Chip("10.0", 2048, 32, 227 * KIB, 228 * KIB, widest_access=32),
        Chip("10.3", 2048, 32, 227 * KIB, 228 * KIB, widest_access=32),
        Chip("11.0", 1536, 24, 227 * KIB, 228 * KIB, widest_access=32),
        Chip("12.0", 1536, 24, 99 * KIB, 100 * KIB, widest_access=32),
        Chip("12.1", 1536, 24, 99 * KIB, 100 * KIB, widest_access=32),
    )
}


def find(capability: str) -> Chip | None:
    """The chip of a capability such as "9.0" or "9.0a"; None for one that is not listed, such as a newer one."""
    return CHIPS.get(capability.rstrip("af"))
