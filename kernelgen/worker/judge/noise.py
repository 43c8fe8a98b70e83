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


def generator(device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(secrets.randbits(63))


class NoiseTape:
    """Normal numbers for tensors of up to `longest` elements."""

    def __init__(self, device: str, longest: int) -> None:
        self._tape = torch.randn(longest + _SLACK, generator=generator(device), device=device)

    def fill(self, tensor: Tensor) -> None:
        """New values for a contiguous floating-point tensor."""
        count, turn = tensor.numel(), math.tau * secrets.randbelow(2**53) / 2**53
        a, b = (self._tape[start : start + count].view(tensor.shape) for start in (self._start(), self._start()))
        values = torch.mul(a, math.cos(turn)).add_(b, alpha=math.sin(turn))
        tensor.data.copy_(values)

    def _start(self) -> int:
        return secrets.randbelow(_SLACK)
