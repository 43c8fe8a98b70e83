"""A dimension that is groups, as the channels of a group norm are: for an operator the groups are a dimension."""

import torch
from torch import Tensor


def in_groups(
    op: str, name: str, tensor: Tensor, dim: int, *, groups: int | None = None, size: int | None = None
) -> Tensor:
    """A view of the argument `name` of an op with a dimension as so many groups, or as groups of this size.

    Raises:
        RuntimeError: the dimension is no multiple of that.
    """
    if tensor.layout is not torch.strided:
        return tensor  # Which the operator refuses.
    shape, count = tensor.shape, groups or size or 0
    if not -len(shape) <= dim < len(shape):
        raise RuntimeError(f"{op}: {name} has shape {tuple(shape)}; it takes one with a dimension {dim}")
    if count < 1 or shape[dim] % count:
        raise RuntimeError(f"{op}: {name} has shape {tuple(shape)}; it takes a multiple of {count} in dimension {dim}")
    rest = shape[dim] // count
    return tensor.unflatten(dim, (count, rest) if size is None else (rest, count))


def in_one(tensor: Tensor, dim: int) -> Tensor:
    """A tensor with this dimension, which is that of groups, and the next as one."""
    # PyTorch cannot trace a gradient of 0 by a view of an argument, as the second one of an absolute value is.
    tensor = tensor * 1 if tensor.is_floating_point() else tensor
    return tensor.flatten(dim, dim + 1)
