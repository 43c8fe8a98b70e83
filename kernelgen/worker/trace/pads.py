"""Functions that read neighbours of elements, as slices and what joins them: pads that repeat a tensor's own elements,
and means of windows."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from kernelgen.worker.trace.replaced import Replaced


def in_slices() -> TorchFunctionMode:
    """While it is entered, such functions are slices and what joins them."""
    return Replaced(_FUNCTIONS)


def _pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    repeated = _REPEATED.get(mode)
    if repeated is None or min(pad) < 0:
        return functional.pad(input, pad, mode, value)
    for i in range(0, len(pad), 2):
        dim = -1 - i // 2
        size = input.shape[dim]
        before, behind = (
            [input.narrow(dim, repeated(size, place), 1) for place in places]
            for places in (range(-pad[i], 0), range(size, size + pad[i + 1]))
        )
        input = torch.cat((*before, input, *behind), dim) if any(pad[i : i + 2]) else input
    return input


def _reflected(size: int, place: int) -> int:
    """The place of the element that stands for one beyond the first, or the last."""
    return -place if place < 0 else 2 * (size - 1) - place


def _replicated(size: int, place: int) -> int:
    return min(max(place, 0), size - 1)


def _wrapped(size: int, place: int) -> int:
    return place % size


def _average(rank: int, plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Means of windows along so many dimensions: sums of slices where there is a window for every place."""

    def averaged(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        sizes, strides, pads = (_several(numbers, rank) for numbers in (kernel_size, stride or kernel_size, padding))
        if {*strides} != {1} or (any(pads) and not count_include_pad):
            further = () if rank == 1 else (divisor_override,)
            return plain(input, kernel_size, stride, padding, ceil_mode, count_include_pad, *further)
        if any(pads):
            input = functional.pad(input, [pad for pad in reversed(pads) for _ in range(2)])
        counts = [size - window + 1 for size, window in zip(input.shape[-rank:], sizes, strict=True)]
        total = None
        for places in itertools.product(*map(range, sizes)):
            term = input
            for dim, (place, count) in enumerate(zip(places, counts, strict=True)):
                term = term.narrow(dim - rank, place, count)
            total = term if total is None else total + term
        return total / (divisor_override or math.prod(sizes))

    return averaged


def _several(numbers: Any, rank: int) -> list[int]:
    numbers = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return numbers * rank if len(numbers) == 1 else numbers


_REPEATED = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}
_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.pad: _pad,
    torch.avg_pool1d: _average(1, torch.avg_pool1d),
    torch._C._nn.avg_pool2d: _average(2, torch._C._nn.avg_pool2d),
}
