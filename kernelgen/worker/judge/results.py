"""Results of an op's process, which says where they lie and what they are; only what is checked is believed."""

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.judge.arena import TensorPlace, span
from kernelgen.worker.judge.errors import CallError
from kernelgen.worker.judge.op_process import OpProcess

# More than any machine's memory; sizes of more are none that torch can work with.
_MOST_BYTES = 2**46
Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


def checked_layouts(answer: dict[str, Any]) -> list[list[Layout]]:
    """The layouts of each call's results, if they are plain tensors.

    Raises:
        CallError: they are not.
    """
    try:
        return [[checked_layout(*facts) for facts in of_call] for of_call in answer["layouts"]]
    except (KeyError, TypeError, ValueError):
        raise CallError("TypeError: it returned no plain tensors") from None


def checked_layout(type_: str, dtype: str, shape: list[int], stride: list[int]) -> Layout:
    if type_ != "torch.Tensor":
        raise CallError(f"it returned a {type_}, not a plain torch.Tensor")
    of_name = getattr(torch, dtype.removeprefix("torch."), None)
    numbers = [*shape, *stride]
    if not isinstance(of_name, torch.dtype) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(dtype)
    if len(shape) != len(stride):
        raise ValueError(shape)
    if max(math.prod(shape), span(shape, stride)) * of_name.itemsize > _MOST_BYTES:
        raise CallError(f"it returned a tensor of shape {tuple(shape)}, which cannot be read")
    return of_name, tuple(shape), tuple(stride)


def rebuilt(process: OpProcess, address: int, dtype: torch.dtype, shape: Any, stride: Any) -> Tensor:
    """A contiguous copy of what lies there.

    Raises:
        CallError: there is no such memory.
    """
    place = TensorPlace(0, dtype, shape, stride)
    try:
        return contiguous(place.tensor(process.read(address, place.nbytes).untyped_storage()))
    except (RuntimeError, MemoryError, OverflowError, ctypes.ArgumentError) as error:
        raise CallError(f"it returned a tensor of shape {shape}, which cannot be read: {error}") from None


def contiguous(tensor: Tensor) -> Tensor:
    """The tensor, or a copy with the strides of a new tensor: `Tensor.contiguous` keeps odd ones of dimensions of one
    element."""
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= max(size, 1)
    is_new = list(tensor.stride()) == strides[::-1]
    return tensor if is_new else tensor.clone(memory_format=torch.contiguous_format)
