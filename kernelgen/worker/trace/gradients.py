"""Functions, or their gradients, in operators that kernels are written in, where PyTorch's are made of others."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from kernelgen.worker.trace.replaced import Replaced


def differentiable_by_rows() -> TorchFunctionMode:
    """While it is entered, such functions have the gradients of this file."""
    return Replaced(_FUNCTIONS)


def _product(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    values = input if dtype is None else input.to(dtype)
    return _Product.apply(values, dim, keepdim)


class _Product(torch.autograd.Function):
    """A product's derivative by an element is the product of all others: by division where no element is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.dim, ctx.keepdim = dim, keepdim
        return torch.prod(x) if dim is None else torch.prod(x, dim, keepdim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        is_zero = x == 0
        others = torch.where(is_zero, 1.0, x)
        zeros = is_zero.to(x.dtype)
        if ctx.dim is None:
            product, zeros = torch.prod(others), zeros.sum()
        else:
            product = torch.prod(others, ctx.dim, keepdim=True)
            zeros = zeros.sum(ctx.dim, keepdim=True)
            grad = grad if ctx.keepdim else grad.unsqueeze(ctx.dim)
        derivative = torch.where(zeros == 0, product / x, torch.where(is_zero & (zeros == 1), product, 0.0))
        return grad * derivative, None, None


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """The same without a look at the elements, which a trace has not."""
    if num_classes < 0:
        return functional.one_hot(tensor, num_classes)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


def _cross(input: Tensor, other: Tensor, dim: int = -1) -> Tensor:
    (a, b, c), (x, y, z) = input.unbind(dim), other.unbind(dim)
    return torch.stack((b * z - c * y, c * x - a * z, a * y - b * x), dim)


def _top(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The first of the largest numbers, with its place, is the largest of all."""
    if k != 1:
        return torch.topk(input, k, dim, largest, sorted)
    values, places = torch.max(input, dim, keepdim=True) if largest else torch.min(input, dim, keepdim=True)
    return values, places


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """PyTorch's own gradient adds up the elements of a channel before those of a group."""
    grouped = input.unflatten(1, (num_groups, -1))
    normed = functional.layer_norm(grouped, grouped.shape[2:], eps=eps).flatten(1, 2)
    of_channels = (-1, *[1] * (input.ndim - 2))
    normed = normed if weight is None else normed * weight.reshape(of_channels)
    return normed if bias is None else normed + bias.reshape(of_channels)


_FUNCTIONS = {
    functional.group_norm: _group_norm,
    torch.group_norm: _group_norm,
    functional.one_hot: _one_hot,
    torch.cross: _cross,
    torch.linalg.cross: _cross,
    torch.prod: _product,
    Tensor.prod: _product,
    torch.topk: _top,
    Tensor.topk: _top,
}
