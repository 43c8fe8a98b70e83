"""Random values that nobody can foresee, drawn about as fast as memory is written.

Of a long tape of normal numbers, two stretches that start anywhere are turned into each other: cos t · a + sin t · b is
as normal as a and b are. Where the stretches start, and t, come from the system's entropy for every tensor and every
time: a result that is kept for earlier values is of no use for these.
"""

import math
import secrets

import torch
from torch import Tensor

# Beyond the longest tensor: as many places where a stretch may start.
_SLACK = 2**16
# Numbers that are drawn at a time on the CPU, whose caches hold them from one step to the next.
_PART = 2**18


def generator(device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(secrets.randbits(63))


class NoiseTape:
    """Normal numbers on a device; the tape grows with the longest tensor."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tape = torch.empty(0, device=device)

    def fill(self, tensor: Tensor, copy: Tensor | None = None) -> None:
        """New values for a contiguous floating-point tensor; the same for a copy of it."""
        count, turn = tensor.numel(), math.tau * secrets.randbelow(2**53) / 2**53
        if len(self._tape) < count + _SLACK:
            self._tape = torch.randn(count + _SLACK, generator=generator(self._device), device=self._device)
        part = _PART if self._tape.device.type == "cpu" else len(self._tape)
        a, b = (self._tape[start : start + count].split(part) for start in (self._start(), self._start()))
        ours, theirs = (t.detach().view(-1).split(part) for t in (tensor, tensor if copy is None else copy))
        for values, copied, *stretches in zip(ours, theirs, a, b, strict=True):
            self._mix(*stretches, turn, values)
            if copy is not None:
                copied.copy_(values)

    @staticmethod
    def _mix(a: Tensor, b: Tensor, turn: float, values: Tensor) -> None:
        drawn = values if values.dtype == a.dtype else torch.empty_like(a)
        torch.mul(a, math.cos(turn), out=drawn).add_(b, alpha=math.sin(turn))
        if drawn is not values:
            values.copy_(drawn)

    def _start(self) -> int:
        return secrets.randbelow(_SLACK)
