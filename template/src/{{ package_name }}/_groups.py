"""A dimension that is groups, as the channels of a group norm are: for an operator the groups are a dimension."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Shape = tuple[int, ...]


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


def joined(shapes: Sequence[Shape], places: Sequence[int | None]) -> list[Shape]:
    """Shapes in which the dimension at a place and the next are one; None leaves a shape as it is."""
    return [shape if place is None else _joined(shape, place) for shape, place in zip(shapes, places)]


def sized(
    shapes: Sequence[Shape], places: Sequence[int | None], size: int, growing: Sequence[int | None]
) -> list[Shape]:
    """Shapes with a dimension of this size at the places; others grow, so that there are as many elements or more."""
    first = places[0]
    assert first is not None
    times = -(-shapes[0][first] // size)
    changed = []
    for shape, place, more in zip(shapes, places, growing):
        sizes = list(shape)
        if place is not None:
            sizes[place] = size
        if more is not None and (place is None or more % len(sizes) != place % len(sizes)):
            sizes[more] *= times
        changed.append(tuple(sizes))
    return changed


def _joined(shape: Shape, place: int) -> Shape:
    place %= len(shape)
    return (*shape[:place], math.prod(shape[place : place + 2]), *shape[place + 2 :])
