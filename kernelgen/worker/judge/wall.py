"""Holds the times of a GPU's events, which the op could reach, against the judge's own clock."""

import time
from typing import Any

import torch

from kernelgen.worker.judge.comparison import CheckResult

# How often the clock has to disagree, and how long after each other: a machine may be slow for some milliseconds, and
# one whose cores are all taken, or are a share of another's, may stop a process for tens of them again and again.
TRIES, APART_S = 3, 0.05
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
# Readings of a call's own time: as many as fit READ_S, between these bounds.
LEAST_READINGS, MOST_READINGS, READ_S = 5, 20, 0.05
# Over how many calls it is read, each on inputs of its own: so many that they take BATCHED_S, between these bounds. A
# process may wait for a core for milliseconds, so a fault is one that LONGER as many calls show too: beside them such a
# wait is short.
LEAST_CALLS, MOST_CALLS, BATCHED_S, LONGER = 64, 512, 2e-3, 8
# The memory that the calls' tensors may take.
BYTES = 16 * 2**30
# What a request and a reply take, in seconds; and what comes between two calls of a graph, or between launches of
# kernels from Python.
BATCH_S, NODE_S, LAUNCHES_S = 3e-4, 1e-6, 1e-3
# A GPU that is kept busy may clock lower, though not by short calls, of which there is soon an end; without a graph the
# CPU's launches may take longer than its work.
SHORT_S, OF_SHORT, OF_GRAPHS, OF_LAUNCHES = 50e-6, 1.3, 1.7, 5.0
# Work left on another stream shows as time that the GPU still needs after the current stream is through.
LEFT_S, LEFT_SHARE = 50e-6, 0.10


def checked_by_the_wall(timed: Any, name: str) -> CheckResult:
    """A fault if calls of a function of a `JudgedCase` take longer by the judge's clock than by the GPU's events, or
    did nothing then. What an op hides, it hides each time; but another program prolongs the one and not the other, too:
    where there is one, nobody can say, and no gain is believed."""
    own = _own_seconds(timed, name)
    fault, checked = _fault_by_the_wall(timed, name, own), timed.check()
    if checked.fault:
        return checked
    fault = fault or _fault_by_what_is_left(timed, name, own)
    if fault and (others := timed.bystanders.sentence()):
        return CheckResult(doubt=f"not judged by the wall clock, since {others}: {fault}")
    return CheckResult(fault, checked.remark, checked.doubt)


def _fault_by_the_wall(timed: Any, name: str, own: float) -> str | None:
    # Few calls are looked at as if a request took no time; what takes longer is judged by many, beside which that is
    # little.
    for longer, request_s in ((1, 0.0), (LONGER, BATCH_S)):
        fault = _fault_of_a_batch(timed, name, own, calls_of_the_wall(timed, own, longer), request_s)
        if not fault:
            break
    return fault


def _fault_by_what_is_left(timed: Any, name: str, own: float) -> str | None:
    process = timed.functions[name]
    process.ask("arm", function=name, indices=[0], backward=timed.backward, graphs=False)
    for _ in range(TRIES):
        if (left := process.ask("left")["seconds"]) <= max(LEFT_S, LEFT_SHARE * own):
            return None
        time.sleep(APART_S)
    return f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"


def _own_seconds(timed: Any, name: str) -> float:
    """Seconds of a call by the GPU's events: the lower quartile of some readings. Where the process waits for a core,
    launches come late and prolong a reading."""
    readings, start = [], time.perf_counter()
    while len(readings) < LEAST_READINGS or (len(readings) < MOST_READINGS and time.perf_counter() - start < READ_S):
        readings.append(timed.run(name, [0]).seconds)
    return sorted(readings)[len(readings) // 4]


def _fault_of_a_batch(timed: Any, name: str, own: float, sets: int, request_s: float) -> str | None:
    timed.place([timed.drawing.new_set() for _ in range(sets)])
    ask = timed.functions[name].ask
    joined = not timed.backward and ask("join_calls", function=name, count=sets)["captured"]
    if joined:
        allowed = (OF_SHORT if own < SHORT_S else OF_GRAPHS) * own + NODE_S + request_s / sets
    else:
        allowed = OF_LAUNCHES * own + LAUNCHES_S + request_s / sets
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        wall = min(_seconds(timed, name, joined) for _ in range(3))
        if wall <= allowed:
            return None
    return f"a call takes {wall * 1e6:.1f} µs by the wall clock, and {own * 1e6:.1f} µs by its own events"


def _seconds(timed: Any, name: str, joined: bool) -> float:
    """Seconds a call by the wall clock, of a batch of all sets."""
    sample = timed.run_joined(name) if joined else timed.run(name, list(range(len(timed.sets))))
    return sample.seconds


def calls_of_the_wall(timed: Any, own: float, longer: int = 1) -> int:
    """How many calls fit the time, `longer` times as much, and the memory: the judge has their inputs, the op copies of
    them and the results."""
    memory = min(BYTES, torch.cuda.mem_get_info()[0] // 4)
    wanted = min(max(LEAST_CALLS, round(BATCHED_S / max(own, 1e-9))), MOST_CALLS)
    if timed.backward:  # No graph holds these; each keeps what its forward saved.
        wanted = LEAST_CALLS
    return max(2, min(longer * wanted, memory // max(1, 3 * timed.drawing.nbytes)))
