"""Holds the times of a GPU's events, which the op could reach, against the judge's own clock."""

import statistics
from typing import Any

import torch

# How often the clock has to disagree; and over how many calls it is read, each on inputs of its own, as far as they fit
# so much memory.
TRIES, CALLS, BYTES = 3, 64, 16 * 2**30
# What a request and a reply take, in seconds; and a launch of a graph on a busy CPU, or of kernels from Python.
BATCH_S, GRAPH_S, LAUNCHES_S = 3e-4, 30e-6, 1e-3
# A GPU that is kept busy may clock lower; without a graph the CPU's launches may take longer than its work.
OF_GRAPHS, OF_LAUNCHES = 1.7, 5.0
# Work left on another stream shows as time that the GPU still needs after the current stream is through.
LEFT_S, LEFT_SHARE = 50e-6, 0.10


def fault_by_the_wall(timed: Any, name: str) -> str | None:
    """A fault if calls of a function of a `JudgedCase` take longer by the judge's clock than by the GPU's events.

    Another program on this GPU prolongs the one and not the other; what an op hides, it hides each time.
    """
    process = timed.functions[name]
    own = statistics.median(timed.run(name, [0]).seconds for _ in range(5))
    graphs = timed.graphs
    timed.graphs = not timed.backward and process.ask("graphs", function=name, index=0)["captured"]
    sets = calls_of_the_wall(timed)
    timed.place([timed.drawing.new_set() for _ in range(sets)])
    share, launch = (OF_GRAPHS, GRAPH_S) if timed.graphs else (OF_LAUNCHES, LAUNCHES_S)
    for _ in range(TRIES):
        wall = min(timed.run(name, list(range(sets))).seconds for _ in range(3))
        if wall <= share * own + launch + BATCH_S / sets:
            break
    else:
        return f"a call takes {wall * 1e6:.1f} µs by the wall clock, and {own * 1e6:.1f} µs by its own events"
    if fault := timed.check().fault:  # Or the calls that the wall clock saw had done nothing.
        return fault
    timed.graphs = graphs
    process.ask("arm", function=name, indices=[0], backward=timed.backward, graphs=False)
    if (left := process.ask("left")["seconds"]) > max(LEFT_S, LEFT_SHARE * own):
        return f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"
    return None


def calls_of_the_wall(timed: Any) -> int:
    """How many calls fit the memory: the judge has their inputs, the op copies of them and the results."""
    memory = min(BYTES, torch.cuda.mem_get_info()[0] // 4)
    return max(2, min(CALLS, memory // max(1, 3 * timed.drawing.nbytes)))
