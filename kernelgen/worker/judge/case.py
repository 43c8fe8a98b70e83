"""One case of an op, timed by the judge.

Before each sample the judge gives every call of it inputs that nobody has seen. The op's process then runs for as long
as the clock does, and is stopped before its results are read: from its memory, at the addresses that it gave when the
clock stopped. Which samples are checked is decided by chance after they were timed.
"""

import os
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.protocol import OP
from kernelgen.worker import clock, reference_check
from kernelgen.worker.judge.arena import CpuArena, CudaArena, Place, aligned
from kernelgen.worker.judge.comparison import CheckResult, compare_with_reference
from kernelgen.worker.judge.drawing import Drawing, JudgedInputs, distinct
from kernelgen.worker.judge.op_process import CallError, OpProcess
from kernelgen.worker.judge.results import checked_layouts, opened, rebuilt

# A sample on the CPU takes about so long: some hundred times what its request and reply vary by.
SAMPLE_S = 1e-3
MOST_CALLS = MOST_SETS = 64
ROTATED_BYTES = 32 * 2**20
# Empty batches that are timed in each block, of a process without an op.
EMPTY_BATCHES = 15
# Work left on another stream shows as time that the GPU still needs after the current stream is through.
LEFT_S, LEFT_SHARE = 50e-6, 0.10
# How often the wall clock has to disagree with the events of a call.
WALL_TRIES = 3
# Calls of a sample that are compared with the reference.
COMPARED = 4
_CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class Sample:
    """The last sample: whose it is, its sets, its seconds a call, and the addresses of its results."""

    name: str
    indices: list[int]
    seconds: float
    addresses: list[int]


class JudgedCase:
    """A case of an op, and of its peers.

    Args:
        drawing: what draws its inputs.
        processes: by function, the process that runs it; further ones are added to `functions`.
        idle: a process without an op, which tells what a request and a reply take; None on CUDA.

    Of a drawing for the backward the gradient alone is timed; the forward runs before.
    """

    def __init__(
        self,
        drawing: Drawing,
        processes: Mapping[str, OpProcess],
        arena: CpuArena | CudaArena,
        idle: OpProcess | None,
    ) -> None:
        self._drawing, self._arena, self._idle = drawing, arena, idle
        self.op, self.sizes, self.dtype = drawing.op, drawing.sizes, drawing.dtype
        self.device, self.backward = drawing.device, drawing.backward
        self.functions = dict(processes)
        self._processes = list(dict.fromkeys(processes.values()))
        self.calls_a_sample, self.graphs = 1, False
        self._turn, self._empty_s = 0, 0.0
        self._layouts: dict[str, list[Any]] = {}
        self._last: Sample | None = None
        self._is_cuda = torch.device(self.device).type == "cuda"
        # The outputs take about as much memory again.
        fitting = ROTATED_BYTES // max(1, 2 * drawing.nbytes)
        self._set_count = 2 if self._is_cuda else max(2, min(MOST_SETS, fitting))
        self.sets: list[JudgedInputs] = []
        self._place([drawing.new_set()])

    @property
    def method(self) -> str:
        return ("cuda graphs" if self.graphs else "cuda events") if self._is_cuda else "cpu clock"

    # ---- Inputs -----------------------------------------------------------------------------------------------

    def _place(self, sets: Sequence[JudgedInputs]) -> None:
        """Puts sets into the arena, at addresses that differ from those of the sets before, and tells the processes."""
        offset, places = 0, []
        for inputs in sets:
            # Where tensors lie relative to each other makes a kernel faster or slower by several percent, for as long
            # as the process lives (Mytkowicz et al., 2009): so it changes with each block.
            offset += 64 * _CHANCE.randrange(1, 1024)
            of_set: dict[int, Place] = {}
            for tensor in (*distinct(inputs.args), *inputs.cotangents):
                offset = aligned(offset)
                place = of_set[id(tensor)] = _placed(tensor, offset)
                offset += place.nbytes + 64
            places.append(of_set)
        handle = self._arena.resize(offset)
        storage = self._arena.storage
        for inputs, of_set in zip(sets, places, strict=True):
            inputs.shared = [of_set[id(tensor)].tensor(storage) for tensor in distinct(inputs.args)]
            inputs.shared_cotangents = [of_set[id(tensor)].tensor(storage) for tensor in inputs.cotangents]
            self._drawing.hand_over(inputs)
        self.sets = list(sets)
        described = [
            pytree.tree_map_only(Tensor, lambda tensor, of_set=of_set: of_set[id(tensor)], inputs.args)
            for inputs, of_set in zip(sets, places, strict=True)
        ]
        cotangents = [[of_set[id(t)] for t in inputs.cotangents] for inputs, of_set in zip(sets, places, strict=True)]
        for process in self._processes:
            process.ask("inputs", arena=handle, sets=described, cotangents=cotangents)

    def join(self, process: OpProcess) -> None:
        """Lets another process see the inputs."""
        self._processes.append(process)
        self._place(self.sets)

    def fresh(self) -> None:
        """New inputs at new addresses; every function is called on each set once."""
        cores = os.sched_getaffinity(0)
        for process in (*self._processes, *([self._idle] if self._idle else [])):
            process.move(cores)
        self.sets = []
        self._place([self._drawing.new_set() for _ in range(self._set_count)])
        batch = 1 if self._is_cuda else len(self.sets)
        for name in self.functions:
            for first in range(0, len(self.sets), batch):
                self._run(name, list(range(first, first + batch)))
            self._learn_layout(name)
        if self._idle:
            self._empty_s = self._time_of_empty_batches()

    def _time_of_empty_batches(self) -> float:
        """What a request and a reply take. A process without an op says so, for an op could make them seem long."""
        self._idle.ask("arm", function="", indices=[], backward=False, graphs=False)
        return statistics.median(self._idle.go()[0] for _ in range(EMPTY_BATCHES))

    # ---- Samples ----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Frees its inputs, and lets the op return other layouts from now on; `fresh` has to follow."""
        self.sets, self._layouts, self._last = [], {}, None

    def _learn_layout(self, name: str) -> None:
        """The results of the first call say how those of later calls have to lie in memory."""
        if name not in self._layouts:
            self._layouts[name] = checked_layouts(self.functions[name].ask("layouts"))[0]

    def warm_up(self, name: str) -> float:
        """The fastest call's seconds, after warming up."""
        self._run(name, [0])
        self._learn_layout(name)
        self._empty_s = self._time_of_empty_batches() if self._idle else 0.0
        end, fastest, times = time.perf_counter() + 2 * clock.WARM_UP_S, float("inf"), 0
        while times < 3 or time.perf_counter() < end:
            fastest, times = min(fastest, self._run(name, [0]).seconds), times + 1
        return fastest

    def plan(self, seconds: float) -> None:
        """Chooses how samples are taken of calls that take about so long."""
        if self._is_cuda:
            short = seconds < clock.CudaClock.GRAPH_S and not self.backward
            self.graphs = short and all(
                process.ask("graphs", function=name, index=0)["captured"] for name, process in self.functions.items()
            )
        else:
            self.calls_a_sample = max(1, min(MOST_CALLS, self._set_count, round(SAMPLE_S / max(seconds, 1e-9))))

    def sample(self, name: str) -> float:
        """Seconds a call."""
        first, self._turn = self._turn, self._turn + self.calls_a_sample
        return self._run(name, [index % len(self.sets) for index in range(first, self._turn)]).seconds

    def _run(self, name: str, indices: list[int]) -> Sample:
        """One call on each of these sets, with new values."""
        process, chosen = self.functions[name], [self.sets[index] for index in indices]
        order = {"function": name, "indices": indices, "backward": self.backward, "graphs": self.graphs}
        if self.backward:
            for inputs in chosen:
                self._drawing.renew(inputs)
            process.ask("arm", **order)  # The forward runs here: it knows the inputs, and not yet the cotangents.
            for inputs in chosen:
                self._drawing.renew_cotangents(inputs)
        else:
            process.ask("arm", **order)
            for inputs in chosen:
                self._drawing.renew(inputs)
        if self._is_cuda:
            torch.cuda.synchronize()
        seconds, own, addresses = process.go()
        a_call = own if self._is_cuda else max(seconds - self._empty_s, 1e-9) / len(indices)
        self._last = Sample(name, indices, a_call, addresses)
        return self._last

    # ---- Checks -----------------------------------------------------------------------------------------------

    def check(self, *, coarsely: bool = False) -> CheckResult:
        """Whether the results of the last sample are the op's, all of them, computed when the clock stopped."""
        last = self._last
        try:
            results = self._read(last)
            for position in _CHANCE.sample(range(len(results)), min(COMPARED, len(results))):
                inputs = self.sets[last.indices[position]]
                self._drawing.recall(inputs)
                if inputs.were_changed():
                    return CheckResult("it wrote to its inputs, or to the memory around them")
                compared = compare_with_reference(self, inputs, results[position], coarsely=coarsely)
                if compared.fault:
                    return CheckResult(self._explained(compared.fault, last, results, position))
            return compared
        except CallError as error:
            return CheckResult(str(error))

    def _explained(self, fault: str, last: Sample, results: list[list[Tensor]], position: int) -> str:
        """The fault, and what further calls say of its cause."""
        self.functions[last.name].settle(min(0.05, 2e-3 + 2 * last.seconds))
        if not _same(self._read(last)[position], results[position]):
            return f"its results changed after it had returned: work was left on another stream or thread ({fault})"
        if _same(self._read(self._run(last.name, last.indices))[position], results[position]):
            return f"it returned what it had for earlier values at the same addresses ({fault})"
        return fault

    def check_afterwards(self, name: str = OP) -> str | None:
        """The checks that need calls of their own, for when all samples are taken."""
        if not self._is_cuda and self.calls_a_sample == 1:
            self._run(name, [0, 1])
            if fault := self.check().fault:
                return fault
        if self._is_cuda and (fault := self._disagrees_with_the_wall(name)):
            return fault
        return None

    def _read(self, sample: Sample) -> list[list[Tensor]]:
        """Copies of a sample's results, by call.

        Raises:
            CallError: they are not plain tensors in memory, or not as many or as large as those of earlier calls.
        """
        process, layout = self.functions[sample.name], self._layouts[sample.name]
        if len(sample.addresses) != len(layout) * len(sample.indices):
            raise CallError(f"it returned {len(sample.addresses)} tensors in {len(sample.indices)} calls")
        # Read first: what the process says of its results, it says after the clock stopped.
        copies = []
        if not self._is_cuda:
            of_calls = [layout] * len(sample.indices)
            addresses = iter(sample.addresses)
            copies = [[rebuilt(process, next(addresses), *facts) for facts in of_call] for of_call in of_calls]
        said = checked_layouts(process.ask("layouts"))
        if any(of_call != layout for of_call in said):
            raise CallError("the shapes, strides or dtypes of its results differ from call to call")
        if self._is_cuda:
            copies = opened(process.ask("share"), layout)
        return copies

    def _disagrees_with_the_wall(self, name: str) -> str | None:
        """A fault if a call takes longer by the judge's clock than by the GPU's events, which the op could reach."""
        process = self.functions[name]
        # Another program on this GPU prolongs the one and not the other; what an op hides, it hides each time.
        for _ in range(WALL_TRIES):
            own = statistics.median(self._run(name, [0]).seconds for _ in range(5))
            captured = not self.backward and process.ask("graphs", function=name, index=0)["captured"]
            process.ask("arm", function=name, indices=[0], backward=self.backward, graphs=captured)
            wall = self._wall_of_a_call(process, own)
            # A GPU that is kept busy may clock lower; and without a graph the CPU's launches may take longer than its
            # work.
            if wall <= (2 * own + 10e-6 if captured else 5 * own + 1e-3):
                break
        else:
            return f"a call takes {wall * 1e6:.1f} µs by the wall clock, and {own * 1e6:.1f} µs by its own events"
        process.ask("arm", function=name, indices=[0], backward=self.backward, graphs=False)
        if (left := process.ask("left")["seconds"]) > max(LEFT_S, LEFT_SHARE * own):
            return (
                f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"
            )
        return None

    @staticmethod
    def _wall_of_a_call(process: OpProcess, own: float) -> float:
        """Seconds of one of many calls, back to back: the slope between a batch and one of twice as many."""
        times = max(10, min(10_000, round(0.02 / max(own, 1e-7))))
        walls: dict[int, list[float]] = {times: [], 2 * times: []}
        for _ in range(3):
            for count, seconds in walls.items():
                begin = time.perf_counter()
                process.ask("repeat", times=count)
                seconds.append(time.perf_counter() - begin)
        return (min(walls[2 * times]) - min(walls[times])) / times


def _placed(tensor: Tensor, offset: int) -> Place:
    """A place for a tensor: in its own strides or, where its elements share memory, contiguous."""
    overlaps = any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    stride = torch.empty(tensor.shape, device="meta").stride() if overlaps else tensor.stride()
    return Place(offset, tensor.dtype, tuple(tensor.shape), tuple(stride), tensor.requires_grad)


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(reference_check.same_bits(a, b) for a, b in zip(first, second, strict=True))
