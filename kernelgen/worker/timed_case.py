"""One case of an op, ready to be timed: its inputs, and calls on them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import clock, reference_check
from kernelgen.worker.inputs import Make
from kernelgen.worker.op import Op

Function = Callable[..., Any]

# Apart, so that no draw of one set is a draw of another's.
_SEEDS_A_BLOCK = 1000


@dataclass
class Inputs:
    """One set: the arguments of a call, and for the backward a gradient for each output."""

    args: tuple[Any, ...]
    make: Make
    cotangents: list[Tensor] = field(default_factory=list)

    def replace(self, other: "Inputs") -> None:
        """Take over other values where the tensors lie, so that even their version counters stay as they are."""
        for mine, new in zip(reference_check.tensors(self.args), reference_check.tensors(other.args), strict=True):
            mine.data.copy_(new)


class Subject:
    """A case: draws inputs for it, and times what computes it.

    Args:
        functions: what to time, by name; all take the op's arguments.
        backward: time the gradient of the outputs alone; the forward runs before, untimed.
    """

    def __init__(
        self,
        op: Op,
        sizes: Mapping[str, int],
        dtype: torch.dtype,
        device: str,
        functions: Mapping[str, Function],
        *,
        backward: bool = False,
        seed: int = 0,
    ) -> None:
        self.op, self.sizes, self.dtype, self.device = op, dict(sizes), dtype, device
        self.functions, self.backward, self.seed = dict(functions), backward, seed
        self.clock = clock.clock_for(device)
        self.calls_a_sample, self.graphs = 1, False
        self.sets: list[Inputs] = []
        self._turn, self._drawn = 0, 0
        self._padding: list[Tensor] = []
        self._layout = random.Random()  # Of each process its own: two that are compared are not to move in step.
        self._replays: dict[tuple[str, int], clock.Call] = {}
        first = self.draw()
        held = sum(storage.numel() * storage.element_size() for storage in first.make.storages)
        self._set_count = self.clock.sets(2 * held)  # The outputs take about as much again.
        self.sets = [first]

    @property
    def method(self) -> str:
        return "cuda graphs" if self.graphs else self.clock.method

    def draw(self) -> Inputs:
        """A new set of random inputs; each is another, and the same seed gives the same ones in the same order."""
        seed = self.seed * _SEEDS_A_BLOCK + self._drawn
        self._drawn += 1
        make = Make(self.device, self.dtype, seed=seed, requires_grad=self.backward)
        return Inputs(self.op.inputs(make, **self.sizes), make)

    def fresh(self) -> None:
        """New inputs at new addresses, each touched by every function once."""
        self._replays, self.sets, self._padding = {}, [], []
        self.clock.forget()
        for _ in range(self._set_count):
            # Where tensors lie relative to each other costs a kernel several percent, one way or the other, and stays
            # for the life of a process (Mytkowicz et al., 2009): so it has to change with each block.
            self._padding.append(torch.empty(64 * self._layout.randrange(1, 1024), dtype=torch.uint8))
            self.sets.append(self.draw())
        for name in self.functions:
            for index in range(len(self.sets)):
                if self.graphs:
                    self._replays[name, index] = clock.captured(self.call(name, index)) or self.call(name, index)
                self.run(name, [index])

    def warm_up(self, name: str) -> float:
        """The fastest call's seconds, after warming up."""
        return clock.warm_up(self.clock, self.call(name, 0))

    def plan(self, seconds: float) -> None:
        """Fit the samples to calls of about this length."""
        self.calls_a_sample = self.clock.plan(seconds, self._set_count)
        short = isinstance(self.clock, clock.CudaClock) and seconds < self.clock.GRAPH_S
        self.graphs = short and not self.backward and all(clock.captured(self.call(n, 0)) for n in self.functions)

    def take(self) -> list[int]:
        """The sets that the next sample works on: those that were used the longest time ago."""
        first, self._turn = self._turn, self._turn + self.calls_a_sample
        return [index % len(self.sets) for index in range(first, self._turn)]

    def run(self, name: str, indices: list[int]) -> clock.Sample:
        """Seconds a call, and the results, for one call on each of these sets."""
        return self.clock.sample([self._replays.get((name, i)) or self.call(name, i) for i in indices])

    def sample(self, name: str) -> float:
        return self.run(name, self.take())[0]

    def call(self, name: str, index: int) -> clock.Call:
        """A call of one function on one of the sets; of the backward where that is what is timed."""
        function, inputs = self.functions[name], self.sets[index]
        if not self.backward:
            return lambda: function(*inputs.args)
        outputs = [out for out in reference_check.tensors(function(*inputs.args)) if out.requires_grad]
        inputs.cotangents = inputs.cotangents or [inputs.make.cotangent(out) for out in outputs]
        leaves = [tensor for tensor in reference_check.tensors(inputs.args) if tensor.requires_grad]
        given = inputs.cotangents[: len(outputs)]
        # Retained only so that warming up may go over one graph again and again.
        return lambda: torch.autograd.grad(outputs, leaves, given, allow_unused=True, retain_graph=True)
