"""Looks for rounding that errs to one side, such as truncation, in 16-bit results.

Rounded to the nearest number, the errors of many elements cancel: their mean, in roundings, has an expectation of 0.
Errors of one draw may depend on each other, as where a row's scale was rounded; those of different draws do not. So the
means of the draws are the sample, and Student's t says how far their mean may be off by chance.
"""

import math
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.evaluation import Evaluation, blamed_on, copies, evaluate
from kernelgen.worker.fuzzed_case import FuzzedCase
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.tensor_comparison import check_kind, check_presence

_DRAWS = 32
# Student's t of 31 degrees of freedom is beyond this once in ten million.
_T = 6.7
# Of a rounding: what happens in float32 inside an op moves 16-bit results by less.
_INSIDE = 1 / 32


def check(case: FuzzedCase) -> None:
    """Raises MismatchError if a result is off to one side by more than chance, what happens inside, and twice what the
    reference in the op's own dtype is off by."""
    cotangents, reference = case.cotangents(), case.op.reference
    case.caller.place((case.args, cotangents))
    means: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for i in range(_DRAWS):
        if i:
            case.make.redraw()
            case.caller.hand_over()
        case.caller.order("evaluate", number=0, renewed=i > 0)
        with blamed_on("reference"):
            plain = evaluate(reference, copies(case.args), copies(cotangents))
            exact = evaluate(reference, copies(case.args, torch.float64), copies(cotangents, torch.float64))
        result = case.caller.answer()[0][0].values
        check_presence(result, plain)
        for name in _compared(result):
            ours, theirs, right = (evaluation.named()[name] for evaluation in (result, plain, exact))
            check_kind(name, ours, theirs)
            for direction, sign in (("up", torch.ones_like(right)), ("away from 0", right.sign())):
                pair = _mean_error(ours, right, sign), _mean_error(theirs, right, sign)
                means.setdefault((name, direction), []).append(pair)
    for (name, direction), pairs in means.items():
        _check_means(name, direction, pairs)


def _compared(result: Evaluation) -> list[str]:
    named = result.named().items()
    return [name for name, value in named if value is not None and value.dtype.itemsize == 2 and value.numel()]


def _mean_error(value: Tensor, exact: Tensor, sign: Tensor) -> float:
    """The mean of signed errors, in roundings of each element or of a typical one, whichever is larger."""
    typical = exact.square().mean().sqrt()
    unit = torch.finfo(value.dtype).eps * torch.maximum(exact.abs(), typical)
    return float(((value.double() - exact) * sign / unit).nan_to_num(0).mean())


def _check_means(what: str, direction: str, pairs: list[tuple[float, float]]) -> None:
    (mean, deviation), (plain, plain_deviation) = (_mean_and_deviation(side) for side in zip(*pairs, strict=True))
    allowed = _INSIDE + 2 * abs(plain) + _T * (deviation + plain_deviation) / math.sqrt(len(pairs))
    if abs(mean) > allowed:
        way = ("up" if mean > 0 else "down") if direction == "up" else f"{'away from' if mean > 0 else 'towards'} 0"
        sentence = f"{what} is off {way} by {abs(mean):.3g} roundings on average, where {allowed:.3g} is allowed"
        raise MismatchError("bias", f"{sentence}: is it rounded to the nearest number, or truncated?")


def _mean_and_deviation(values: Any) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
