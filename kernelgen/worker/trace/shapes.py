"""Whether kernels row by row take the shapes that the function is meant for."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.foreign_operators import unknown_operator
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, inverse
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, FinalError, RefusedError
from kernelgen.worker.trace.rows import dims_of

# How far a trace came: to kernels, which take no such shapes; or whose results have other shapes.
SHAPES_ARE_OTHERS, RESULTS_ARE_OTHERS = 5, 6
_FLOATING = ("float32", "float16", "bfloat16", "float64")
# A size that no sample has.
_OTHER_SIZE = 17


class MatrixError(FinalError):
    """What was taken for a vector may be a matrix as well: most who write a product mean that."""


def refuse_matrices(function: Function, assumption: Any) -> None:
    """Raises MatrixError where the function takes a matrix, with a size of its own, for a vector of the assumption, and
    does not merely repeat itself for each row of the matrix, as PyTorch's broadcasting does."""
    vectors = [name for name, kind in assumption.kinds.items() if kind != "element"]
    for name in vectors:
        for sample in _with_a_matrix(assumption.sample(0), name, vectors):
            try:
                results = function.results(sample.values)
            except Exception:  # It does not take it.
                continue
            if _is_repeated(function, sample, name, results) or all(result.numel() == 1 for result in results):
                continue
            operator = unknown_operator(function, sample)
            what = f"{operator}, where" if operator else "that"
            raise MatrixError(f"{what} {name} has two dimensions", SHAPES_ARE_OTHERS)


def _is_repeated(function: Function, sample: Sample, name: str, results: list[Tensor]) -> bool:
    """Whether the results are those of the matrix's rows, one after the other."""
    try:
        of_rows = [function.results({**sample.values, name: row}) for row in sample.values[name]]
    except Exception:  # It does not take the rows.
        return False
    stacked = [torch.stack(parts) for parts in zip(*of_rows, strict=True)]
    pairs = list(zip(results, stacked, strict=True))
    return all(a.shape == b.shape and torch.allclose(a.double(), b.double(), equal_nan=True) for a, b in pairs)


def _with_a_matrix(sample: Sample, name: str, vectors: Sequence[str]) -> Iterator[Sample]:
    """The sample with a matrix for a vector, in either order; others as they are, or vectors of the new size."""
    vector = sample.values[name]
    if vector.ndim != 1:
        return
    size = vector.shape[0]
    others = [other for other in vectors if other != name]
    for shape in ((size, _OTHER_SIZE), (_OTHER_SIZE, size)):
        for changed in itertools.product((False, True), repeat=len(others)):
            shapes = {name: shape} | {other: (_OTHER_SIZE,) for other, new in zip(others, changed, strict=True) if new}
            tensors = {name: _of_shape(sample.values[name], shape) for name, shape in shapes.items()}
            yield replace(sample, values={**sample.values, **tensors})


def refuse_other_shapes(
    function: Function, facts: Mapping[str, Any], sample: Sample, calls: Sequence[Mapping[str, Any]]
) -> None:
    """Raises RefusedError where kernels with these `facts` do not take one of the calls, or the function returns other
    shapes than the call says."""
    for call in calls:
        shapes = {name: tuple(shape) for name, shape in call["arguments"].items()}
        given = {name: _of_shape(value, shapes[name]) for name, value in sample.values.items() if name in shapes}
        values = {**sample.values, **given}
        for name in shapes:
            if not _is_taken(name, shapes, facts):
                try:
                    operator = unknown_operator(function, replace(sample, values=values))
                except Exception:  # The function does not take these shapes either.
                    operator = None
                reason = operator or f"that {name} has the shape {shapes[name]}"
                raise RefusedError(reason, SHAPES_ARE_OTHERS)
        if [tuple(result.shape) for result in function.results(values)] != [tuple(shape) for shape in call["results"]]:
            raise RefusedError("that --shapes is not what it returns", RESULTS_ARE_OTHERS)


def refuse_other_dtypes(said: Mapping[str, str], traced: Mapping[str, str]) -> None:
    """Raises RefusedError where kernels do not take tensors of these dtypes: those of floating-point numbers have to
    be of one dtype. It is known before anything is traced, so an operator that is unknown is the better reason."""
    floating = {said[name] for name, dtype in traced.items() if dtype == "float"}
    for name, dtype in said.items():
        taken = {"int": "int64"}.get(traced[name], traced[name])
        is_alike = taken == "float" and len(floating) == 1 and dtype in _FLOATING
        if dtype != taken and not is_alike:
            raise RefusedError(f"that {name} is of {dtype}", UNKNOWN_OPERATOR)


def _is_taken(name: str, shapes: Mapping[str, tuple[int, ...]], facts: Mapping[str, Any]) -> bool:
    """Whether kernels take a tensor of its shape beside the others."""
    if "flat" in facts:
        return _is_flat_part_taken(name, shapes, facts)
    if (known := facts.get("neighbours")) and not _has_neighbours(next(iter(shapes.values())), known):
        return False
    if facts.get("cuts") is not None:
        return _is_part_taken(name, shapes, facts)
    orders = facts.get("orders", {})
    shapes = {n: _in_own_order(shape, orders.get(n)) for n, shape in shapes.items()}
    shape, whole = shapes[name], next(shapes[n] for n, kind in facts["kinds"].items() if kind == "element")
    if facts["recipe"] == "pointwise":
        return shape == whole or facts["broadcasts"]
    if facts.get("square") and whole[-1:] != whole[-2:-1]:
        return False
    if own := facts.get("spreads", {}).get(name):
        return len(whole) >= -own[0] and shape == tuple(whole[dim] for dim in own)
    dims = _row_of(facts, shapes, len(whole))
    if dims is None or not facts["ranks"][0] <= len(whole) <= (facts["ranks"][1] or len(whole)):
        return False
    if facts["kinds"][name] == "column":
        return shape == tuple(whole[dim] for dim in dims)
    if facts["kinds"][name] == "row":
        return shape == tuple(size for dim, size in enumerate(whole) if dim not in dims)
    if shape == whole or name not in facts["vectors"]:
        return shape == whole
    return shape == whole[-1:] or (facts["vectors"][name] == "broadcast" and _broadcasts_to(shape, whole))


def _in_own_order(shape: tuple[int, ...], order: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(shape[dim] for dim in inverse(order)) if order and len(order) == len(shape) else shape


def _is_part_taken(name: str, shapes: Mapping[str, tuple[int, ...]], facts: Mapping[str, Any]) -> bool:
    """The same where the last dimension of some is cut: the parts are equally long, other dimensions may broadcast."""
    numbers = facts.get("numbers", ())
    parts = {n: (*s, 1) if n in numbers else _part_shape(s, facts["cuts"].get(n)) for n, s in shapes.items()}
    if any(part is None for part in parts.values()):
        return False
    if facts.get("exact") and any(part[-1] != 1 for part in parts.values()):
        return False
    most = max(parts.values(), key=len)
    if facts.get("matrices") and len(most) != 2:
        return False
    if own := facts.get("spreads", {}).get(name):
        return len(most) >= -own[0] and parts[name] == tuple(most[dim] for dim in own)
    return parts[name] == most or (facts["broadcasts"] and parts[name][-1:] == most[-1:])


def _has_neighbours(shape: tuple[int, ...], known: Mapping[str, Any]) -> bool:
    """Whether kernels that read neighbours take a first tensor of this shape."""
    if known["is_in_front"]:
        return len(shape) >= known["rank"] - 1
    return len(shape) == known["rank"] if known["rank"] else len(shape) >= known["least_rank"]


def _is_flat_part_taken(name: str, shapes: Mapping[str, tuple[int, ...]], facts: Mapping[str, Any]) -> bool:
    """The same where another dimension is cut: the parts are of one shape."""
    dim, parts = facts["flat"]["dim"], {}
    for other, shape in shapes.items():
        if not -len(shape) <= dim < len(shape):
            return False
        moved = (*shape[:dim], *shape[dim % len(shape) + 1 :], shape[dim])
        parts[other] = _part_shape(moved, facts["cuts"].get(other))
    first = next(iter(parts.values()))
    return parts[name] is not None and parts[name] == first and (first[-1] == 1 or not facts["flat"]["exact"])


def _part_shape(shape: tuple[int, ...], cut: Mapping[str, Any] | None) -> tuple[int, ...] | None:
    parts = cut["parts"] if cut else 1
    return (*shape[:-1], shape[-1] // parts) if shape and shape[-1] % parts == 0 else None


def _row_of(facts: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], rank: int) -> tuple[int, ...] | None:
    """The dimensions of a row among `rank`: any, where an argument of each call says which."""
    form = facts["rows"]
    if "like" in form:
        return tuple(range(rank - len(shapes[form["like"]]), rank))
    return (0,) if "argument" in form else dims_of(form, rank)


def _broadcasts_to(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    places = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, other) for size, other in places)


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of the same elements, each as often as it takes."""
    elements = tensor.flatten()
    return elements[torch.arange(torch.Size(shape).numel()) % elements.numel()].reshape(shape)
