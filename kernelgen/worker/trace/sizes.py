"""The shapes and sizes of tensors that a function takes, beside those that it was traced with."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.comparison import compare, gradients_by, leaves_of, same_values
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.evaluate import evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, firsts, has_gradient, is_differentiable
from kernelgen.worker.trace.precision import tolerance_of
from kernelgen.worker.trace.refusals import AnySizeError, RefusedError

# As the suite of a pointwise op has them; of no more elements than a sample.
_ANY_SHAPES = ((), (5,), (3, 5), (2, 3, 1, 5), (0, 5), (5, 0))
# The same of tensors whose last two dimensions are of one size.
_SQUARE_SHAPES = ((5, 5), (2, 3, 3), (2, 1, 3, 3), (0, 0), (3, 1, 1))


def refuse_other_sizes(function: Function, assumption: Any) -> None:
    """Raises RefusedError where the function does not mean points, which have so many numbers in the last dimension: it
    takes longer parts, and its results are longer then. Raises AnySizeError where they are not."""
    of_matrices = [size for sizes in assumption.matrix_sizes if sizes for size in sizes]
    if function.largest_bound > max([*(cut.parts for cut in assumption.cuts.values()), *of_matrices]):
        raise RefusedError(f"an index of {function.largest_bound} of points", -1)  # The plain case says more.
    of_points = function.results(assumption.sample(0).values)
    parts = {cut.parts for cut in assumption.cuts.values()}
    are_points = [result.ndim == assumption.rank and result.shape[-1] in parts for result in of_points]
    for longer in (*doubled(assumption), replace(assumption, exact=False)):
        values = longer.sample(0).values
        try:
            of_parts = function.results(values)
        except Exception:  # It does not take these.
            continue
        is_longer = any(a.shape != b.shape for a, b in zip(of_points, of_parts, strict=True))
        if is_longer or reads_further(function, assumption, values, -1):
            raise RefusedError("parts of any size, where points were assumed", 1)
        if not any(are_points):
            raise AnySizeError("parts of any size, where points were assumed", 1)


def reads_further(function: Function, assumption: Any, values: dict[str, Any], dim: int) -> bool:
    """Whether results depend on more elements of this dimension than there are parts, of tensors that have more."""
    fewer = dict(values)
    for name, cut in assumption.cuts.items():
        fewer[name] = values[name].clone()
        fewer[name].narrow(dim, cut.parts, values[name].shape[dim] - cut.parts).zero_()
    return not all(map(same_values, function.results(values), function.results(fewer)))


def doubled(assumption: Any) -> Iterator[Any]:
    """The same with twice as many parts of some tensors that are cut: of single elements, some may have been repeated
    to meet others."""
    for count in range(1, len(assumption.cuts) + 1):
        for names in itertools.combinations(assumption.cuts, count):
            twice = {name: replace(assumption.cuts[name], parts=2 * assumption.cuts[name].parts) for name in names}
            yield replace(assumption, cuts=assumption.cuts | twice)


def takes_other_points(function: Function, assumption: Any) -> bool:
    """Whether the function takes points of another number of parts as well."""
    counts = {cut.parts for cut in assumption.cuts.values()}
    for parts in {2, 3, 4} - counts if assumption.exact else ():
        cuts = {name: replace(cut, parts=parts) for name, cut in assumption.cuts.items()}
        try:
            function.results(replace(assumption, cuts=cuts).sample(0).values)
        except Exception:  # It does not take these.
            continue
        return True
    return False


def refuse_unread_parts(assumption: Any, forward: dict[str, Any]) -> None:
    """Raises RefusedError where the function does not read every part of what is cut: its points may have more."""
    values = [*(argument for node in forward["nodes"] for argument in node["arguments"]), *forward["outputs"]]
    read = {(value["input"], value["part"]) for value in values if "part" in value}
    for name, cut in assumption.cuts.items():
        if any((name, k) not in read for k in range(cut.parts)):
            raise RefusedError(f"{name}, some of whose numbers are not read; --shapes says how many there are", 1)


def check_shapes(function: Function, assumption: Any, forward: dict[str, Any]) -> set[str]:
    """Raises RefusedError where a pointwise function does not take tensors of any shape, as its kernels do. Returns
    which tensors it does not take of those that have no `columns`, or no `rows`: some functions cannot cut these."""
    sample, refused = assumption.sample(0), set()
    tolerance = tolerance_of(function, sample)
    cuts = [Cut(**cut) for cut in forward["cuts"]] if assumption.cuts is not None else None
    dropped = {i for i, output in enumerate(firsts(forward)) if output.get("dropped")}
    shapes = _ANY_SHAPES
    if assumption.coordinates:
        shapes = _SQUARE_SHAPES if assumption.square else tuple(shape for shape in shapes if len(shape) > 1)
    if assumption.exact:
        shapes = tuple((*shape[:-1], 1) for shape in shapes if shape)
    if assumption.matrices:
        shapes = tuple(shape for shape in shapes if len(shape) == 2)
    for shape in shapes:
        if cuts and not shape:
            continue
        given = {name: of_shape(name, sample, shape) for name in sample.tensors()}
        # In float64: float32's roundings differ from those of the graph.
        values = {k: v.double() if has_gradient(v) else v for k, v in {**sample.values, **given}.items()}
        try:
            results = function.results(values)
        except Exception as error:  # It does not take them.
            if cuts and 0 in shape:
                refused.add("rows" if shape[-1] else "columns")
                continue
            raise RefusedError(f"that it takes no tensors of shape {shape}", 4) from error
        ours = evaluate(forward, values, [], sample, shape)
        expected = [cut.whole(shape) for cut in cuts] if cuts else [shape] * len(results)
        expected = [own[:-1] if i in dropped else own for i, own in enumerate(expected)]
        if [tuple(result.shape) for result in results] != expected:
            raise RefusedError(f"a result of another shape for tensors of shape {shape}", 4)
        compare(ours, results, sample, tolerance)
    return refused


def of_shape(name: str, sample: Sample, shape: tuple[int, ...]) -> Tensor:
    """A tensor of the elements of the sample's, where parts have this shape."""
    own = shape[:-1] if name in sample.numbers else sample.cut(name).whole(shape)
    elements = sample.values[name].flatten()
    return elements[torch.arange(math.prod(own)) % elements.numel()].reshape(own)


def broadcasts(function: Function, assumption: Any) -> bool:
    """Whether the function takes tensors of other shapes that broadcast, and all results have the shape of all. Where
    tensors are cut, they broadcast in all dimensions but the last.

    Raises:
        RefusedError: it takes them, and computes something else of them than PyTorch's rules say.
    """
    sample = assumption.sample(0)
    is_cut = assumption.cuts is not None
    if assumption.matrices or assumption.flat_dim is not None:
        return False
    if assumption.coordinates or assumption.neighbours:
        return _broadcasts_to_first(function, sample)
    smaller_parts = ((0, 0), (0,), (slice(0, 1),)) if is_cut else ((0, 0), (..., slice(0, 1)), (0, 0, 0))
    for name in sample.tensors() if len(sample.tensors()) > 1 else ():
        full = sample.values[name].shape
        for index in smaller_parts:
            smaller = sample.values[name][index]
            try:
                results = function.results({**sample.values, name: smaller})
            except Exception:  # It does not take these.
                return False
            expected = function.results({**sample.values, name: smaller.expand(full)})
            if any(a.shape != b.shape for a, b in zip(results, expected, strict=True)):
                return False  # A result is as large as this tensor alone.
            if not all(same_values(a, b) for a, b in zip(results, expected, strict=True)):
                raise RefusedError(f"that it treats {name} in another way where its shape is {tuple(smaller.shape)}", 4)
        # A result that does not depend on the only tensor of all dimensions is smaller.
        others = {other: tensor[0, 0] for other, tensor in sample.tensors().items() if other != name}
        whole = [tuple(result.shape) for result in function.results(sample.values)]
        if [tuple(result.shape) for result in function.results({**sample.values, **others})] != whole:
            return False
    return True


def _broadcasts_to_first(function: Function, sample: Sample) -> bool:
    """Whether tensors but the first one may have shapes that broadcast to its own."""
    rank = len(sample.shape)
    smaller_parts = ((0,) * (rank - 1), (..., slice(0, 1)), (0,) * rank, (slice(None), slice(0, 1), slice(0, 1)))
    others = list(sample.tensors())[1:]
    return all(_takes(function, sample, name, index) for name in others for index in smaller_parts)


def vectors(function: Function, assumption: Any) -> dict[str, str]:
    """The tensors of whole rows that may have other shapes: `either`, as well a vector of the last dimension, which
    each row then meets; or `broadcast`, any shape that PyTorch's rules repeat to that of the first."""
    sample = assumption.sample(0)
    if sample.dims != (len(sample.shape) - 1,) or assumption.dim or assumption.split:
        return {}
    shapes = {}
    vector = (0,) * (len(sample.shape) - 1)
    others = ((slice(1),), (..., slice(1)), (*vector, 0))
    for name in list(sample.tensors())[1:]:
        is_apart = name in assumption.spreads or name in assumption.orders
        if assumption.kinds[name] != "element" or sample.cut(name).parts > 1 or is_apart:
            continue
        if _takes(function, sample, name, vector):
            shapes[name] = "broadcast" if all(_takes(function, sample, name, index) for index in others) else "either"
    if not _take_together(function, sample, shapes, vector):
        return {}
    broadcast = [name for name, shape in shapes.items() if shape == "broadcast"]
    if not all(_take_together(function, sample, broadcast, index) for index in others):
        shapes |= dict.fromkeys(broadcast, "either")
    return shapes


def _take_together(function: Function, sample: Sample, names: Iterable[str], index: tuple[Any, ...]) -> bool:
    """Whether the function takes this part of all these tensors as it takes the parts repeated to the tensors' shape: a
    sum of what is small alone has fewer terms. Results are of the same dtype, which a tensor without dimensions has no
    say in."""
    smaller = {name: sample.values[name][index] for name in names}
    for dtype in (torch.float32, torch.bfloat16):
        both = [
            {k: v.to(dtype) if has_gradient(v) else v for k, v in {**sample.values, **parts}.items()}
            for parts in (smaller, {name: part.expand(sample.shape) for name, part in smaller.items()})
        ]
        try:
            pairs = list(zip(*map(function.results, both), strict=True))
        except Exception:  # It does not take these, or PyTorch has no such kernel for the CPU.
            return dtype is torch.bfloat16
        if any(a.dtype != b.dtype for a, b in pairs):
            return False
        if dtype is torch.float32 and not all(same_values(a, b) for a, b in pairs):
            return False
    return True


def _takes(function: Function, sample: Sample, name: str, index: tuple[Any, ...]) -> bool:
    """Whether the function takes this part of a tensor as it takes the part repeated to the tensor's shape."""
    smaller = sample.values[name][index]
    try:
        results = function.results({**sample.values, name: smaller})
    except Exception:  # It does not take these.
        return False
    expected = function.results({**sample.values, name: smaller.expand(sample.shape)})
    return all(same_values(a, b) for a, b in zip(results, expected, strict=True))


def takes_short_rows(function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any]) -> bool:
    """Whether rows of one element have a result: a difference from the mean, for one, is then nothing but noise."""
    is_permuted = assumption.orders or any("order" in output for output in forward["outputs"])
    if assumption.cuts is not None or assumption.square or assumption.split or is_permuted:
        return False
    *_, sample = assumption.special_samples()  # Each scalar at its default: a small one hides no noise.
    shape = tuple(1 if dim in sample.dims else size for dim, size in enumerate(sample.shape))
    short = {k: _short(k, v, sample, shape) for k, v in sample.values.items()}
    sample = replace(sample, values=short, shape=shape)
    leaves = leaves_of(short)
    try:
        results = function.results(leaves)
    except Exception:  # It does not take these.
        return False
    # Noise is what the order of operations decides: it differs where the formula or the dtype is another.
    narrow = {k: v.float() if has_gradient(v) else v for k, v in short.items()}
    ours = evaluate(forward, short, [], sample)
    pairs = list(zip(ours, results, strict=True))
    roundings = list(zip(ours, evaluate(forward, narrow, [], sample), strict=True))
    if backward:
        grads = [torch.full_like(result, 0.7) for result in results]
        ours = evaluate(backward, short, grads, sample)
        pairs += zip(ours, gradients_by(results, grads, leaves), strict=True)
        roundings += zip(ours, evaluate(backward, narrow, [grad.float() for grad in grads], sample), strict=True)
    return _are_close(pairs, 1e-13) and _are_close(roundings, 1e-4)


def _short(name: str, value: Any, sample: Sample, shape: tuple[int, ...]) -> Any:
    """A tensor's part in rows of one element."""
    if not isinstance(value, Tensor):
        return value
    if name in sample.spreads:
        value = value[tuple(slice(shape[dim]) for dim in sample.spreads[name])]
    elif order := sample.orders.get(name):
        value = value[tuple(slice(shape[dim]) for dim in order)]
    elif tuple(value.shape) == sample.shape:
        value = value[tuple(slice(size) for size in shape)]
    elif tuple(value.shape) == tuple(sample.shape[dim] for dim in sample.dims):
        value = value[(slice(1),) * value.ndim]
    return value.double() if has_gradient(value) else value.clamp(max=0) if value.dtype == torch.int64 else value


def _are_close(pairs: list[tuple[Tensor | None, Tensor | None]], tolerance: float) -> bool:
    numbers = [(left.double(), right.double()) for left, right in pairs if left is not None and right is not None]
    return all(
        bool(right.isfinite().all())
        and torch.allclose(left.squeeze(), right.squeeze().expand_as(left.squeeze()), tolerance, 0)
        for left, right in numbers
    )


def takes_no_rows(function: Function, assumption: Any) -> bool:
    """Whether tensors without rows have results, and gradients: a mean over the rows has not, and some functions of
    PyTorch refuse such tensors."""
    sample = assumption.sample(0)
    kept = {*sample.dims, *(sample.split.places(len(sample.shape)) if sample.split else ())}
    shape = tuple(size if dim in kept else 0 for dim, size in enumerate(sample.shape))
    if 0 not in shape:
        return False
    empty = replace(sample, shape=shape)
    values = dict(sample.values)
    for name, tensor in sample.tensors().items():
        if sample.kinds[name] != "column":
            of_kind = shape if sample.kinds[name] == "element" else empty.row_shape()
            of_kind = empty.spread_shape(name) if name in sample.spreads else of_kind
            if sample.split and name in sample.split.joined:
                of_kind = empty.joined_shape(sample.spreads.get(name))
            if name in sample.orders:
                of_kind = tuple(of_kind[dim] for dim in sample.orders[name])
            values[name] = tensor.new_empty(sample.cut(name).whole(of_kind))
    leaves = {k: v.clone().requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    try:
        results = function.results(leaves)
        differentiable = [result for result in results if is_differentiable(result)]
        if differentiable:
            wanted = [value for value in leaves.values() if has_gradient(value)]
            torch.autograd.grad([result.sum() for result in differentiable], wanted, allow_unused=True)
    except Exception:  # It does not take them.
        return False
    return not any(bool(result.double().isnan().any()) for result in results)
