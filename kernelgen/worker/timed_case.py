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

# Seeds of the inputs that one seed of a run has for itself: no set of one run is a set of another's.
_SEEDS_A_RUN = 1000


@dataclass
class Inputs:
    """The arguments of a call, and for the backward a gradient for each output."""

    args: tuple[Any, ...]
    make: Make
    cotangents: list[Tensor] = field(default_factory=list)

    def replace(self, other: "Inputs") -> None:
        """Put other inputs' values where these tensors lie, without a change of their version counters."""
        for tensor, new in zip(reference_check.tensors(self.args), reference_check.tensors(other.args), strict=True):
            tensor.data.copy_(new)


class TimedCase:
    """A case: draws inputs for it, and times functions on them.

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
        functions: Mapping[str, Callable[..., Any]],
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
        self._layout = random.Random()  # Unseeded: two processes that are compared must not move in step.
        self._replays: dict[tuple[str, int], clock.Call] = {}
        first = self.draw()
        held = sum(storage.numel() * storage.element_size() for storage in first.make.storages)
        self._set_count = self.clock.sets(2 * held)  # The outputs take about as much again.
        self.sets = [first]

    @property
    def method(self) -> str:
        return "cuda graphs" if self.graphs else self.clock.method

    def draw(self) -> Inputs:
        """A new set of random inputs. The same seed gives the same sets in the same order."""
        seed = self.seed * _SEEDS_A_RUN + self._drawn
        self._drawn += 1
        make = Make(self.device, self.dtype, seed=seed, requires_grad=self.backward)
        return Inputs(self.op.inputs(make, **self.sizes), make)

    def forget_inputs(self) -> None:
        """Free their memory."""
        self._replays, self.sets, self._padding = {}, [], []

    def fresh(self) -> None:
        """New inputs at new addresses; every function is called on each set once."""
        self.forget_inputs()
        self.clock.forget()
        for _ in range(self._set_count):
            # Where tensors lie relative to each other makes a kernel faster or slower by several percent, for as long
            # as the process lives (Mytkowicz et al., 2009): so it changes with each block.
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
        """Choose how samples are taken of calls that take about so long."""
        self.calls_a_sample = self.clock.plan(seconds, self._set_count)
        short = isinstance(self.clock, clock.CudaClock) and seconds < self.clock.GRAPH_S
        self.graphs = short and not self.backward and all(clock.captured(self.call(n, 0)) for n in self.functions)

    def take(self) -> list[int]:
        """The indices of the sets for the next sample: those that were used the longest time ago."""
        first, self._turn = self._turn, self._turn + self.calls_a_sample
        return [index % len(self.sets) for index in range(first, self._turn)]

    def run(self, name: str, indices: list[int]) -> clock.Sample:
        """One call on each of these sets: seconds a call, and the results."""
        return self.clock.sample([self._replays.get((name, i)) or self.call(name, i) for i in indices])

    def sample(self, name: str) -> float:
        return self.run(name, self.take())[0]

    def call(self, name: str, index: int) -> clock.Call:
        """A call of a function on a set; for the backward, of its gradient."""
        function, inputs = self.functions[name], self.sets[index]
        if not self.backward:
            return lambda: function(*inputs.args)
        outputs = [out for out in reference_check.tensors(function(*inputs.args)) if out.requires_grad]
        inputs.cotangents = inputs.cotangents or [inputs.make.cotangent(out) for out in outputs]
        leaves = [tensor for tensor in reference_check.tensors(inputs.args) if tensor.requires_grad]
        cotangents = inputs.cotangents[: len(outputs)]
        # Retained, since warming up goes through one graph again and again.
        return lambda: torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, retain_graph=True)
