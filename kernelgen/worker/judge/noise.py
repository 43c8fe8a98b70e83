"""Random values that nobody can foresee, drawn about as fast as memory is written.

Of a long tape of normal numbers, two stretches that start anywhere are turned into each other: cos t · a + sin t · b is
as normal as a and b are. Where the stretches start, and t, come from the system's entropy for every tensor and every
time: a result that is kept for earlier values is of no use for these.

Of many normal numbers the mean is about 0 and the variance about 1, so an op that does not compute them is right in 16
bits. Therefore each run of some hundred to some thousand numbers has a mean and a scale of its own.
"""

import math
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

# Beyond the longest tensor: as many places where a stretch may start.
_SLACK = 2**16
# The numbers of a run; a short tensor has shorter runs.
_RUN, _RUNS = (512, 4096), 8
# Numbers that are drawn at a time on the CPU, whose caches hold them from one step to the next.
_PART = 2**18


def generator(device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(secrets.randbits(63))


@dataclass(frozen=True)
class Mixture:
    """Where the two stretches start, t, and the numbers of a run."""

    starts: tuple[int, int]
    turn: float
    run: int


class NoiseTape:
    """Normal numbers on a device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tape = torch.empty(0, device=device)

    def reach(self, longest: int) -> None:
        """Makes the tape long enough for tensors of so many elements; a new one forgets all mixtures."""
        if len(self._tape) < longest + _SLACK:
            self._tape = torch.randn(longest + _SLACK, generator=generator(self._device), device=self._device)

    def fill(self, tensor: Tensor, mixture: Mixture | None = None) -> Mixture:
        """New values for a contiguous floating-point tensor, or those of a mixture that another one was filled with."""
        count, values = tensor.numel(), tensor.detach().view(-1)
        mixture = mixture or self._new(count)
        part = _PART if self._tape.device.type == "cpu" else max(1, count)
        for begin in range(0, count, part):
            end = min(begin + part, count)
            a, b = (self._tape[start + begin : start + end] for start in mixture.starts)
            self._mix(a, b, mixture, values[begin:end])
        return mixture

    @staticmethod
    def _new(count: int) -> Mixture:
        # The system is asked once: asking takes longer than filling a short tensor.
        entropy, chosen = secrets.randbits(256), []
        for limit in (_SLACK, _SLACK, 2**53, _RUN[1] - _RUN[0]):
            entropy, number = divmod(entropy, limit)
            chosen.append(number)
        first, second, turn, run = chosen
        return Mixture((first, second), math.tau * turn / 2**53, min(_RUN[0] + run, max(1, count // _RUNS)))

    @staticmethod
    def _mix(a: Tensor, b: Tensor, mixture: Mixture, values: Tensor) -> None:
        drawn = values if values.dtype == a.dtype else torch.empty_like(a)
        torch.mul(a, math.cos(mixture.turn), out=drawn).add_(b, alpha=math.sin(mixture.turn))
        runs = len(a) // mixture.run
        of_runs = drawn[: runs * mixture.run].view(runs, mixture.run)
        # Means of up to about 2 and scales from 1/2 to 2, in place.
        of_runs.add_(b[:runs].unsqueeze(1), alpha=0.5).mul_(torch.exp2(a[:runs].clamp(-1, 1)).unsqueeze(1))
        if drawn is not values:
            values.copy_(drawn)
