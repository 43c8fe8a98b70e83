"""Functions of the kind that people bring to `kernelgen add-op --from`: test_blank.py makes ops of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-6
TURN = 2 * math.pi


def _normalised(x: Tensor, eps: float = EPSILON) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def affine(x: Tensor, factor: float = 2.0, bias: Tensor | None = None) -> Tensor:
    """Defaults, and a tensor that may be left out."""
    out = x * factor
    return out if bias is None else out + bias


def waves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Several returns, a helper, constants."""
    angle = TURN * _normalised(x)
    return angle.sin(), angle.cos()


def mixture(tensors: list[Tensor], weights: Sequence[float]) -> Tensor:
    """A list of tensors."""
    out = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        out = out + weight * nn.functional.silu(tensor)
    return out


def blend(x: Tensor, y: Tensor, *, alpha: float, mode: str = "linear") -> Tensor:
    """A keyword-only argument without a default."""
    return x + alpha * (y - x) if mode == "linear" else x ** (1 - alpha) * y**alpha


def widened(x: Tensor, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Arguments that no exported graph takes as inputs."""
    return (x * x).to(dtype=torch.promote_types(x.dtype, dtype), device=device)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Views of its argument, and the argument itself where there is nothing to cast."""
    return x[..., : x.shape[-1] // 2], x.to(torch.promote_types(x.dtype, torch.float32))


def parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one tensor, and one of them twice."""
    square, middle = x * x, x.shape[-1] // 2
    return square[..., :middle], square[..., middle:], square[..., :middle]


def total(
    x: Tensor, others: Sequence[Tensor | None], dims: Sequence[int] = (), *, shift: Tensor | None = None
) -> Tensor:
    """Lists with and without tensors in them, and a tensor that is given by name."""
    out = x + sum(other.sum() for other in others if other is not None)
    out = out.sum(tuple(dims), keepdim=True) if dims else out
    return out if shift is None else out + shift
