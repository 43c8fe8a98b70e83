"""What PyTorch's own derivatives of a function are good for."""

from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import has_gradient, is_differentiable


def is_differentiable_twice(function: Function, assumption: Any) -> bool:
    """Whether PyTorch differentiates the function's gradient again: of some of its operators it has no formula."""
    leaves = _leaves(assumption)
    results = _differentiable(function, leaves)
    wanted = [value for value in leaves.values() if has_gradient(value)]
    try:
        grads = torch.autograd.grad(
            [result.square().sum() for result in results], wanted, None, create_graph=True, allow_unused=True
        )
        again = [grad.sum() for grad in grads if grad is not None and grad.requires_grad]
        if again:
            torch.autograd.grad(again, wanted, allow_unused=True)
    except RuntimeError:
        return False
    return True


def is_derivative(function: Function, assumption: Any) -> bool:
    """Whether the function's gradient is its derivative: not where it holds values constant that are not, as
    `x + (x.round() - x).detach()` does."""
    leaves = _leaves(assumption)
    names = [name for name, value in leaves.items() if has_gradient(value)]

    def of_leaves(*values: Tensor) -> tuple[Tensor, ...]:
        return tuple(_differentiable(function, {**leaves, **dict(zip(names, values, strict=True))}))

    inputs = [leaves[name] for name in names]
    try:
        return not of_leaves(*inputs) or torch.autograd.gradcheck(of_leaves, inputs, fast_mode=True)
    except RuntimeError:  # What gradcheck raises where they differ.
        return False


def _leaves(assumption: Any) -> dict[str, Any]:
    values = assumption.sample(0).values
    return {k: v.double().requires_grad_() if has_gradient(v) else v for k, v in values.items()}


def _differentiable(function: Function, leaves: dict[str, Any]) -> list[Tensor]:
    results = function.call(*leaves.values())
    return [r for r in (results if isinstance(results, (tuple, list)) else [results]) if is_differentiable(r)]
