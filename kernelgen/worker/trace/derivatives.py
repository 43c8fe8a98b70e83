"""What PyTorch's own derivatives of a function are good for."""

from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.checks import Answers
from kernelgen.worker.trace.comparison import leaves_of
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import has_gradient, is_differentiable


def is_differentiable_twice(function: Function, assumption: Any) -> bool:
    """Whether PyTorch differentiates the function's gradient again: of some of its operators it has no formula, and
    where the function looks at numbers, to refuse some, no graph of torch.compile has them."""
    with Answers(function.checked_lines) as answers:
        function.call(*assumption.sample(0).values.values())
    if answers.every:
        return False
    leaves = leaves_of(assumption.sample(0).values)
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
    leaves = leaves_of(assumption.sample(0).values)
    names = [name for name, value in leaves.items() if has_gradient(value)]

    def of_leaves(*values: Tensor) -> tuple[Tensor, ...]:
        return tuple(_differentiable(function, {**leaves, **dict(zip(names, values, strict=True))}))

    inputs = [leaves[name] for name in names]
    try:
        return not of_leaves(*inputs) or torch.autograd.gradcheck(of_leaves, inputs, fast_mode=True)
    except RuntimeError:  # What gradcheck raises where they differ.
        return False


def _differentiable(function: Function, leaves: dict[str, Any]) -> list[Tensor]:
    return [result for result in function.results(leaves) if is_differentiable(result)]
