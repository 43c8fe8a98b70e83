"""One case of an op, timed beside other functions in this very process, by whoever trusts them all.

`kernelgen bench` judges an op that it does not trust, in a process of its own. These benchmarks switch paths of an op
and take peers that no lab.py has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import clock, evaluation
from kernelgen.worker.inputs import Make
from kernelgen.worker.op import Op


@dataclass
class Inputs:
    """The arguments of a call, and for the backward a gradient for each output."""

    args: tuple[Any, ...]
    make: Make
    cotangents: list[Tensor] = field(default_factory=list)


class TimedCase:
    """A case with two sets of inputs, which take turns. All `functions`, which are timed, take the op's arguments.

    Args:
        backward: time the gradient of the outputs alone; the forward runs before, untimed.
        step: time the forward with what it stores for the gradient, and the gradient.
        own_clock: what to time with (default: the clock of the device).
    """

    def __init__(
        self,
        op: Op,
        sizes: Mapping[str, int],
        dtype: torch.dtype,
        device: str,
        *,
        backward: bool = False,
        step: bool = False,
        own_clock: clock.CpuClock | None = None,
    ) -> None:
        self.op, self.sizes, self.dtype, self.device = op, dict(sizes), dtype, device
        self.backward, self.step = backward, step
        self.functions: dict[str, Callable[..., Any]] = {}
        self._clock = own_clock or clock.clock_for(device)
        self._sets, self._turn = [self._draw(seed) for seed in (1, 2)], 0

    def sample(self, name: str) -> float:
        """Seconds of a call."""
        self._turn += 1
        return self._clock.sample([self._call(name, self._sets[self._turn % len(self._sets)])])[0]

    def _draw(self, seed: int) -> Inputs:
        make = Make(self.device, self.dtype, seed=seed, requires_grad=self.backward or self.step)
        return Inputs(self.op.inputs(make, **self.sizes), make)

    def _call(self, name: str, inputs: Inputs) -> clock.Call:
        function = self.functions[name]
        if not self.backward and not self.step:
            return lambda: function(*inputs.args)
        leaves = [tensor for tensor in evaluation.tensors(inputs.args) if tensor.requires_grad]

        def forward() -> list[Tensor]:
            return [out for out in evaluation.tensors(function(*inputs.args)) if out.requires_grad]

        def gradient(outputs: list[Tensor]) -> Any:
            cotangents = inputs.cotangents[: len(outputs)]
            return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, retain_graph=not self.step)

        outputs = forward()
        inputs.cotangents = inputs.cotangents or [inputs.make.cotangent(out) for out in outputs]
        return (lambda: gradient(forward())) if self.step else (lambda: gradient(outputs))
