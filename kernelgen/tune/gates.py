"""What rules a configuration out: limits of the GPU, held against an estimate before compiling, and against the
compiler's report after it.

An op's lab.py may have a function `estimate(values, dtype, **sizes)`, which says what its kernel takes of a GPU:

    threads           threads of a block
    registers         registers of a thread
    shared            bytes of shared memory of a block
    blocks            blocks of a multiprocessor that the launch bounds promise (default: 1)
    warp_specialised  True if few warps are by design: the occupancy gate is left out
    global            accesses to global memory, each {"name", "bytes" that a thread moves, "aligned_to" of the first
                      address, and "stride" in bytes from one thread to the next or "offsets" of the 32 threads of a
                      warp}
    shared_accesses   accesses to shared memory, likewise, without "aligned_to"

Every key may be left out; a gate that needs a missing key passes. For several kernels the function returns a list of
such estimates, each with `kernel`, a pattern of the name that the compiler reports. It may also return a sentence: why
these values make no sense together. Each gate returns a sentence that says by how much a configuration fails, or None.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.tune.device_limits import DeviceLimits

Estimate = Mapping[str, Any]
# What an op's function returns: the estimate of one kernel or of several, a sentence, or nothing.
Estimates = Estimate | Sequence[Estimate] | str | None

# With fewer than an eighth of the warps that a multiprocessor can hold, a kernel hardly hides the latency of memory.
LEAST_OCCUPANCY = 0.125
# The useful share of the bytes in the sectors that a warp's access touches.
LEAST_COALESCED = 0.5
# The time of a warp's access to shared memory over that of the same access without bank conflicts.
MOST_CONFLICTS = 2.0
# Bytes that a thread may spill; where the default spills more, that many.
MOST_SPILLED = 64


@dataclass(frozen=True)
class Rejection:
    """The gate that a configuration fails, and by how much."""

    gate: str
    text: str

    def __str__(self) -> str:
        return f"{self.gate}: {self.text}"


# ---- The gates ------------------------------------------------------------------------------------------------
# Each says why an estimate fails, in a phrase with the limit; None if it passes, or says nothing of the resource.


def threads(estimate: Estimate, limits: DeviceLimits) -> str | None:
    if (count := estimate.get("threads")) is None:
        return None
    if count > limits.threads_block:
        return f"{count} threads a block, {limits.threads_block} is the most"
    if count < 1 or count % limits.warp:
        return f"{count} threads a block, not whole warps of {limits.warp}"
    blocks = estimate.get("blocks", 1)
    if (total := blocks * count) > limits.threads_sm:
        return f"{total} threads for {blocks} blocks, {total - limits.threads_sm} more than {limits.threads_sm}"
    return None


def shared_memory(estimate: Estimate, limits: DeviceLimits) -> str | None:
    taken = estimate.get("shared", 0)
    if taken > limits.shared_block:
        return f"{taken} bytes of shared memory a block, {taken - limits.shared_block} more than {limits.shared_block}"
    blocks = estimate.get("blocks", 1)
    if (total := blocks * (taken + limits.reserved_shared)) > limits.shared_sm:
        return f"{total} bytes for {blocks} blocks, {total - limits.shared_sm} more than {limits.shared_sm}"
    return None


def registers(estimate: Estimate, limits: DeviceLimits) -> str | None:
    taken = estimate.get("registers", 0)
    if taken > limits.registers_thread:
        return f"{taken} registers a thread, {taken - limits.registers_thread} more than {limits.registers_thread}"
    blocks = estimate.get("blocks", 1)
    if "threads" in estimate and (total := blocks * _block_registers(estimate, limits)) > limits.registers_sm:
        per = f"for {blocks} blocks" if blocks > 1 else "a block"
        return f"{total} registers {per}, {total - limits.registers_sm} more than {limits.registers_sm}"
    return None


def occupancy(estimate: Estimate, limits: DeviceLimits) -> str | None:
    if estimate.get("warp_specialised") or "threads" not in estimate:
        return None
    blocks, bound = resident_blocks(estimate, limits)
    share = blocks * estimate["threads"] / limits.threads_sm
    if share < LEAST_OCCUPANCY:
        return f"{share:.1%} of the warps of a multiprocessor at once (by {bound}), {LEAST_OCCUPANCY:.1%} is the least"
    return None


def alignment(estimate: Estimate, limits: DeviceLimits) -> str | None:
    for access in estimate.get("global", ()):
        width, aligned = access["bytes"], access.get("aligned_to", access["bytes"])
        if width & (width - 1) or not 1 <= width <= limits.widest_access:
            return f"{access['name']}: {width} bytes in one access, which takes 1, 2, 4 … {limits.widest_access}"
        if aligned % width:
            return f"{access['name']}: accesses of {width} bytes to addresses that are multiples of {aligned}"
    return None


def coalescing(estimate: Estimate, limits: DeviceLimits) -> str | None:
    for access in estimate.get("global", ()):
        touched, sectors = _touched(_offsets(access, limits), access["bytes"], limits.sector)
        share = touched / (sectors * limits.sector)
        # All threads at one address are a broadcast: one sector, however little of it is used.
        if share < LEAST_COALESCED and sectors > 1:
            return (
                f"{access['name']}: {share:.0%} of the bytes that a warp moves are used ({sectors} sectors), "
                f"{LEAST_COALESCED:.0%} is the least"
            )
    return None


def bank_conflicts(estimate: Estimate, limits: DeviceLimits) -> str | None:
    for access in estimate.get("shared_accesses", ()):
        factor = conflict_factor(_offsets(access, limits), access["bytes"], limits)
        if factor > MOST_CONFLICTS:
            return f"{access['name']}: {factor:g} times as long for bank conflicts, {MOST_CONFLICTS:g} is the most"
    return None


GATES: dict[str, Callable[[Estimate, DeviceLimits], str | None]] = {
    "threads": threads,
    "shared memory": shared_memory,
    "registers": registers,
    "occupancy": occupancy,
    "alignment": alignment,
    "coalescing": coalescing,
    "bank conflicts": bank_conflicts,
}


def judge(estimates: Estimates, limits: DeviceLimits | None) -> Rejection | None:
    """The first gate that a configuration fails. Without known limits only the op's own sentence counts."""
    if isinstance(estimates, str):
        return Rejection("the op", estimates)
    if limits is None:
        return None
    for estimate in _of_each_kernel(estimates):
        kernel = " ".join(re.findall(r"\w+", estimate.get("kernel", "")))  # The names in the pattern.
        prefix = f"{kernel}: " if kernel else ""
        for name, gate in GATES.items():
            if text := gate(estimate, limits):
                return Rejection(name, prefix + text)
    return None


def judge_compiled(
    kernels: Sequence[Mapping[str, Any]], estimates: Estimates, spilled_by_default: int, limits: DeviceLimits | None
) -> Rejection | None:
    """The same on what the compiler reported of each kernel (see `toolchain.resources.Kernel`).

    Args:
        spilled_by_default: bytes that the op's default configuration spills.
    """
    allowed = max(MOST_SPILLED, spilled_by_default)
    for kernel in kernels:
        spilled = kernel["spill_stores"] + kernel["spill_loads"]
        if spilled > allowed:
            return Rejection("spills", f"{kernel['name']} spills {spilled} bytes, {allowed} is the most")
        estimate = _estimate_of(kernel["name"], estimates)
        # The report does not count shared memory that is asked for at launch; the estimate does.
        shared = max(kernel["shared"], estimate.get("shared", 0))
        compiled = {**estimate, "registers": kernel["registers"], "shared": shared, "global": (), "shared_accesses": ()}
        if rejection := judge(compiled, limits):
            return Rejection(rejection.gate, f"{kernel['name']}: {rejection.text}, as compiled")
    return None


def _of_each_kernel(estimates: Estimates) -> Sequence[Estimate]:
    if estimates is None or isinstance(estimates, str):
        return ()
    return [estimates] if isinstance(estimates, Mapping) else estimates


def _estimate_of(kernel: str, estimates: Estimates) -> dict[str, Any]:
    """The estimate whose pattern matches a kernel's name, without the pattern; empty if there is none."""
    for estimate in _of_each_kernel(estimates):
        if re.search(estimate.get("kernel", ""), kernel):
            return {name: value for name, value in estimate.items() if name != "kernel"}
    return {}


# ---- Their arithmetic -----------------------------------------------------------------------------------------


def resident_blocks(estimate: Estimate, limits: DeviceLimits) -> tuple[int, str]:
    """How many blocks run on a multiprocessor at once, and which resource bounds that."""
    blocks = {"threads": limits.threads_sm // _whole_warps(estimate["threads"], limits), "blocks": limits.blocks_sm}
    if estimate.get("registers"):
        blocks["registers"] = limits.registers_sm // _block_registers(estimate, limits)
    if estimate.get("shared"):
        blocks["shared memory"] = limits.shared_sm // (estimate["shared"] + limits.reserved_shared)
    bound = min(blocks, key=blocks.__getitem__)
    return blocks[bound], bound


# Most configurations of an op access memory alike, so the results of these two are kept.
@functools.lru_cache(1 << 12)
def _touched(offsets: tuple[int, ...], width: int, sector: int) -> tuple[int, int]:
    """How many bytes a warp's access touches, and how many sectors."""
    touched = {byte for start in offsets for byte in range(start, start + width)}
    return len(touched), len({byte // sector for byte in touched})


@functools.lru_cache(1 << 12)
def conflict_factor(offsets: tuple[int, ...], width: int, limits: DeviceLimits) -> float:
    """The cycles that a warp's access to shared memory takes over the fewest that it could take.

    An access of 8 bytes is served half a warp at a time, one of 16 bytes a quarter at a time. Within such a group two
    different words of one bank take two cycles; one word is read once for all threads that want it.
    """
    group = max(1, limits.warp * 4 // max(4, width))
    cycles = fewest = 0
    for first in range(0, len(offsets), group):
        starts = offsets[first : first + group]
        words = {byte // 4 for start in starts for byte in range(start, start + width)}
        per_bank = [0] * limits.banks
        for word in words:
            per_bank[word % limits.banks] += 1
        cycles += max(per_bank)
        fewest += -(-len(words) // limits.banks)
    return cycles / fewest


def _whole_warps(count: int, limits: DeviceLimits) -> int:
    return -(-count // limits.warp) * limits.warp


def _block_registers(estimate: Estimate, limits: DeviceLimits) -> int:
    warp = -(-estimate.get("registers", 0) * limits.warp // limits.register_unit) * limits.register_unit
    return warp * (_whole_warps(estimate["threads"], limits) // limits.warp)


def _offsets(access: Mapping[str, Any], limits: DeviceLimits) -> tuple[int, ...]:
    """Bytes from the first thread's address to each thread's."""
    offsets = access.get("offsets")
    return tuple(offsets if offsets is not None else (lane * access["stride"] for lane in range(limits.warp)))
