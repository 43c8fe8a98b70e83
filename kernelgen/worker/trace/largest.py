"""Whether the largest number of a dtype, as torch.finfo has it, comes to a result: kernels have that of float32, which
is an infinity in 16 bits. Behind an exponential, as in a masked softmax, they are alike."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.comparison import detached
from kernelgen.worker.trace.evaluate import evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, has_gradient
from kernelgen.worker.trace.refusals import FinalError

_NARROW = (torch.bfloat16, torch.float16)
# As a share of float32's largest number.
_NEAR = 0.25
_ALIKE = (math.inf, -math.inf, 1e4, -1e4, 0.0)


def refuse_largest(function: Function, assumption: Any, forward: dict[str, Any]) -> None:
    """Raises FinalError where the function returns the largest number of a dtype of 16 bits, and a kernel would not."""
    if not any(map(_is_largest, (argument for node in forward["nodes"] for argument in node["arguments"]))):
        return
    for sample in _samples(assumption.sample(0)):
        for dtype in _NARROW:
            given = {k: v.to(dtype) if has_gradient(v) else v for k, v in sample.values.items()}
            try:
                results = function.results(given)
            except RuntimeError:  # PyTorch has no such kernel for the CPU.
                continue
            wide = {k: v.double() if has_gradient(v) else v for k, v in given.items()}
            ours = evaluate(forward, detached(wide), [], sample)
            if any(_is_lost(left, right) for left, right in zip(ours, results, strict=True)):
                name = str(dtype).removeprefix("torch.")
                raise FinalError(f"a result that may be the largest number of {name}, as torch.finfo has it", 4)


def _is_largest(argument: dict[str, Any]) -> bool:
    value = argument.get("constant", 0)
    return math.isfinite(value) and abs(value) >= _NEAR * torch.finfo(torch.float32).max


def _samples(sample: Sample) -> Iterator[Sample]:
    """With infinities among the numbers; and with numbers and masks that are the same for all elements, so that a mask
    of comparisons leaves none or all."""
    floats = {name: value for name, value in sample.tensors().items() if has_gradient(value)}
    masks = {name: value for name, value in sample.tensors().items() if value.dtype == torch.bool}
    yield replace(sample, values={**sample.values, **{k: _with_infinities(v) for k, v in floats.items()}})
    for is_set in (False, True) if masks else ():
        yield replace(sample, values={**sample.values, **{k: torch.full_like(v, is_set) for k, v in masks.items()}})
    for number in _ALIKE:
        yield replace(sample, values={**sample.values, **{k: torch.full_like(v, number) for k, v in floats.items()}})


def _with_infinities(tensor: Tensor) -> Tensor:
    places = torch.arange(tensor.numel()).reshape(tensor.shape) % 4
    return tensor.masked_fill(places == 1, math.inf).masked_fill(places == 2, -math.inf)


def _is_lost(left: Tensor | None, right: Tensor) -> bool:
    """Whether a number of a result is infinite for a kernel alone."""
    if left is None or not has_gradient(right):
        return False
    left = left.to(right.dtype)
    left = left.reshape(right.shape) if left.numel() == right.numel() else left.expand(right.shape)
    return bool((right.isfinite() & ~left.isfinite()).any())
