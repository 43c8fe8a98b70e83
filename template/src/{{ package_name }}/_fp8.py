"""Scales of 8-bit floating-point tensors, for the fakes of the ops that return them."""

import torch
from torch import Tensor

# Elements of a row that share a scale, where not all of them do; and the rows and columns of a block.
GROUP = 128


def groups(size: int) -> int:
    """How many groups so many elements are."""
    return (size + GROUP - 1) // GROUP


def empty_scales(like: Tensor, shape: tuple[int, ...], scaling: str) -> Tensor:
    """Scales of a contiguous tensor of this shape; those of one group of all rows lie side by side."""
    if scaling == "block":
        return like.new_empty((*shape[:-2], groups(shape[-2]), groups(shape[-1])), dtype=torch.float32)
    if scaling == "group":
        *leading, n = shape
        return like.new_empty((groups(n), *leading), dtype=torch.float32).movedim(0, -1)
    return like.new_empty((*shape[:-1], 1) if scaling == "row" else (), dtype=torch.float32)
