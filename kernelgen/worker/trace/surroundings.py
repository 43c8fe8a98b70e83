"""What a function may ask of its arguments beside numbers and sizes, and kernels do not tell apart: the dtype, the
layout in memory, whether gradients are wanted."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.trace.comparison import same_values
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, has_gradient
from kernelgen.worker.trace.operators import CASTS, SAME, spelled
from kernelgen.worker.trace.precision import narrow_dtype
from kernelgen.worker.trace.refusals import RefusedError

_NARROW = (torch.bfloat16, torch.float16)


def refuse_other_paths(function: Function, assumption: Any) -> None:
    """Raises RefusedError where the function is another one for other dtypes or layouts, or without gradients."""
    values = assumption.sample(0).values
    _refuse_layouts(function, values)
    path = _path(function, values, torch.float32)
    for dtype in _NARROW:
        name = str(dtype).removeprefix("torch.")
        try:
            other = _path(function, values, dtype)
        except RuntimeError:  # PyTorch has no such kernel for the CPU.
            continue
        if [operator for operator, _ in other] != [operator for operator, _ in path]:
            raise RefusedError(f"another path that it takes for {name}", 4)
        if any(not _are_alike(a, b, dtype) for (_, a), (_, b) in zip(path, other, strict=True)):
            raise RefusedError(f"a number that is another one for {name}, as those of torch.finfo are", 4)


def depends_on_dtype(function: Function, sample: Sample) -> str | None:
    """A phrase for what no kernel has: a number that is of the arguments' dtype, or a dtype of 16 bits in between."""
    if dtype := narrow_dtype(function, sample):
        return f"a cast to {dtype} in between, as kernels round nothing but their results"
    narrow, wide = (_path(function, sample.values, dtype) for dtype in (torch.float32, torch.float64))
    if [operator for operator, _ in narrow] == [operator for operator, _ in wide] and str(narrow) != str(wide):
        return "a number that is another one for each dtype, as those of torch.finfo are"
    return None


def _refuse_layouts(function: Function, values: dict[str, Any]) -> None:
    expected = _results(function, values)
    apart = {k: _apart(v) if isinstance(v, Tensor) else v for k, v in values.items()}
    leaves = {k: v.clone().requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    with torch.no_grad():
        without = _results(function, values)
    others = {
        "for tensors that do not lie contiguously": _results(function, apart),
        "where gradients are wanted": _results(function, leaves),
        "where no gradients are wanted": without,
    }
    for when, results in others.items():
        if not all(map(same_values, results, expected)):
            raise RefusedError(f"another path that it takes {when}", 4)


def _results(function: Function, values: dict[str, Any]) -> list[Tensor]:
    """Those of a call, with the same random numbers in each."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return function.results(values)


def _apart(tensor: Tensor) -> Tensor:
    """A copy of which no two elements lie side by side."""
    wide = torch.stack((tensor, tensor), -1)
    return wide[..., 0]


def _path(function: Function, values: dict[str, Any], dtype: torch.dtype) -> list[tuple[str, list[float]]]:
    """The operators that are called, but those that move and cast, each with the numbers that it is given."""
    of_dtype = {k: v.to(dtype) if has_gradient(v) else v for k, v in values.items()}
    with torch.no_grad(), _Operators() as operators:
        function.call(*of_dtype.values())
    return operators.called


def _are_alike(numbers: list[float], others: list[float], dtype: torch.dtype) -> bool:
    """Whether numbers are the same, or each the largest of its own dtype, as a mask's are."""

    def is_largest(number: float, of: torch.dtype) -> bool:
        return math.isinf(number) or abs(number) >= torch.finfo(of).max / 4

    pairs = list(zip(numbers, others, strict=False))
    return len(numbers) == len(others) and all(
        a == b or (a != a and b != b) or (is_largest(a, torch.float32) and is_largest(b, dtype)) for a, b in pairs
    )


class _Operators(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[tuple[str, list[float]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name not in (*CASTS, *SAME):
            self.called.append((spelled(func), list(_numbers((args, kwargs or {})))))
        return func(*args, **kwargs or {})


def _numbers(arguments: Any) -> Iterator[float]:
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            yield float(leaf)
