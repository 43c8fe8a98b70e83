"""Calls of a function with small tensors drawn at random: what new_op.py and shape_learner.py learn from."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker.trace.cost import Cost
from kernelgen.worker.trace.function import versions, written
from kernelgen.worker.trace.undifferentiated import Undifferentiated


class WrittenError(Exception):
    """The function writes to the arguments of these names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names


def call_with(
    function: Callable[..., Any],
    arguments: list[dict[str, Any]],
    values: Sequence[Any],
    mode: AbstractContextManager[Any] | None = None,
) -> Any:
    pairs = list(zip(arguments, values, strict=True))
    by_name = {argument["name"]: value for argument, value in pairs if argument["keyword_only"]}
    with mode or Undifferentiated(Cost()):
        return function(*(value for argument, value in pairs if not argument["keyword_only"]), **by_name)


def call_of_pure(function: Callable[..., Any], arguments: list[dict[str, Any]], values: Sequence[Any]) -> Any:
    """The results of a function that writes to none of its arguments.

    Raises:
        WrittenError: it does.
    """
    named = {argument["name"]: value for argument, value in zip(arguments, values, strict=True)}
    before = versions(named)
    results = call_with(function, arguments, values)
    if names := written(before, named):
        raise WrittenError(names)
    return results


def is_independent(
    function: Callable[..., Any], arguments: list[dict[str, Any]], values: Sequence[Any], places: Sequence[int]
) -> bool:
    def part(value: Any, i: int) -> Any:
        return [item[i] for item in value] if isinstance(value, list) else value[i]

    try:
        whole = pytree.tree_leaves(call_with(function, arguments, values))
        for i in range(len(whole[0])):
            parts = [part(value, i) if place in places else value for place, value in enumerate(values)]
            results = pytree.tree_leaves(call_with(function, arguments, parts))
            pairs = zip(results, whole, strict=True)
            if not all(torch.allclose(own, of[i], rtol=1e-4, atol=1e-5, equal_nan=True) for own, of in pairs):
                return False
    except Exception:  # It does not take such arguments.
        return False
    return True


def is_floating(argument: dict[str, Any]) -> bool:
    """Whether an argument of a call is a tensor, not a list of them, of a dtype that has gradients."""
    return not argument.get("list", True) and getattr(torch, argument["dtype"]).is_floating_point


def made(argument: dict[str, Any], generator: torch.Generator) -> Any:
    if "sample" in argument:
        return eval(argument["sample"], {"torch": torch})
    tensor = random_tensor(argument["shape"], getattr(torch, argument["dtype"]), argument.get("below", 2), generator)
    return [tensor, tensor.clone()] if argument["list"] else tensor


def random_tensor(shape: Sequence[int], dtype: torch.dtype, below: int, generator: torch.Generator) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
    return torch.randint(max(below, 1), shape, generator=generator).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
