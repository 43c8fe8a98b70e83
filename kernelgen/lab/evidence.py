"""What the verdicts of a comparison rest on: the software, and how the versions were measured, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.lab import results
from kernelgen.lab.pair import PairedResult, Schedule


def software(environment: Mapping[str, Any]) -> str:
    """The machine and the software of a comparison, in a sentence."""
    gpu = environment.get("gpu") or {}
    facts = {"driver": gpu.get("driver"), "CUDA": environment.get("cuda") if gpu else None}
    facts |= {"torch": environment.get("torch"), "Python": environment.get("python")}
    known = [f"{name} {value}" for name, value in facts.items() if value]
    return f"{', '.join([results.machine(environment), *known])}."


def interleaved(measured: Sequence[PairedResult], schedule: Schedule, pairs: int) -> list[str]:
    """How two revisions took turns, and what the GPU's clocks were meanwhile, in sentences."""
    ends = [end(result.blocks for result in measured) for end in (min, max)]
    blocks, samples = (
        " to ".join(f"{count * factor}" for count in dict.fromkeys(ends))
        for factor in (1, schedule.rounds * schedule.samples)
    )
    who = "a pair" if pairs == 1 else f"{pairs} pairs"
    sentences = [
        f"Interleaved: {blocks} blocks with fresh inputs, {schedule.rounds} rounds each, {samples} samples of "
        f"each side in all, by {who} of processes; intervals of the ratio at 99%."
    ]
    states = [end.get("state", {}) for result in measured for end in result.about.values()]
    clocks = [state["sm_mhz"] for state in states if "sm_mhz" in state]
    if clocks:
        low, high = min(clock["min"] for clock in clocks), max(clock["max"] for clock in clocks)
        throttled = sorted({reason for state in states for reason in state.get("throttled_by", [])})
        sentences.append(
            f"Clocks as they were, {low} to {high} MHz; throttled by: {', '.join(throttled) or 'nothing'}."
        )
    return sentences
