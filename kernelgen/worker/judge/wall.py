"""Holds the times of a GPU's events, which the op could reach, against the judge's own clock.

By that clock calls are timed together, each on inputs of its own: in a CUDA graph, if they can be captured, so that no
launch comes between them. A batch of a few milliseconds has to confirm what the events say. If it does not, a longer
one has to agree by far, beside which it is short how long a process waits for a core: then there is a doubt, and else
a fault.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgen.worker.clock import CudaClock, captured
from kernelgen.worker.judge.comparison import CheckResult

# How often the clock has to disagree, and how long after each other: a machine may be slow for some milliseconds, and
# one whose cores are all taken, or are a share of another's, may stop a process for tens of them again and again.
TRIES, APART_S = 3, 0.05
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
# Readings of a call's own time: as many as fit READ_S, between these bounds.
LEAST_READINGS, MOST_READINGS, READ_S = 5, 20, 0.05
# The calls of a batch are so many that they take BATCHED_S together; so short, it ends before the GPU clocks lower.
BATCHED_S, MOST_CALLS = 4e-3, 512
# A batch confirms a time by events that a call exceeds by less, beside what an empty kernel takes. Behind each other,
# calls wait for the memory that others wrote to last, and for new pages: norms of 64 to 512 MB take up to 1.36 times as
# long on an H100, and products and attention 1.0 to 1.2 times.
CONFIRMED, SLACK_S = 1.45, 5e-7
# Without a graph, so many calls at most, each of which may be enqueued for so long.
LAUNCHED, LAUNCH_S = 16, 2e-5
# The calls of a longer batch, and the memory that the tensors of one may take.
LONGER, LONGER_LEAST_CALLS, BYTES = 8, 64, 16 * 2**30
# What a request and a reply take at most, in seconds.
REQUEST_S = 3e-4
# Of a longer batch, what is far from a call's own time: short calls do not lower the clock, and without a graph the
# launches may take longer than the GPU's work. A node of a graph takes NODE_S.
SHORT_S, OF_SHORT, OF_GRAPHS, NODE_S = 50e-6, 1.3, 1.7, 1e-6
OF_LAUNCHES, LAUNCHES_S = 5.0, 1e-3
# Work left on another stream shows as time that the GPU still needs after the current stream is through.
LEFT_S, LEFT_SHARE = 50e-6, 0.10


def checked_by_the_wall(timed: Any, name: str) -> CheckResult:
    """A fault if calls of a function of a `JudgedCase` take far longer by the judge's clock than by the GPU's events,
    or did nothing then. What an op hides, it hides each time; but another program prolongs the one and not the other,
    too: where there is one, nobody can say, and no gain is believed. Nor is it where the judge's clock does not confirm
    the events."""
    own = _own_seconds(timed, name)
    short = _unconfirmed(timed, name, own)
    # Few calls are looked at as if a request took no time: longer batches decide, beside which that is little.
    is_far = short is not None and short.is_far_from(own, request_s=0.0)
    fault = _fault_of_longer_batches(timed, name, own) if is_far else None
    checked = timed.check()
    if checked.fault:
        return checked
    fault = fault or _fault_by_what_is_left(timed, name, own)
    if fault and (others := timed.bystanders.sentence()):
        return CheckResult(doubt=f"not judged by the wall clock, since {others}: {fault}")
    if fault or not short:
        return CheckResult(fault, checked.remark, checked.doubt)
    doubt = f"the wall clock does not confirm its time: {short.beside(own)}"
    return CheckResult(remark=checked.remark, doubt=checked.doubt or doubt)


def empty_kernel(clock: CudaClock) -> tuple[float, float]:
    """Seconds of a kernel that does next to nothing, captured in a CUDA graph: by events, and as one of many."""
    cell = torch.zeros(1, device="cuda")
    alone, many = captured(cell.zero_), captured(lambda: [cell.zero_() for _ in range(MOST_CALLS)])
    own = _lower_quartile([clock.sample([alone])[0] for _ in range(MOST_READINGS)])
    walls = []
    for _ in range(MOST_READINGS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        many()
        torch.cuda.synchronize()
        walls.append((time.perf_counter() - start) / MOST_CALLS)
    return own, min(walls)


def calls_of_a_batch(timed: Any, own: float) -> int:
    """How many calls fit the time and the memory: the judge has their inputs, the op copies of them and the results."""
    wanted = min(round(BATCHED_S / max(own, 1e-9)), MOST_CALLS)
    return max(2, min(wanted, _calls_in_memory(timed)))


def calls_of_a_longer_batch(timed: Any, own: float) -> int:
    wanted = min(max(LONGER_LEAST_CALLS, round(BATCHED_S / max(own, 1e-9))), MOST_CALLS)
    return max(2, min(LONGER * wanted, _calls_in_memory(timed)))


def _calls_in_memory(timed: Any) -> int:
    return min(BYTES, torch.cuda.mem_get_info()[0] // 4) // max(1, 3 * timed.drawing.nbytes)


def _own_seconds(timed: Any, name: str) -> float:
    """Seconds of a call by the GPU's events: the lower quartile of some readings, or what its samples say if that is
    less. Where the process waits for a core, launches come late and prolong a reading."""
    readings, start = [], time.perf_counter()
    while len(readings) < LEAST_READINGS or (len(readings) < MOST_READINGS and time.perf_counter() - start < READ_S):
        readings.append(timed.run(name, [0]).seconds)
    return min([_lower_quartile(readings), *map(statistics.median, filter(None, [timed.seconds.get(name)]))])


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]


@dataclass(frozen=True)
class _Batch:
    """Seconds a call by the wall clock, of so many calls, in one CUDA graph or not."""

    seconds: float
    calls: int
    joined: bool

    def is_within(self, allowed: float, request_s: float = REQUEST_S) -> bool:
        return self.seconds <= allowed + request_s / self.calls

    def is_far_from(self, own: float, request_s: float = REQUEST_S) -> bool:
        in_a_graph = (OF_SHORT if own < SHORT_S else OF_GRAPHS) * own + NODE_S
        return not self.is_within(in_a_graph if self.joined else OF_LAUNCHES * own + LAUNCHES_S, request_s)

    def beside(self, own: float) -> str:
        return f"a call takes {self.seconds * 1e6:.1f} µs by the wall clock, and {own * 1e6:.1f} µs by its own events"


def _unconfirmed(timed: Any, name: str, own: float) -> _Batch | None:
    """A batch that does not confirm that calls take so long by their own events, as none did."""
    if _placed(timed, name, calls_of_a_batch(timed, own)):
        own_of_empty, node_of_empty = timed.empty_kernel
        allowed = node_of_empty + CONFIRMED * max(own - own_of_empty, 0.0) + SLACK_S
        return _each_batch(timed, name, True, lambda batch: not batch.is_within(allowed))
    joined = _placed(timed, name, min(LAUNCHED, calls_of_a_batch(timed, own)))
    return _each_batch(timed, name, joined, lambda batch: not batch.is_within(CONFIRMED * own + LAUNCH_S))


def _fault_of_longer_batches(timed: Any, name: str, own: float) -> str | None:
    joined = _placed(timed, name, calls_of_a_longer_batch(timed, own))
    batch = _each_batch(timed, name, joined, lambda batch: batch.is_far_from(own))
    return batch and batch.beside(own)


def _placed(timed: Any, name: str, calls: int) -> bool:
    """Places inputs of so many calls; whether the calls can be joined in a graph."""
    timed.place([timed.drawing.new_set() for _ in range(calls)])
    return timed.join_calls(name)


def _each_batch(timed: Any, name: str, joined: bool, is_slow: Callable[[_Batch], bool]) -> _Batch | None:
    """The last batch of all sets, if each is slow."""
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        seconds = min(_seconds(timed, name, joined) for _ in range(3))
        if not is_slow(batch := _Batch(seconds, len(timed.sets), joined)):
            return None
    return batch


def _seconds(timed: Any, name: str, joined: bool) -> float:
    sample = timed.run_joined(name) if joined else timed.run(name, list(range(len(timed.sets))))
    return sample.seconds


def _fault_by_what_is_left(timed: Any, name: str, own: float) -> str | None:
    process = timed.functions[name]
    process.ask("arm", function=name, indices=[0], backward=timed.backward, graphs=False)
    for _ in range(TRIES):
        if (left := process.ask("left")["seconds"]) <= max(LEFT_S, LEFT_SHARE * own):
            return None
        time.sleep(APART_S)
    return f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"
