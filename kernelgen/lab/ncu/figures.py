"""A kernel's counters as figures against their ceilings. The metrics are Nsight Compute's."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kernelgen.lab.ncu.runner import Launch
from kernelgen.lab.ncu.stalls import STALLS

_PEAK = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"

# The metrics that give each figure, the best first: chips differ in what they count.
METRICS: dict[str, tuple[str, ...]] = {
    "nanoseconds": ("gpu__time_duration.sum",),
    "memory": (f"dram__throughput.{_PEAK}",),
    "read": ("dram__bytes_read.sum",),
    "written": ("dram__bytes_write.sum",),
    "l2": (f"lts__throughput.{_PEAK}",),
    "l2_hits": ("lts__t_sector_hit_rate.pct",),
    "l1": (f"l1tex__throughput.{_ACTIVE}",),
    "tensor": (
        f"sm__pipe_tensor_cycles_active.{_ACTIVE}",
        f"sm__pipe_tensor_op_hmma_cycles_active.{_ACTIVE}",
        f"sm__inst_executed_pipe_tensor.{_ACTIVE}",
    ),
    "wgmma": ("sm__inst_executed_pipe_tensor_op_gmma.sum",),
    "fma": (f"sm__pipe_fma_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_fma.{_ACTIVE}"),
    "alu": (f"sm__pipe_alu_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_alu.{_ACTIVE}"),
    "fp64": (f"sm__pipe_fp64_cycles_active.{_ACTIVE}", f"sm__inst_executed_pipe_fp64.{_ACTIVE}"),
    "xu": (f"sm__inst_executed_pipe_xu.{_ACTIVE}",),
    "issue": (f"smsp__issue_active.{_ACTIVE}", f"sm__inst_issued.{_ACTIVE}"),
    "occupancy": (f"sm__warps_active.{_ACTIVE}",),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "local_read": ("l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",),
    "local_written": ("l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",),
    "load_bytes": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",),
    "store_bytes": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",),
}
_LIMITS = ("blocks", "registers", "shared_mem", "warps", "barriers")
_LAUNCH = ("registers_per_thread", "grid_size", "block_size", "waves_per_multiprocessor", "shared_mem_per_block")
# What the driver knows of a launch on every chip.
LAUNCH = tuple(f"launch__{name}" for name in (*_LAUNCH, *(f"occupancy_limit_{limit}" for limit in _LIMITS)))
_MOST_WARPS = "device__attribute_max_warps_per_multiprocessor"
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active")


def resolve(available: set[str]) -> list[str]:
    """The metrics to collect on a chip that has these: the best of each figure, and that of every stall reason."""
    known = [next((m for m in choices if m.partition(".")[0] in available), None) for choices in METRICS.values()]
    stalls = sorted(f"{name}.ratio" for name in available if _STALL.fullmatch(name))
    if not available:  # ncu did not say which there are: take the likeliest.
        known = [choices[0] for choices in METRICS.values()]
        stalls = [f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS]
    return [*filter(None, known), *stalls, *LAUNCH]


@dataclass
class ProfiledKernel:
    """One launch. Percentages are of the unit's peak; a figure is absent where the chip does not count it.

    Attributes:
        figures: by the names of METRICS; `found` in files.
        launch: facts of the launch, by their names after `launch__`.
        stalls: the share of a warp's time by reason, the largest first.
        most_occupancy: the occupancy in percent that the launch allows; `limited_by`: what allows no more.
    """

    name: str
    seconds: float
    figures: dict[str, float]
    launch: dict[str, float]
    stalls: dict[str, float] = field(default_factory=dict)
    most_occupancy: float | None = None
    limited_by: str | None = None

    @property
    def moved(self) -> float | None:
        """Bytes read from and written to device memory."""
        parts = [self.figures.get(name) for name in ("read", "written")]
        return None if None in parts else sum(parts)

    @property
    def conflict_share(self) -> float | None:
        """The share of the passes over shared memory that bank conflicts cost."""
        conflicts, passes = self.figures.get("conflicts"), self.figures.get("wavefronts")
        if conflicts is None or passes is None:
            return None
        return min(1.0, conflicts / passes) if passes else 0.0

    @property
    def spilled(self) -> float:
        """Bytes of local memory read and written: spilled registers, and arrays indexed at run time."""
        return self.figures.get("local_read", 0) + self.figures.get("local_written", 0)

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        return {"found" if name == "figures" else name: value for name, value in facts.items()}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> "ProfiledKernel":
        names = {"figures": "found"}
        return cls(**{field.name: facts[names.get(field.name, field.name)] for field in fields(cls)})


def profiled_kernel(launch: Launch) -> ProfiledKernel:
    """The figures of a launch."""
    metrics = launch.metrics
    figures = {}
    for name, choices in METRICS.items():
        value = next((metrics[metric] for metric in choices if metric in metrics), None)
        if value is not None and math.isfinite(value):
            # A hit rate can exceed 100%: its two counts come from different passes.
            figures[name] = min(value, 100.0) if name == "l2_hits" else value
    facts = {name: metrics[f"launch__{name}"] for name in _LAUNCH if f"launch__{name}" in metrics}
    kernel = ProfiledKernel(launch.name, figures.get("nanoseconds", 0.0) / 1e9, figures, facts, _stalls(metrics))
    limits = {limit: metrics.get(f"launch__occupancy_limit_{limit}") for limit in _LIMITS}
    limits = {limit: blocks for limit, blocks in limits.items() if blocks}
    if limits and "block_size" in facts:
        kernel.limited_by = min(limits, key=limits.__getitem__)
        warps = math.ceil(facts["block_size"] / 32) * limits[kernel.limited_by]
        kernel.most_occupancy = min(100.0, 100 * warps / metrics.get(_MOST_WARPS, 64))
    return kernel


def _stalls(metrics: dict[str, float]) -> dict[str, float]:
    waits = {}
    for name, value in metrics.items():
        if (match := _STALL.match(name)) and math.isfinite(value):
            waits[match[1]] = value
    whole = sum(waits.values())
    return {name: waits[name] / whole for name in sorted(waits, key=waits.__getitem__, reverse=True)} if whole else {}


# ---- As text ---------------------------------------------------------------------------------------------------------


def limit_name(kernel: ProfiledKernel) -> str:
    """What limits the occupancy, in words."""
    registers = f"registers ({kernel.launch.get('registers_per_thread', 0):.0f} a thread)"
    shared = f"shared memory ({size(kernel.launch.get('shared_mem_per_block', 0))} a block)"
    names = {"registers": registers, "shared_mem": shared, "blocks": "the number of blocks", "warps": "the block size"}
    return names.get(kernel.limited_by or "", kernel.limited_by or "nothing")


def size(value: float) -> str:
    """Bytes as text."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


Row = tuple[str, str, str]


def rows(kernel: ProfiledKernel, copy_rate: float | None = None, least_bytes: float | None = None) -> list[Row]:
    """The six figures, and registers: a name, the figure, and its ceiling or what it is made of."""
    figures = kernel.figures
    reach = f"; a copy reaches {copy_rate / 1e12:.3g} TB/s" if copy_rate else ""
    rate = (
        f"{kernel.moved / kernel.seconds / 1e12:.3g} TB/s{reach}" if kernel.moved is not None and kernel.seconds else ""
    )
    if kernel.moved is not None:
        rate += f"; {size(kernel.moved)} moved"
        rate += f", {kernel.moved / least_bytes:.2f} times the least" if least_bytes else ""
    stalls = [f"{name} {share:.0%}" for name, share in list(kernel.stalls.items())[:4] if share >= 0.01]
    most = "of the warps there is room for"
    most += f"; the launch allows {kernel.most_occupancy:.0f}%" if kernel.most_occupancy else ""
    most += f", limited by {limit_name(kernel)}" if (kernel.most_occupancy or 100) < 100 else ""
    conflicts = kernel.conflict_share
    registers = kernel.launch.get("registers_per_thread")
    return [
        ("tensor cores", percent(figures.get("tensor")), "of peak" + (", wgmma" if figures.get("wgmma") else "")),
        ("device memory", percent(figures.get("memory")), f"of peak: {rate}"),
        ("L2 hits", percent(figures.get("l2_hits")), f"of its sectors; L2 at {percent(figures.get('l2'))} of peak"),
        ("warps wait", percent(100 - figures["issue"] if "issue" in figures else None), _sentence(stalls)),
        ("bank conflicts", percent(None if conflicts is None else 100 * conflicts), "of passes over shared memory"),
        ("occupancy", percent(figures.get("occupancy")), most),
        ("registers", "?" if registers is None else f"{registers:.0f}", _spills(kernel)),
    ]


def _sentence(stalls: Sequence[str]) -> str:
    return "of issue slots go unused; warps: " + ", ".join(stalls) if stalls else "of issue slots go unused"


def _spills(kernel: ProfiledKernel) -> str:
    return f"a thread; {size(kernel.spilled)} through local memory" if kernel.spilled else "a thread; no spills"


def percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}%"
