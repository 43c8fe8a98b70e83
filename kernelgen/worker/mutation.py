"""Ops that write to their arguments: what they wrote counts as results, before what they return beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker.evaluation import significant_strides, tensors
from kernelgen.worker.judge.arena import span

# A copy lies as its original does relative to multiples of so many bytes, by which kernels choose their vectors.
_ALIGNMENT = 16


def on_copies(function: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """The function on copies of the arguments at these places, which returns what it wrote, and what else it returned.

    The copies have the strides of the originals, gaps included.
    """
    if not places:
        return function

    def functional(*args: Any) -> Any:
        given = list(args)
        for place in places:
            given[place] = pytree.tree_map_only(Tensor, _copy, args[place])
        returned = function(*given)
        return [given[place] for place in places], beside(returned, written(given, places))

    return functional


def written(args: Sequence[Any], places: Sequence[int]) -> list[Tensor]:
    """The tensors at these places, each once."""
    return list({id(tensor): tensor for place in places for tensor in tensors(args[place])}.values())


def beside(returned: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The tensors among the results that are none of the arguments."""
    return [tensor for tensor in tensors(returned) if not any(tensor is argument for argument in arguments)]


def _copy(tensor: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or tensor.is_contiguous() or 0 in significant_strides(tensor):
        return tensor.clone()
    margin = tensor.storage_offset() % max(1, _ALIGNMENT // tensor.element_size())
    size, begin = span(tensor.shape, tensor.stride()), tensor.storage_offset() - margin
    around = tensor.as_strided((margin + size,), (1,), begin).clone()
    return around.as_strided(tensor.shape, tensor.stride(), margin)
