"""What the verdicts of a comparison rest on: the software, and how the versions were measured, in sentences."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.lab import results
from kernelgen.lab.pair import PairedResult, Schedule
from kernelgen.lab.steady import STEADY

# Variables that say where something is, which GPU is used, or what is built and told.
_OF_NO_SPEED = re.compile(
    r"CUDA_(HOME|PATH|VERSION|VISIBLE_DEVICES|CACHE_PATH)|(TORCH|TRITON)\w*_(HOME|DIR|LIST|LEVEL)"
)


def software(environment: Mapping[str, Any]) -> str:
    """The machine and the software of a comparison, in a sentence."""
    gpu = environment.get("gpu") or {}
    facts = {"driver": gpu.get("driver"), "CUDA": environment.get("cuda") if gpu else None}
    facts |= {"torch": environment.get("torch"), "Python": environment.get("python")}
    known = [f"{name} {value}" for name, value in facts.items() if value]
    return f"{', '.join([results.machine(environment), *known])}."


def set_variables(environment: Mapping[str, Any]) -> list[str]:
    """A sentence if somebody has set variables that make libraries faster or slower, an op's or its peers'."""
    variables = environment.get("variables", {})
    others = [
        f"{name}={value}"
        for name, value in variables.items()
        if STEADY.get(name, "").lower() != value.lower() and not _OF_NO_SPEED.fullmatch(name)
    ]
    return [f"These variables are set, and change what is measured: {', '.join(others)}."] if others else []


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
