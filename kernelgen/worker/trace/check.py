"""Compares a traced graph with the function that it was traced from, and asks what values that function takes."""

from typing import Any

import torch

from kernelgen.worker.trace.comparison import compare, detached, gradients, leaves_of
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.decisions import check_decisions
from kernelgen.worker.trace.evaluate import evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, firsts, has_gradient
from kernelgen.worker.trace.precision import tolerance_of
from kernelgen.worker.trace.refusals import PathError, RefusedError

# The elements of a dimension that is longer than those of other samples.
_LONG = 13
# A place that no row has.
_FAR = 2**40


def check(function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any] | None) -> None:
    """Raises RefusedError where the graph is not the function, as at a number where the function takes another path."""
    tolerance = tolerance_of(function, assumption.sample(0))
    for sample in assumption.special_samples(function.numbers):
        _check_at(sample, function, forward, backward, tolerance)
    check_decisions(function, assumption, lambda sample: _check_side(sample, function, forward, backward, tolerance))
    # A sample may be too short for an index to reach its end, or for a variance to have degrees of freedom.
    for sample in assumption.long_samples(max(function.largest_bound, _LONG)):
        _check_long(sample, function, forward, backward, tolerance)


def _check_long(
    sample: Sample, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None, tolerance: float
) -> None:
    """The same of a sample of which one dimension is long; a gradient that differs there alone is PyTorch's."""
    sizes = f"dimensions of {', '.join(map(str, sample.shape[:-1]))} and {sample.shape[-1]} elements"
    try:
        function.call(*sample.values.values())
    except Exception as error:
        if function.largest_bound < 2:
            return  # No index is in the way.
        raise RefusedError(f"that it takes no {sizes}, which an index in it is short of", 4) from error
    for of_gradient in (None, backward) if backward else (None,):
        try:
            _check_at(sample, function, forward, of_gradient, tolerance)
        except RefusedError as refused:
            reason = RefusedError(f"another path that it takes for {sizes}", refused.progress)
            reason.is_of_gradient = of_gradient is not None
            raise reason from refused


def _check_side(
    sample: Sample, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None, tolerance: float
) -> None:
    """The same of a sample that is chosen for a step of the function."""
    try:
        _check_at(sample, function, forward, backward, tolerance)
    except RefusedError as refused:
        sizes = " x ".join(map(str, sample.shape))
        reason = str(refused) if " where " in str(refused) else f"another path that it takes for tensors of {sizes}"
        raise PathError(reason, refused.progress) from refused


def _check_at(
    sample: Sample, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None, tolerance: float
) -> None:
    leaves = leaves_of(sample.values)
    try:
        results = function.results(leaves)
    except Exception:  # It does not take this number.
        return
    if any(result.is_complex() for result in results):
        return  # As of a power of a negative number: it does not mean this one.
    ours = evaluate(forward, detached(leaves), [], sample)
    compare(ours, [result.detach() for result in results], sample, tolerance)
    floating = [result for result in results if has_gradient(result)]
    if backward is None or not any(result.isfinite().any() for result in floating):
        return  # Where nothing is finite, as divided by 0, no gradient means anything.
    grads, expected = gradients(results, leaves)
    compare(evaluate(backward, detached(leaves), grads, sample), expected, sample, tolerance)


def agrees(function: Function, assumption: Any, forward: dict[str, Any]) -> bool:
    """Whether the function takes arguments of another assumption, and its graph is the same."""
    orders = [*assumption.orders.values(), *(out["order"] for out in forward["outputs"] if "order" in out)]
    if any(len(order) != assumption.rank for order in orders):
        return False
    sample = assumption.sample(1)
    leaves = leaves_of(sample.values)
    try:
        results = function.results(leaves)
    except Exception:  # It takes no such arguments.
        return False
    outputs = forward["outputs"]
    if "cuts" in forward:
        outputs = [out | {"cut": Cut(**cut)} for out, cut in zip(firsts(forward), forward["cuts"], strict=True)]
    ours = evaluate(forward, detached(leaves), [], sample)
    for output, left, right in zip(outputs, ours, results, strict=True):
        if tuple(right.shape) != _shape_of(output, sample) or left.numel() not in (1, right.numel()):
            return False
    try:
        compare(ours, [result.detach() for result in results], sample, tolerance_of(function, sample))
    except RefusedError:
        return False
    return True


def _shape_of(output: dict[str, Any], sample: Sample) -> tuple[int, ...] | None:
    """The shape that an output of a graph has for a sample; None of one that no kernel returns."""
    kind = output["kind"]
    shapes = {"element": sample.shape, "row": sample.row_shape(output["keeps"]), "total": ()}
    if kind not in shapes:
        return None
    shape = output["cut"].whole(shapes[kind]) if "cut" in output else shapes[kind]
    shape = sample.joined_shape() if output.get("joined") else shape
    return tuple(shape[dim] for dim in output["order"]) if "order" in output else shape


def refused_places(function: Function, assumption: Any) -> list[str]:
    """The tensors of places that the function refuses where a row does not have them, on either side."""
    values = assumption.sample(0).values

    def refuses(name: str, place: int) -> bool:
        try:
            function.call(*{**values, name: torch.full_like(values[name], place)}.values())
        except Exception:  # In whatever way it refuses it.
            return True
        return False

    places = [name for name, dtype in assumption.dtypes.items() if dtype == "int"]
    return [name for name in places if all(refuses(name, place) for place in (-_FAR, _FAR))]


def constants(function: Function, assumption: Any) -> list[bool]:
    """Whether each result is held constant, as a detached one is: it has no gradient by what it was computed of."""
    values = assumption.sample(0).values
    leaves = {k: v.clone().requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    return [has_gradient(result) and not result.requires_grad for result in function.results(leaves)]


def contiguous(function: Function, assumption: Any) -> list[bool]:
    """Whether each result lies contiguously, whatever the order of its dimensions."""
    return [result.is_contiguous() for result in function.results(assumption.sample(0).values)]
