"""Times calls: with CUDA events, or with the CPU's clock.

A clock's `sample(calls)` runs each of the calls once and returns (seconds a call, their results). The calls of one
sample work on inputs of their own, so that none finds another's in a cache.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Call = Callable[[], Any]
Sample = tuple[float, list[Any]]

WARM_UP_S = 0.2


class CpuClock:
    """Several calls a sample where one is too short for the clock; the inputs rotate through more than a cache."""

    # The length of a sample: some thousand ticks of the clock, and few interruptions.
    SAMPLE_S = 5e-4
    MOST_CALLS = 16

    def plan(self, seconds: float, sets: int) -> int:
        """How many calls a sample takes, each on a set of its own."""
        return max(1, min(self.MOST_CALLS, sets, round(self.SAMPLE_S / max(seconds, 1e-9))))

    def sample(self, calls: Sequence[Call]) -> Sample:
        start = time.perf_counter_ns()
        results = [call() for call in calls]
        return (time.perf_counter_ns() - start) / 1e9 / len(calls), results


class CudaClock:
    """One call a sample, between two events, with a cold L2.

    A spin and what flushes L2 are enqueued before the first event, and keep the GPU busy while the CPU enqueues the
    call, so that launch costs are not in its time. The spin lasts for twice as long as the CPU took for the last call:
    a gradient takes it about half a millisecond, and more where compilers keep it busy. A call that the GPU came
    to before all of it was enqueued is timed again after a longer one. Calls shorter than `GRAPH_S` are captured into
    CUDA graphs, so that no launch comes between their kernels.
    """

    GRAPH_S = 50e-6
    # A call that waits for the GPU takes the CPU as long as the spin and more: without a limit its spins would grow.
    LEAST_SPIN_S, MOST_SPIN_S = 2e-4, 5e-3
    CYCLES_A_SECOND = 2e9  # About; at lower clocks a spin lasts longer.

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._flush = torch.empty(max(2 * properties.L2_cache_size, 64 * 2**20), dtype=torch.uint8, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._spin_s = self.LEAST_SPIN_S

    def plan(self, seconds: float, sets: int) -> int:
        return 1

    @staticmethod
    def synchronize() -> None:
        """Waits for all that the GPU was given."""
        torch.cuda.synchronize()

    def flush(self) -> None:
        """Has the GPU write to so much memory that L2 holds nothing else."""
        self._flush.fill_(1)

    def sample(self, calls: Sequence[Call]) -> Sample:
        (call,) = calls
        while True:
            torch.cuda._sleep(round(self._spin_s * self.CYCLES_A_SECOND))
            self.flush()
            self._start.record()
            begin = time.perf_counter()
            result = call()
            self._end.record()
            taken = time.perf_counter() - begin
            waited = self._start.query()  # If the GPU was there first, its wait for the CPU may be in the time.
            self._end.synchronize()
            last, self._spin_s = self._spin_s, min(max(2 * taken, self.LEAST_SPIN_S), self.MOST_SPIN_S)
            if not waited or last == self.MOST_SPIN_S:
                return self._start.elapsed_time(self._end) / 1e3, [result]
            self._spin_s = min(max(self._spin_s, 2 * last), self.MOST_SPIN_S)


def clock_for(device: str) -> CpuClock | CudaClock:
    return CudaClock() if torch.device(device).type == "cuda" else CpuClock()


def captured(call: Call, stream: torch.cuda.Stream | None = None) -> Call | None:
    """The call as a replay of a CUDA graph, which returns the same tensors each time; None if it cannot be captured, on
    this stream or a new one."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            result = call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def warm_up(clock: CpuClock | CudaClock, call: Call, seconds: float = WARM_UP_S) -> float:
    """Calls again and again for so long, at least three times; returns the fastest call's seconds."""
    end, fastest, times = time.perf_counter() + seconds, float("inf"), 0
    while times < 3 or time.perf_counter() < end:
        fastest, times = min(fastest, clock.sample([call])[0]), times + 1
    return fastest
