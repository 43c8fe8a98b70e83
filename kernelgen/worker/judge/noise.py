"""Random values that nobody can foresee, drawn about as fast as memory is written.

Of a long tape of normal numbers, two stretches that start anywhere are turned into each other: cos t · a + sin t · b is
as normal as a and b are. Where the stretches start, and t, come from the system's entropy for every tensor and every
time: a result that is kept for earlier values is of no use for these.
"""

import math
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

# Beyond the longest tensor: as many places where a stretch may start.
_SLACK = 2**16
# Numbers that are drawn at a time on the CPU, whose caches hold them from one step to the next.
_PART = 2**18


def generator(device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(secrets.randbits(63))


@dataclass(frozen=True)
class Mixture:
    """Where the two stretches start, and t."""

    starts: tuple[int, int]
    turn: float


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
        mixture = mixture or Mixture((self._start(), self._start()), math.tau * secrets.randbelow(2**53) / 2**53)
        part = _PART if self._tape.device.type == "cpu" else len(self._tape)
        a, b = (self._tape[start : start + tensor.numel()].split(part) for start in mixture.starts)
        for values, *stretches in zip(tensor.detach().view(-1).split(part), a, b, strict=True):
            self._mix(*stretches, mixture.turn, values)
        return mixture

    @staticmethod
    def _mix(a: Tensor, b: Tensor, turn: float, values: Tensor) -> None:
        drawn = values if values.dtype == a.dtype else torch.empty_like(a)
        torch.mul(a, math.cos(turn), out=drawn).add_(b, alpha=math.sin(turn))
        if drawn is not values:
            values.copy_(drawn)

    def _start(self) -> int:
        return secrets.randbelow(_SLACK)
