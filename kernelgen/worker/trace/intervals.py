"""The numbers that tests and the lab draw: such as float32, in which kernels compute, has the results of.

Of normal numbers a logarithm is NaN, 1 / (exp(x) - 1) has no digits near 0, and a law of physics in SI units is 0
or infinity.
"""

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.comparison import gradients
from kernelgen.worker.trace.domains import Domains
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import has_gradient, is_differentiable

# The largest number of float16, the narrowest of the dtypes.
_LARGEST = torch.finfo(torch.float16).max
# What the suite allows of numbers of 16 bits that are rounded once: a share of each, and of the largest.
_OF_EACH, _OF_LARGEST = 2**-10, 1e-6
# Tests draw more numbers than a sample has, of which the nearest to 0 is about 1e-6: half of a sample are made so near.
_ROWS, _NEAREST = 64, 1e-6
# The powers of ten that intervals are scaled by, and the most tensors that are.
_POWERS, _MOST_SCALED = range(-12, 13), 2


def between(function: Function, assumption: Any, forward: dict[str, Any]) -> list[str]:
    """The tensors whose numbers have to be drawn between 0 and 1, because others give NaN or infinity: log, for one;
    or numbers that float16 does not hold, as where they are divisors; or such as float32 has few digits of."""
    anywhere = {name: dtype for name, dtype in assumption.dtypes.items() if name not in assumption.domains}
    floating = [name for name, dtype in anywhere.items() if dtype == "float"]
    divisors = _divisors(forward).intersection(floating)

    def fewest(holds: Any) -> list[str]:
        chosen = list(floating)
        for name in (name for name in floating if name not in divisors):
            fewer = [other for other in chosen if other != name]
            if holds(function, assumption, fewer):
                chosen = fewer
        return chosen

    chosen = sorted(divisors) if _is_finite(function, assumption, divisors) else fewest(_is_finite)
    if not _is_accurate(function, assumption, chosen) and _is_accurate(function, assumption, floating):
        is_finite = _is_finite(function, assumption, floating)
        return fewest(lambda *drawn: _is_accurate(*drawn) and (not is_finite or _is_finite(*drawn)))
    return chosen


def scaled(function: Function, assumption: Any, drawn_between: Collection[str]) -> Domains | None:
    """The intervals of tensors of which float32 holds the function's results at another magnitude alone; none where it
    holds those of the usual numbers. None: float32 holds no results at any magnitude that is looked at."""
    values = _drawn(assumption, 8, drawn_between)
    exact = _evaluated(function, _in_float64(values))
    if not all(tensor.isfinite().all() for tensor in exact) or _error(function, values) is not None:
        return {}
    names = [name for name in drawn_between if name not in assumption.domains]
    if len(names) > _MOST_SCALED:
        return None
    every = itertools.product(_POWERS, repeat=len(names))
    for powers in sorted(every, key=lambda powers: (max(map(abs, powers)), sum(map(abs, powers)))):
        factors = {name: 10.0**power for name, power in zip(names, powers, strict=True)}
        if _has_digits(function, {k: v * factors[k] if k in factors else v for k, v in values.items()}):
            return {name: (float(f"1e{p - 1}"), float(f"9e{p - 1}")) for name, p in zip(names, powers, strict=True)}
    return None


def _divisors(forward: dict[str, Any]) -> set[str]:
    """The tensors that something is divided by."""
    divided = [node["arguments"][1] for node in forward["nodes"] if node["op"] == "div"]
    inverted = [node["arguments"][0] for node in forward["nodes"] if node["op"] == "reciprocal"]
    return {argument["input"] for argument in (*divided, *inverted) if "input" in argument}


def _drawn(assumption: Any, first: int, drawn_between: Collection[str]) -> dict[str, Any]:
    """A large sample, of numbers that 16 bits hold, as tests draw them: functions have poles at such."""
    values = assumption.large_sample(first).values
    every = {k: v.sigmoid() if k in drawn_between else v for k, v in values.items()}
    return {k: v.bfloat16().float() if has_gradient(v) else v for k, v in every.items()}


def _is_finite(function: Function, assumption: Any, drawn_between: Collection[str]) -> bool:
    """Whether float16 holds all results, and gradients, of a sample."""
    every = _evaluated(function, _drawn(assumption, 8, drawn_between))
    return all(bool((tensor.abs() <= _LARGEST).all()) for tensor in every)  # Of a NaN this is not so either.


def _is_accurate(function: Function, assumption: Any, drawn_between: Collection[str]) -> bool:
    """Whether float32 has the digits that tests ask for, near to 0 as well."""
    values = _drawn(assumption, _ROWS, drawn_between)
    free = [k for k, v in values.items() if has_gradient(v) and k not in (*drawn_between, *assumption.domains)]
    values |= {name: values[name] * _nearness(values[name].shape) for name in free}
    try:
        error = _error(function, values)
    except Exception:  # It does not take these.
        return True
    return error is not None and error <= 1


def _has_digits(function: Function, values: Mapping[str, Any]) -> bool:
    """The same, where no result in float64 is infinite, and not all are 0."""
    if not all(tensor.isfinite().all() and tensor.any() for tensor in _evaluated(function, _in_float64(values))):
        return False
    error = _error(function, values)
    return error is not None and error <= 1


def _nearness(shape: torch.Size) -> Tensor:
    """What numbers are multiplied by: every second by 1, others by what is as often of each magnitude."""
    count = shape.numel()
    generator = torch.Generator().manual_seed(count)
    factors = _NEAREST ** torch.rand(count, generator=generator)
    return torch.where(torch.arange(count) % 2 > 0, 1.0, factors).view(shape)


def _error(function: Function, values: Mapping[str, Any]) -> float | None:
    """The largest error in float32, where 1 is allowed; None where a number is not finite that is in float64."""
    largest = 0.0
    exact = _evaluated(function, _in_float64(values))
    for left, right in zip(_evaluated(function, values), exact, strict=True):
        is_finite = right.isfinite()
        if not left[is_finite].isfinite().all():
            return None
        right = right[is_finite].double()
        if right.numel():
            allowed = _OF_EACH * right.abs() + _OF_LARGEST * right.abs().max()
            error = (left[is_finite].double() - right).abs() / allowed
            largest = max(largest, float(error.nan_to_num(0).max()))  # Nothing is off by nothing.
    return largest


def _in_float64(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.double() if has_gradient(v) else v for k, v in values.items()}


def _evaluated(function: Function, values: Mapping[str, Any]) -> list[Tensor]:
    """The results that have a gradient, and the gradients."""
    leaves = {k: v.detach().requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    results = [result for result in function.results(leaves) if is_differentiable(result)]
    if not results:
        return []
    grads = gradients(results, leaves)[1]
    return [result.detach() for result in results] + [grad for grad in grads if grad is not None]
