"""Arithmetic of integers, which wraps around, and divides, as PyTorch's does: in one dtype, that of the result.

Integers that are no such are what is counted, as coordinates and truth values that are added up: numbers of float32.
"""

from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.graph import INTEGERS
from kernelgen.worker.trace.refusals import RefusedError

_DTYPES = {name: dtype for dtype, name in INTEGERS.items()}
# How far a trace came that meets what kernels do not compute of integers.
_PROGRESS = 3
# What kernels compute of integers.
OPERATORS = {
    *("abs", "add", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift"),
    *("bitwise_xor", "floor_divide", "fmod", "maximum", "minimum", "mul", "neg", "remainder", "sign", "sub"),
    *("trunc_divide", "where"),
}
# PyTorch raises an error where the CPU divides by 0, and nothing on a GPU: a divisor has to be a number in the source.
_DIVISIONS = {"floor_divide", "fmod", "remainder", "trunc_divide"}
_SHIFTS = {"bitwise_left_shift", "bitwise_right_shift"}
# What has to have a number in the source as its second argument.
OF_NUMBERS = _DIVISIONS | _SHIFTS


def is_arithmetic(op: str, arguments: list[dict[str, Any]], value: Tensor) -> bool:
    """Whether an operator with a result like `value` computes integers of integers that kernels hold as such.

    Raises:
        RefusedError: kernels have no such operator of integers.
    """
    operands = arguments[1:] if op == "where" else arguments
    if value.dtype not in INTEGERS or not any(argument["dtype"] in _DTYPES for argument in operands):
        return False
    if op.startswith(("to_", "row_", "running_")) or op == "column_sum":
        return False
    if op not in OPERATORS:
        raise RefusedError(f"{op} of {INTEGERS[value.dtype]}", _PROGRESS)
    if op in _DIVISIONS and not operands[1].get("constant"):
        raise RefusedError(f"{op} of {INTEGERS[value.dtype]} by a divisor that may be 0", _PROGRESS)
    if op in _SHIFTS and not 0 <= operands[1].get("constant", -1) < torch.iinfo(value.dtype).bits:
        raise RefusedError(f"{op} of {INTEGERS[value.dtype]} by bits that no number says", _PROGRESS)
    return True


def common_dtype(arguments: list[dict[str, Any]]) -> str | None:
    """The dtype that integers are compared in, with whole numbers maybe: as numbers of float32, large ones would be
    rounded. None of other comparisons."""
    dtypes = {argument["dtype"] for argument in arguments if "constant" not in argument}
    numbers = [argument["constant"] for argument in arguments if "constant" in argument]
    if not dtypes or not dtypes <= set(_DTYPES) or any(number % 1 != 0 for number in numbers):
        return None
    first, *others = (_DTYPES[dtype] for dtype in sorted(dtypes))
    for other in others:
        first = torch.promote_types(first, other)
    return INTEGERS[first] if all(_holds(first, number) for number in numbers) else None


def integer_constant(op: str, number: Any, dtype: str) -> dict[str, Any]:
    """A whole number among the arguments of an operator of integers.

    Raises:
        RefusedError: the dtype does not hold it.
    """
    if number % 1 != 0 or not _holds(_DTYPES[dtype], number):
        raise RefusedError(f"{op} of {dtype} with the number {number:g}", _PROGRESS)
    return {"constant": int(number), "dtype": dtype, "kind": "scalar"}


def _holds(dtype: torch.dtype, number: float) -> bool:
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
