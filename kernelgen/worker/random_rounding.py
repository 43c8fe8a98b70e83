"""Monte Carlo arithmetic: how far rounding alone moves what a function computes (Parker, Monte Carlo arithmetic, 1997).

A result that should be 0, but is the difference of large numbers, is rounding alone: of the reference's own, and of
another size in each right implementation, which adds in another order or takes other steps. Equal numbers are rounded
alike, and so is what a row has in common, such as the logarithm of its sum: such roundings do not average out.
"""

from typing import Any

import torch
import torch._refs.nn.functional  # Its operators are in the table of decompositions once it is imported.
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree

from kernelgen.worker.dispatch_mode import DispatchMode

# How many roundings of the numbers inside an op its results may differ by: a sum of thousands of float32 numbers, added
# one after the other, is off by about sixteen. In float64, for which PyTorch has no wider dtype, an op may also take
# more steps to a result than the reference does, or less stable ones. 16 bits are what numbers are kept in, and sums
# have more.
_ROUNDINGS = {torch.float16: 1, torch.bfloat16: 1, torch.float32: 16, torch.float64: 256}
# The same of numbers that are rounded alike: of one operator, such as a logarithm.
_ALIKE = 4


def _group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    mask: list[bool],
) -> tuple[Tensor | None, ...]:
    """A layer norm's: PyTorch's group norm adds its terms in another order, and leaves infinity where that has NaN."""
    shape, rows = (batch, groups, channels // groups * size), (batch, groups, 1)
    of_rows = grad if weight is None else grad * weight.view(-1, *[1] * (grad.ndim - 2))
    grad_x = grad_weight = grad_bias = None
    if mask[0]:
        of_layer_norm = (of_rows.reshape(shape), x.reshape(shape), shape[2:], mean.view(rows), rstd.view(rows))
        backward = torch.ops.aten.native_layer_norm_backward
        grad_x = backward(*of_layer_norm, None, None, [True, False, False])[0].reshape(x.shape)
    others = [0, *range(2, x.ndim)]
    if mask[1]:
        normed = (x.reshape(shape) - mean.view(rows)) * rstd.view(rows)
        grad_weight = (grad * normed.reshape(x.shape)).sum(others)
    if mask[2]:
        grad_bias = grad.sum(others)
    return grad_x, grad_weight, grad_bias


# Operators of several steps, one of which is the difference of numbers that may be almost equal, or infinite: each
# step is rounded to float64. Roundings to narrower dtypes would lose what the reference, in float64, has digits to
# spare for.
_CANCELLING = {
    torch.ops.aten.gelu.default: decomposition_table[torch.ops.aten.gelu.default],
    torch.ops.aten.gelu_backward.default: decomposition_table[torch.ops.aten.gelu_backward.default],
    torch.ops.aten.native_group_norm_backward.default: _group_norm_backward,
    **{
        operator: decomposition_table[operator]
        for operator in (
            torch.ops.aten.native_batch_norm.default,
            torch.ops.aten.native_batch_norm_backward.default,
            torch.ops.aten.cudnn_batch_norm.default,
            torch.ops.aten.cudnn_batch_norm_backward.default,
        )
    },
}


class RandomRounding(DispatchMode):
    """Moves every float64 result of PyTorch's operators by up to a few roundings of `dtype`, up or down by chance.

    Args:
        alike: all numbers of a result by the same share of them.
    """

    def __init__(self, seed: int, dtype: torch.dtype, *, alike: bool = False) -> None:
        super().__init__()
        self._seed, self._alike = seed, alike
        self._takes_steps = dtype == torch.float64
        self._most = (_ALIKE if alike else _ROUNDINGS[dtype]) * torch.finfo(dtype).eps
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._takes_steps and func in _CANCELLING:
            with self:
                return _CANCELLING[func](*args, **(kwargs or {}))
        results = func(*args, **(kwargs or {}))
        # What writes or views memory has results that others hold, too.
        if any(argument.alias_info is not None for argument in func._schema.arguments):
            return results
        return pytree.tree_map_only(Tensor, self._moved, results)

    def _moved(self, value: Tensor) -> Tensor:
        if value.dtype != torch.float64:
            return value
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        generator = self._generators[value.device]
        shape = () if self._alike else value.shape
        share = torch.rand(shape, dtype=value.dtype, device=value.device, generator=generator) * 2 - 1
        return value * (1 + self._most * share)
