"""The dtypes that a function computes in, and those that it takes and returns."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.exact_constants import ExactConstants
from kernelgen.worker.trace.comparison import detached, gradients, leaves_of
from kernelgen.worker.trace.evaluate import evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, has_gradient
from kernelgen.worker.trace.refusals import RefusedError

# As a share of the largest number, an error that no order of operations in float64 explains, but one in float32 does.
_INEXACT = 1e-9
# The same of roundings to float32, which a difference of numbers may magnify.
_OF_NARROW = 1e-5
# The dtypes of arguments that a result's dtype may follow, and those that it may have whatever they are.
_GIVEN = (torch.float32, torch.bfloat16)
_FIXED = (torch.float32, torch.bfloat16, torch.float16)


def takes_float64(
    function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any] | None
) -> bool:
    """Whether the function computes in float64 for float64 arguments: not where it casts to float32 by name, and not
    where a kernel of PyTorch's loses digits that the lab's reference does not know of (`ExactConstants`)."""
    sample = assumption.sample(0)
    return not _computes_in_narrow_dtypes(function, sample) and _is_exact(function, sample, forward, backward)


def takes_float16(function: Function, assumption: Any) -> bool:
    """Whether the function takes tensors of float16: not where it sets elements to a number that is too large."""
    values = assumption.sample(0).values
    try:
        function.call(*(v.half() if has_gradient(v) else v for v in values.values()))
    except RuntimeError as error:
        return "overflow" not in str(error)
    return True


def fixed_dtypes(function: Function, assumption: Any) -> list[str | None]:
    """The dtype of each result of floating-point numbers that does not follow that of the arguments, as float32 where
    the function casts to it; None of others.

    Raises:
        RefusedError: a result's dtype follows in another way, or is none that kernels write.
    """
    sample = assumption.sample(0)
    every = [
        function.results({k: v.to(dtype) if has_gradient(v) else v for k, v in sample.values.items()})
        for dtype in _GIVEN
    ]
    fixed: list[str | None] = []
    for results in zip(*every, strict=True):
        dtypes = [result.dtype for result in results]
        follows = tuple(dtypes) == _GIVEN or not has_gradient(results[0])
        if not follows and (len(set(dtypes)) > 1 or dtypes[0] not in _FIXED):
            name = str(dtypes[1]).removeprefix("torch.")
            raise RefusedError(f"a result of dtype {name} for bfloat16 arguments", 3)
        fixed.append(None if follows else str(dtypes[0]).removeprefix("torch."))
    return fixed


def tolerance_of(function: Function, sample: Sample) -> float:
    """The share of the largest number by which results may differ."""
    return _OF_NARROW if _computes_in_narrow_dtypes(function, sample) else 0.0


def _computes_in_narrow_dtypes(function: Function, sample: Sample) -> bool:
    """Whether something in the function is of another floating-point dtype than its arguments of float64."""
    with _Dtypes() as dtypes:
        function.call(*(v.double() if has_gradient(v) else v for v in sample.values.values()))
    return bool(dtypes.seen & {torch.float32, torch.float16, torch.bfloat16})


def narrow_dtype(function: Function, sample: Sample) -> str | None:
    """The dtype of 16 bits that something in the function is of, for arguments of float32; None where nothing is."""
    with _Dtypes() as dtypes:
        function.call(*sample.values.values())
    narrow = dtypes.seen & {torch.float16, torch.bfloat16}
    return str(narrow.pop()).removeprefix("torch.") if narrow else None


def _is_exact(function: Function, sample: Sample, forward: dict[str, Any], backward: dict[str, Any] | None) -> bool:
    """Whether the function's results and gradients are those of the graphs in float64."""
    leaves = leaves_of(sample.values)
    values = detached(leaves)
    with ExactConstants():
        results = function.results(leaves)
        pairs = list(zip(evaluate(forward, values, [], sample), results, strict=True))
        if backward:
            grads, expected = gradients(results, leaves)
            pairs += zip(evaluate(backward, values, grads, sample), expected, strict=True)
    for left, right in pairs:
        if left is None or right is None or not has_gradient(right) or not right.isfinite().all():
            continue
        left = left.reshape(right.shape) if left.numel() == right.numel() else left.expand(right.shape)
        if (left - right).abs().max() > _INEXACT * max(1e-3, float(right.abs().max())):
            return False
    return True


class _Dtypes(DispatchMode):
    """Notes the dtypes of all that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        self.seen |= {leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, Tensor)}
        return result
