"""What rules a configuration out before it is compiled, and again from what the compiler says of it.

An op's lab.py may have a function `estimate(values, dtype, **sizes)`, which says what the kernel will take of a GPU:

    threads           of a block
    registers         of a thread
    shared            bytes of shared memory of a block
    blocks            of a multiprocessor, for which the launch bounds have the compiler leave room
    warp_specialised  whether few warps are by design: the gate for occupancy is left out
    global            accesses to global memory: {"name", "bytes" of a thread, "stride" from one thread to the next in
                      bytes, or "offsets" of the 32 threads of a warp, "aligned_to" of the first address}
    shared_accesses   the same for shared memory, without "aligned_to"

It may leave out any of them, and the gates that need them are then open. Where there are several kernels it returns a
list of such, each with `kernel`, a pattern that is in the name that the compiler reports. Or it returns a sentence:
these values make no sense together. Each gate gives a sentence that says by how much a configuration fails, or None.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.tune.chips import Chip

Estimate = Mapping[str, Any]
# What an op's function returns: of one kernel or of several, or a sentence, or nothing.
Estimates = Estimate | Sequence[Estimate] | str | None

# Under an eighth of the warps that a multiprocessor can hold, nothing hides the latency of memory, whatever the code.
LEAST_OCCUPANCY = 0.125
# The useful share of the bytes that the sectors of a warp's access hold.
LEAST_COALESCED = 0.5
# How many times as long a warp's access to shared memory takes as it would without conflicts.
MOST_CONFLICTS = 2.0
# Bytes that a thread may spill, or as many as the default does.
MOST_SPILLED = 64


@dataclass(frozen=True)
class Rejection:
    """Which gate, and by how much."""

    gate: str
    text: str

    def __str__(self) -> str:
        return f"{self.gate}: {self.text}"


# ---- The gates ------------------------------------------------------------------------------------------------


def threads(estimate: Estimate, chip: Chip) -> str | None:
    if (count := estimate.get("threads")) is None:
        return None
    if count > chip.threads_block:
        return f"{count} threads a block, {chip.threads_block} is the most"
    if count < 1 or count % chip.warp:
        return f"{count} threads a block, not whole warps of {chip.warp}"
    return None


def shared_memory(estimate: Estimate, chip: Chip) -> str | None:
    taken = estimate.get("shared", 0)
    if taken > chip.shared_block:
        return f"{taken} bytes of shared memory a block, {taken - chip.shared_block} more than {chip.shared_block}"
    blocks = estimate.get("blocks", 1)
    if (total := blocks * (taken + chip.reserved_shared)) > chip.shared_sm:
        return f"{total} bytes for {blocks} blocks, {total - chip.shared_sm} more than {chip.shared_sm}"
    return None


def registers(estimate: Estimate, chip: Chip) -> str | None:
    taken = estimate.get("registers", 0)
    if taken > chip.registers_thread:
        return f"{taken} registers a thread, {taken - chip.registers_thread} more than {chip.registers_thread}"
    blocks = estimate.get("blocks", 1)
    if "threads" in estimate and (total := blocks * _block_registers(estimate, chip)) > chip.registers_sm:
        what = f"for {blocks} blocks" if blocks > 1 else "a block"
        return f"{total} registers {what}, {total - chip.registers_sm} more than {chip.registers_sm}"
    return None


def occupancy(estimate: Estimate, chip: Chip) -> str | None:
    if estimate.get("warp_specialised") or "threads" not in estimate:
        return None
    blocks, limit = resident_blocks(estimate, chip)
    share = blocks * estimate["threads"] / chip.threads_sm
    if share < LEAST_OCCUPANCY:
        return f"{share:.1%} of the warps of a multiprocessor at once (by {limit}), {LEAST_OCCUPANCY:.1%} is the least"
    return None


def alignment(estimate: Estimate, chip: Chip) -> str | None:
    for access in estimate.get("global", ()):
        width, aligned = access["bytes"], access.get("aligned_to", access["bytes"])
        if width & (width - 1) or not 1 <= width <= chip.widest_access:
            return f"{access['name']}: {width} bytes in one access, which takes 1, 2, 4 … {chip.widest_access}"
        if aligned % width:
            return f"{access['name']}: accesses of {width} bytes to addresses that are multiples of {aligned}"
    return None


def coalescing(estimate: Estimate, chip: Chip) -> str | None:
    for access in estimate.get("global", ()):
        offsets, width = _offsets(access, chip), access["bytes"]
        touched = {byte for start in offsets for byte in range(start, start + width)}
        sectors = {byte // chip.sector for byte in touched}
        share = len(touched) / (len(sectors) * chip.sector)
        # All threads at one address is a broadcast: one sector, and nothing to gain.
        if share < LEAST_COALESCED and len(sectors) > 1:
            return (
                f"{access['name']}: {share:.0%} of the bytes that a warp moves are used ({len(sectors)} sectors), "
                f"{LEAST_COALESCED:.0%} is the least"
            )
    return None


def bank_conflicts(estimate: Estimate, chip: Chip) -> str | None:
    for access in estimate.get("shared_accesses", ()):
        factor = conflict_factor(_offsets(access, chip), access["bytes"], chip)
        if factor > MOST_CONFLICTS:
            return f"{access['name']}: {factor:g} times as long for bank conflicts, {MOST_CONFLICTS:g} is the most"
    return None


GATES: dict[str, Callable[[Estimate, Chip], str | None]] = {
    "threads": threads,
    "shared memory": shared_memory,
    "registers": registers,
    "occupancy": occupancy,
    "alignment": alignment,
    "coalescing": coalescing,
    "bank conflicts": bank_conflicts,
}


def judge(estimates: Estimates, chip: Chip | None) -> Rejection | None:
    """The first gate that rules a configuration out; without a chip whose limits are known, only the op's own word."""
    if isinstance(estimates, str):
        return Rejection("the op", estimates)
    if chip is None:
        return None
    for estimate in _each(estimates):
        # The names in the pattern.
        of = " ".join(re.findall(r"\w+", estimate.get("kernel", "")))
        of = f"{of}: " if of else ""
        for name, gate in GATES.items():
            if text := gate(estimate, chip):
                return Rejection(name, of + text)
    return None


def judge_compiled(
    kernels: Sequence[Mapping[str, Any]], estimates: Estimates, spilled_by_default: int, chip: Chip | None
) -> Rejection | None:
    """The gates once more, on what the compiler reported of each kernel (see `toolchain.resources.Kernel`)."""
    for kernel in kernels:
        known = next((dict(one) for one in _each(estimates) if re.search(one.get("kernel", ""), kernel["name"])), {})
        known.pop("kernel", None)
        spilled = kernel["spill_stores"] + kernel["spill_loads"]
        allowed = max(MOST_SPILLED, spilled_by_default)
        if spilled > allowed:
            return Rejection("spills", f"{kernel['name']} spills {spilled} bytes, {allowed} is the most")
        # Shared memory that is asked for at launch is in no report: the estimate holds it.
        shared = max(kernel["shared"], known.get("shared", 0))
        found = {**known, "registers": kernel["registers"], "shared": shared, "global": (), "shared_accesses": ()}
        if rejection := judge(found, chip):
            return Rejection(rejection.gate, f"{kernel['name']}: {rejection.text}, as compiled")
    return None


def _each(estimates: Estimates) -> Sequence[Estimate]:
    """Those of each kernel that there is something to say of."""
    if estimates is None or isinstance(estimates, str):
        return ()
    return [estimates] if isinstance(estimates, Mapping) else estimates


# ---- What they reckon with ------------------------------------------------------------------------------------


def resident_blocks(estimate: Estimate, chip: Chip) -> tuple[int, str]:
    """How many blocks run on a multiprocessor at once, and what limits them."""
    limits = {"threads": chip.threads_sm // _whole_warps(estimate["threads"], chip), "blocks": chip.blocks_sm}
    if estimate.get("registers"):
        limits["registers"] = chip.registers_sm // _block_registers(estimate, chip)
    if estimate.get("shared"):
        limits["shared memory"] = chip.shared_sm // (estimate["shared"] + chip.reserved_shared)
    limit = min(limits, key=limits.__getitem__)
    return limits[limit], limit


def conflict_factor(offsets: Sequence[int], width: int, chip: Chip) -> float:
    """How many times as many turns a warp's access to shared memory takes as it has to.

    An access of 8 bytes is served in two halves of a warp, one of 16 in four quarters. Within such a part, two
    different words of one bank take two turns; the same word is read once for all.
    """
    lanes = max(1, chip.warp * 4 // max(4, width))
    turns = least = 0
    for first in range(0, len(offsets), lanes):
        part = offsets[first : first + lanes]
        words = {byte // 4 for start in part for byte in range(start, start + width)}
        per_bank = [0] * chip.banks
        for word in words:
            per_bank[word % chip.banks] += 1
        turns += max(per_bank)
        least += -(-len(words) // chip.banks)
    return turns / least


def _whole_warps(count: int, chip: Chip) -> int:
    return -(-count // chip.warp) * chip.warp


def _block_registers(estimate: Estimate, chip: Chip) -> int:
    warp = -(-estimate.get("registers", 0) * chip.warp // chip.register_unit) * chip.register_unit
    return warp * (_whole_warps(estimate["threads"], chip) // chip.warp)


def _offsets(access: Mapping[str, Any], chip: Chip) -> list[int]:
    given = access.get("offsets")
    return list(given) if given is not None else [lane * access["stride"] for lane in range(chip.warp)]
