"""What each compute capability allows a kernel.

Source: NVIDIA, CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability" and "Shared Memory"
(from 8.0 on the system takes 1 KiB of shared memory for each block), and NVIDIA's tuning guides for sector sizes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceLimits:
    """The limits of one compute capability. Memory is in bytes; fields ending in `_sm` are per multiprocessor, those
    ending in `_block` and `_thread` per block and per thread."""

    capability: str
    threads_sm: int
    blocks_sm: int
    shared_block: int
    shared_sm: int
    # The widest load or store of a thread, in one instruction.
    widest_access: int = 16
    # Shared memory that the system takes for each block.
    reserved_shared: int = 1024
    threads_block: int = 1024
    registers_thread: int = 255
    registers_sm: int = 65536
    # A warp gets registers in multiples of this.
    register_unit: int = 256
    # Threads of a warp.
    warp: int = 32
    # Global memory moves in sectors of this many bytes.
    sector: int = 32
    # Banks of shared memory, each four bytes wide.
    banks: int = 32


KIB = 1024

DEVICE_LIMITS = {
    limits.capability: limits
    for limits in (
        DeviceLimits("7.5", 1024, 16, 64 * KIB, 64 * KIB, reserved_shared=0),
        DeviceLimits("8.0", 2048, 32, 163 * KIB, 164 * KIB),
        DeviceLimits("8.6", 1536, 16, 99 * KIB, 100 * KIB),
        DeviceLimits("8.7", 1536, 16, 163 * KIB, 164 * KIB),
        DeviceLimits("8.9", 1536, 24, 99 * KIB, 100 * KIB),
        DeviceLimits("9.0", 2048, 32, 227 * KIB, 228 * KIB),
        DeviceLimits("10.0", 2048, 32, 227 * KIB, 228 * KIB, widest_access=32),
        DeviceLimits("10.3", 2048, 32, 227 * KIB, 228 * KIB, widest_access=32),
        DeviceLimits("11.0", 1536, 24, 227 * KIB, 228 * KIB, widest_access=32),
        DeviceLimits("12.0", 1536, 24, 99 * KIB, 100 * KIB, widest_access=32),
        DeviceLimits("12.1", 1536, 24, 99 * KIB, 100 * KIB, widest_access=32),
    )
}


def device_limits(capability: str) -> DeviceLimits | None:
    """The limits of a compute capability such as "9.0" or "9.0a"; None if it is not listed, such as a newer one."""
    return DEVICE_LIMITS.get(capability.rstrip("af"))
