"""A function's results and gradients beside those of its graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.graph import Sample, has_gradient, is_differentiable
from kernelgen.worker.trace.refusals import RefusedError


def leaves_of(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments as a function is differentiated by them, in float64."""
    return {k: v.to(torch.float64, copy=True).requires_grad_() if has_gradient(v) else v for k, v in values.items()}


def detached(leaves: dict[str, Any]) -> dict[str, Any]:
    return {k: v.detach() if isinstance(v, Tensor) else v for k, v in leaves.items()}


def gradients(results: list[Tensor], leaves: dict[str, Any]) -> tuple[list[Tensor], list[Tensor | None]]:
    """Cotangents of the results, and PyTorch's gradients of the floating-point leaves."""
    grads = [(0.7 + 0.1 * torch.arange(r.numel()).view(r.shape).cos()).to(r.dtype) for r in results]
    return grads, gradients_by(results, grads, leaves)


def gradients_by(results: list[Tensor], grads: list[Tensor], leaves: dict[str, Any]) -> list[Tensor | None]:
    """PyTorch's gradients of the floating-point leaves, by these of the results."""
    wanted = [value for value in leaves.values() if has_gradient(value)]
    pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if is_differentiable(result)]
    return list(torch.autograd.grad([p[0] for p in pairs], wanted, [p[1] for p in pairs], allow_unused=True))


def compare(ours: list[Tensor | None], theirs: list[Tensor | None], sample: Sample, tolerance: float = 0.0) -> None:
    """Raises RefusedError where they differ; `tolerance` is the share of the largest number that they may."""
    for left, right in zip(ours, theirs, strict=True):
        if left is None or right is None:
            same = (left is None and (right is None or not right.any())) or (right is None and not left.any())
        else:
            left = left.to(right.dtype)
            # Numbers of rows, and of a row's elements, have sizes of 1 here.
            if left.numel() != right.numel() and not _repeats(left.shape, right.shape):
                raise RefusedError("results of other sizes", 4)
            left = left.reshape(right.shape) if left.numel() == right.numel() else left.expand(right.shape)
            numbers = right.double()
            finite = numbers[numbers.isfinite()].abs()
            largest = float(finite.max()) if tolerance and finite.numel() else 0.0
            atol = 1e-9 + tolerance * largest
            same = torch.allclose(left.double(), numbers, rtol=1e-6, atol=atol, equal_nan=True)
        if not same:
            scalars = {k: v for k, v in sample.values.items() if not isinstance(v, Tensor)}
            values = " where " + ", ".join(f"{name} is {value}" for name, value in scalars.items()) if scalars else ""
            raise RefusedError(f"another path that it takes{values}", 4)


def _repeats(shape: Sequence[int], full: Sequence[int]) -> bool:
    """Whether a tensor of a shape can be repeated to a larger one."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(size in (1, whole) for size, whole in pairs)


def same_values(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left.double(), right.double(), 1e-5, 1e-6, equal_nan=True)
