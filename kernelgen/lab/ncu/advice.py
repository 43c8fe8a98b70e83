"""What bounds a kernel, and what to look at next, in sentences.

The classes follow the 'speed of light' view of Nsight Compute: a kernel that keeps some unit busy is bound by that
unit, and one that keeps none busy waits (NVIDIA, Kernel Profiling Guide).
"""

from kernelgen.lab.ncu import figures
from kernelgen.lab.ncu.stalls import STALLS

# From so many percent of its peak on a unit is what bounds a kernel. (Copies reach some 90% of memory's peak.)
BUSY = 75
# A kernel that is over so soon spends its time on starting and ending.
SHORT_S = 5e-6
# A grid that fills less than this of the GPU leaves the rest idle. (Persistent grids fill about one wave on purpose.)
FEW_WAVES = 0.5
SECTOR_BYTES = 32
_POOR_SECTORS, _MANY_CONFLICTS, _MORE_BYTES, _LOW_OCCUPANCY = 0.75, 0.10, 1.2, 0.8

_UNITS = {
    "memory": "device memory",
    "tensor": "the tensor cores",
    "l2": "L2",
    "l1": "L1 and shared memory",
    "issue": "issuing instructions",
    "fma": "the float32 units",
    "alu": "the integer units",
    "fp64": "the float64 units",
    "xu": "the special-function units",
}
_NEXT = {
    "tensor": "compare its FLOP/s with this machine's rate; what is left is padding, and how tiles start and end",
    "l2": "read less often what L2 holds: larger tiles in shared memory or registers, clusters that share loads",
    "l1": "read shared memory less: wider accesses, more of the tile in registers, no bank conflicts",
    "issue": "execute fewer instructions: wider loads, less index arithmetic, conversions out of the loop",
    "fma": "do less arithmetic, or have the tensor cores do it",
    "alu": "compute fewer indices: strides known when compiling, increments instead of products, fewer conversions",
    "fp64": "sum in float32 where the precision allows it",
    "xu": "use fewer exp, rsqrt, divisions and conversions, or cheaper forms of them (exp2)",
}


def bound(kernel: figures.ProfiledKernel) -> str:
    """What bounds it: a key of `_UNITS`, `launch`, `blocks` or `latency`."""
    busiest = max(
        (name for name in _UNITS if name in kernel.figures), key=lambda name: kernel.figures[name], default=None
    )
    if busiest and kernel.figures[busiest] >= BUSY:
        # All that memory moves passes the caches, so they are as busy; but it is memory that sets the pace.
        return "memory" if busiest in ("l1", "l2") and kernel.figures.get("memory", 0) >= BUSY else busiest
    if kernel.seconds < SHORT_S:
        return "launch"
    return "blocks" if kernel.launch.get("waves_per_multiprocessor", 1) < FEW_WAVES else "latency"


def advice(kernel: figures.ProfiledKernel, least_bytes: float | None = None) -> list[str]:
    """Sentences: what bounds it and what to look at next, then whatever else stands out.

    Args:
        least_bytes: the fewest bytes that the call has to move, where this kernel alone does all of its work.
    """
    resource = bound(kernel)
    sentences = [_verdict(kernel, resource, least_bytes)]
    if kernel.spilled:
        sentences.append(
            f"It moves {figures.size(kernel.spilled)} through local memory: registers are spilled, or an array "
            "is indexed at run time. `kernelgen build --resources` shows which."
        )
    if (share := kernel.conflict_share) and share > _MANY_CONFLICTS:
        sentences.append(f"Bank conflicts cost {share:.0%} of the passes over shared memory: pad its rows, or swizzle.")
    for name, doing in (("load_bytes", "loads"), ("store_bytes", "stores")):
        used = kernel.figures.get(name)
        if used and used < _POOR_SECTORS * SECTOR_BYTES:
            sentences.append(
                f"Of each {SECTOR_BYTES} bytes that its {doing} touch, {used:.0f} are used: let neighbouring threads "
                "access neighbouring addresses."
            )
    return sentences + _on_occupancy(kernel, resource)


def _verdict(kernel: figures.ProfiledKernel, resource: str, least_bytes: float | None) -> str:
    busy = kernel.figures.get(resource, 0)
    if resource == "memory":
        return f"Bound by device memory, at {busy:.0f}% of its peak. Next: {_fewer_bytes(kernel, least_bytes)}."
    if resource in _UNITS:
        return f"Bound by {_UNITS[resource]}, at {busy:.0f}% of the peak. Next: {_NEXT[resource]}."
    if resource == "launch":
        return (
            f"It is over in {kernel.seconds * 1e6:.1f} µs, most of it starting and ending. Next: fuse it with what "
            "comes before or after, or capture calls into a CUDA graph; inside it there is little to win."
        )
    if resource == "blocks":
        blocks, waves = (kernel.launch[name] for name in ("grid_size", "waves_per_multiprocessor"))
        return (
            f"Its {blocks:.0f} blocks fill {waves:.2f} of one wave: multiprocessors idle. "
            "Next: split the work into more blocks, along the reduction too if need be."
        )
    reason = next((name for name in kernel.stalls if name not in ("selected", "not_selected")), None)
    if reason is None:
        return "Bound by waiting: no unit is near its peak. Next: more independent work in flight."
    waits_for, look_at = STALLS.get(reason, (f"'{reason}'", "look it up in Nsight Compute"))
    return (
        "Bound by waiting: no unit is near its peak, and warps spend "
        f"{kernel.stalls[reason]:.0%} of their time waiting for {waits_for} ({reason}). Next: {look_at}."
    )


def _fewer_bytes(kernel: figures.ProfiledKernel, least_bytes: float | None) -> str:
    fuse = "fuse it with its neighbours, or take a narrower dtype"
    if not least_bytes or kernel.moved is None:
        return f"move fewer bytes: {fuse}"
    times = kernel.moved / least_bytes
    if times > _MORE_BYTES:
        return f"it moves {times:.1f} times the least that its lab.py counts: find what is read or written twice"
    return f"it moves {times:.2f} times the least that its lab.py counts, so only doing more at once helps: {fuse}"


def _on_occupancy(kernel: figures.ProfiledKernel, resource: str) -> list[str]:
    achieved, most = kernel.figures.get("occupancy"), kernel.most_occupancy
    # Warp-specialised kernels keep few warps with many registers on purpose; and a bound kernel needs no more.
    if achieved is None or most is None or resource != "latency" or kernel.figures.get("wgmma"):
        return []
    if achieved < _LOW_OCCUPANCY * most:
        return [
            f"Of {most:.0f}% occupancy that the launch allows, {achieved:.0f}% is reached: blocks end at different "
            "times, or the last wave is thin. Even them out, or let a persistent grid take them."
        ]
    if most < 50:
        return [f"Occupancy cannot exceed {most:.0f}%, limited by {figures.limit_name(kernel)}."]
    return []
