"""Compares a traced graph with the function that it was traced from, and asks what that function takes."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.evaluate import evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample, has_gradient, is_differentiable
from kernelgen.worker.trace.refusals import AnySizeError, RefusedError

# As a share of the largest number, an error that no order of operations in float64 explains, but one in float32 does.
_INEXACT = 1e-9
# The same of roundings to float32, which a difference of numbers may magnify.
_OF_NARROW = 1e-5
# The largest number of float16, the narrowest of the dtypes.
_LARGEST = torch.finfo(torch.float16).max
# As the suite of a pointwise op has them; of no more elements than a sample.
_ANY_SHAPES = ((), (5,), (3, 5), (2, 3, 1, 5), (0, 5), (5, 0))
# The same of tensors whose last two dimensions are of one size.
_SQUARE_SHAPES = ((5, 5), (2, 3, 3), (2, 1, 3, 3), (0, 0), (3, 1, 1))
# A place that no row has.
_FAR = 2**40
# The dtypes of arguments that a result's dtype may follow, and those that it may have whatever they are.
_GIVEN = (torch.float32, torch.bfloat16)
_FIXED = (torch.float32, torch.bfloat16, torch.float16)


def check(function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any] | None) -> None:
    """Raises RefusedError where the graph is not the function, as at a number where the function takes another path."""
    tolerance = _tolerance(function, assumption.sample(0))
    for sample in assumption.special_samples(function.numbers):
        _check_at(sample, function, forward, backward, tolerance)
    # A sample may be too short for an index to reach its end.
    for sample in assumption.long_samples(function.largest_bound):
        sizes = f"dimensions of {', '.join(map(str, sample.shape[:-1]))} and {sample.shape[-1]} elements"
        try:
            function.call(*sample.values.values())
            _check_at(sample, function, forward, None, tolerance)
        except RefusedError as refused:
            raise RefusedError(f"another path that it takes for {sizes}", refused.progress) from refused
        except Exception as error:
            raise RefusedError(f"that it takes no {sizes}, which an index in it is short of", 4) from error


def _check_at(
    sample: Sample, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None, tolerance: float
) -> None:
    values = {k: v.double() if has_gradient(v) else v for k, v in sample.values.items()}
    leaves = {k: v.requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    try:
        results = function.call(*leaves.values())
    except (RuntimeError, ValueError, ArithmeticError, AssertionError, IndexError):
        return  # It does not take this number.
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if any(result.is_complex() for result in results):
        return  # As of a power of a negative number: it does not mean this one.
    ours = evaluate(forward, {k: v.detach() if isinstance(v, Tensor) else v for k, v in leaves.items()}, [], sample)
    _compare(ours, [result.detach() for result in results], sample, tolerance)
    if backward is None:
        return
    grads, expected = _gradients(results, leaves)
    detached = {k: v.detach() if isinstance(v, Tensor) else v for k, v in leaves.items()}
    _compare(evaluate(backward, detached, grads, sample), expected, sample, tolerance)


def refuse_other_sizes(function: Function, assumption: Any) -> None:
    """Raises RefusedError where the function does not mean points, which have so many numbers in the last dimension: it
    takes longer parts, and its results are longer then. Raises AnySizeError where they are not."""
    if function.largest_bound > max(cut.parts for cut in assumption.cuts.values()):
        raise RefusedError(f"an index of {function.largest_bound} of points", -1)  # The plain case says more.
    of_points = _results(function, assumption.sample(0).values)
    try:
        of_parts = _results(function, replace(assumption, exact=False).sample(0).values)
    except Exception:  # It takes no others.
        return
    parts = {cut.parts for cut in assumption.cuts.values()}
    are_points = [result.ndim == assumption.rank and result.shape[-1] in parts for result in of_points]
    if any(a.shape != b.shape for a, b in zip(of_points, of_parts, strict=True)):
        raise RefusedError("parts of any size, where points were assumed", 1)
    if not any(are_points):
        raise AnySizeError("parts of any size, where points were assumed", 1)


def refuse_unread_parts(assumption: Any, forward: dict[str, Any]) -> None:
    """Raises RefusedError where the function does not read every part of what is cut: its points may have more."""
    values = [*(argument for node in forward["nodes"] for argument in node["arguments"]), *forward["outputs"]]
    read = {(value["input"], value["part"]) for value in values if "part" in value}
    for name, cut in assumption.cuts.items():
        if any((name, k) not in read for k in range(cut.parts)):
            raise RefusedError(f"{name}, some of whose numbers are not read", 1)


def takes_float64(
    function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any] | None
) -> bool:
    """Whether the function computes in float64 for float64 arguments: not where it casts to float32 by name, and not
    where PyTorch's own kernel has constants of float32, as the gradient of hardsigmoid."""
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


def refused_places(function: Function, assumption: Any) -> list[str]:
    """The tensors of places that the function refuses where a row does not have them, on either side."""
    values = assumption.sample(0).values

    def refuses(name: str, place: int) -> bool:
        try:
            function.call(*{**values, name: torch.full_like(values[name], place)}.values())
        except (IndexError, RuntimeError):
            return True
        return False

    places = [name for name, dtype in assumption.dtypes.items() if dtype == "int"]
    return [name for name in places if all(refuses(name, place) for place in (-_FAR, _FAR))]


def fixed_dtypes(function: Function, assumption: Any) -> list[str | None]:
    """The dtype of each result of floating-point numbers that does not follow that of the arguments, as float32 where
    the function casts to it; None of others.

    Raises:
        RefusedError: a result's dtype follows in another way, or is none that kernels write.
    """
    sample = assumption.sample(0)
    every = [
        _results(function, {k: v.to(dtype) if has_gradient(v) else v for k, v in sample.values.items()})
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


def constants(function: Function, assumption: Any) -> list[bool]:
    """Whether each result is held constant, as a detached one is: it has no gradient by what it was computed of."""
    values = assumption.sample(0).values
    leaves = {k: v.clone().requires_grad_() if has_gradient(v) else v for k, v in values.items()}
    return [has_gradient(result) and not result.requires_grad for result in _results(function, leaves)]


def contiguous(function: Function, assumption: Any) -> list[bool]:
    """Whether each result lies contiguously, whatever the order of its dimensions."""
    return [result.is_contiguous() for result in _results(function, assumption.sample(0).values)]


def _tolerance(function: Function, sample: Sample) -> float:
    """The share of the largest number by which results may differ."""
    return _OF_NARROW if _computes_in_narrow_dtypes(function, sample) else 0.0


def _computes_in_narrow_dtypes(function: Function, sample: Sample) -> bool:
    """Whether something in the function is of another floating-point dtype than its arguments of float64."""
    with _Dtypes() as dtypes:
        function.call(*(v.double() if has_gradient(v) else v for v in sample.values.values()))
    return bool(dtypes.seen & {torch.float32, torch.float16, torch.bfloat16})


def _is_exact(function: Function, sample: Sample, forward: dict[str, Any], backward: dict[str, Any] | None) -> bool:
    """Whether the function's results and gradients are those of the graphs in float64."""
    leaves = {k: v.double().requires_grad_() if has_gradient(v) else v for k, v in sample.values.items()}
    results = _results(function, leaves)
    values = {k: v.detach() if isinstance(v, Tensor) else v for k, v in leaves.items()}
    pairs = list(zip(evaluate(forward, values, [], sample), results, strict=True))
    if backward:
        grads, expected = _gradients(results, leaves)
        pairs += zip(evaluate(backward, values, grads, sample), expected, strict=True)
    for left, right in pairs:
        if left is None or right is None or not has_gradient(right) or not right.isfinite().all():
            continue
        left = left.reshape(right.shape) if left.numel() == right.numel() else left.expand(right.shape)
        if (left - right).abs().max() > _INEXACT * max(1e-3, float(right.abs().max())):
            return False
    return True


def _gradients(results: list[Tensor], leaves: dict[str, Any]) -> tuple[list[Tensor], list[Tensor | None]]:
    """Cotangents of the results, and PyTorch's gradients of the floating-point leaves."""
    grads = [(0.7 + 0.1 * torch.arange(r.numel()).view(r.shape).cos()).to(r.dtype) for r in results]
    wanted = [value for value in leaves.values() if has_gradient(value)]
    pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if is_differentiable(result)]
    expected = torch.autograd.grad([p[0] for p in pairs], wanted, [p[1] for p in pairs], allow_unused=True)
    return grads, list(expected)


def between(function: Function, assumption: Any, forward: dict[str, Any]) -> list[str]:
    """The tensors whose numbers have to be drawn between 0 and 1, because others give NaN or infinity: log, for one;
    or numbers that float16 does not hold, as where they are divisors."""
    divisors = {
        node["arguments"][1]["input"]
        for node in forward["nodes"]
        if node["op"] == "div" and "input" in node["arguments"][1]
    }
    inverted = [node["arguments"][0] for node in forward["nodes"] if node["op"] == "reciprocal"]
    divisors |= {argument["input"] for argument in inverted if "input" in argument}
    floating = [name for name, dtype in assumption.dtypes.items() if dtype == "float"]
    if _is_finite(function, assumption, divisors):
        return sorted(divisors)
    chosen = list(floating)
    for name in (name for name in floating if name not in divisors):
        fewer = [other for other in chosen if other != name]
        if _is_finite(function, assumption, fewer):
            chosen = fewer
    return chosen


def _is_finite(function: Function, assumption: Any, drawn_between: Collection[str]) -> bool:
    values = assumption.large_sample().values
    leaves = {
        name: (value.sigmoid() if name in drawn_between else value).requires_grad_() if has_gradient(value) else value
        for name, value in values.items()
    }
    results = function.call(*leaves.values())
    results = [r for r in (results if isinstance(results, (tuple, list)) else [results]) if is_differentiable(r)]
    if not results:
        return True
    wanted = [value for value in leaves.values() if has_gradient(value)]
    grads = torch.autograd.grad([result.sum() for result in results], wanted, allow_unused=True)
    # Of a NaN this is not so either.
    return all(bool((tensor.abs() <= _LARGEST).all()) for tensor in (*results, *grads) if tensor is not None)


def check_shapes(function: Function, assumption: Any, forward: dict[str, Any]) -> set[str]:
    """Raises RefusedError where a pointwise function does not take tensors of any shape, as its kernels do. Returns
    which tensors it does not take of those that have no `columns`, or no `rows`: some functions cannot cut these."""
    sample, refused = assumption.sample(0), set()
    tolerance = _tolerance(function, sample)
    cuts = [Cut(**cut) for cut in forward["cuts"]] if assumption.cuts is not None else None
    dropped = {i for i, output in enumerate(firsts(forward)) if output.get("dropped")}
    shapes = _ANY_SHAPES
    if assumption.coordinates:
        shapes = _SQUARE_SHAPES if assumption.square else tuple(shape for shape in shapes if len(shape) > 1)
    if assumption.exact:
        shapes = tuple((*shape[:-1], 1) for shape in shapes if shape)
    for shape in shapes:
        if cuts and not shape:
            continue
        given = {name: _of_shape(value, sample.cut(name).whole(shape)) for name, value in sample.tensors().items()}
        # In float64: float32's roundings differ from those of the graph.
        values = {k: v.double() if has_gradient(v) else v for k, v in {**sample.values, **given}.items()}
        try:
            results = _results(function, values)
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
        _compare(ours, results, sample, tolerance)
    return refused


def firsts(forward: dict[str, Any]) -> list[dict[str, Any]]:
    """The output of each result, or that of its first part."""
    counts = [cut["parts"] for cut in forward.get("cuts", [])] or [1] * len(forward["outputs"])
    return [forward["outputs"][sum(counts[:i])] for i in range(len(counts))]


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor.flatten()[: math.prod(shape)].reshape(shape)


def broadcasts(function: Function, assumption: Any) -> bool:
    """Whether the function takes tensors of other shapes that broadcast, and all results have the shape of all. Where
    tensors are cut, they broadcast in all dimensions but the last.

    Raises:
        RefusedError: it takes them, and computes something else of them than PyTorch's rules say.
    """
    sample = assumption.sample(0)
    is_cut = assumption.cuts is not None
    if assumption.coordinates:
        return _broadcasts_to_first(function, sample)
    smaller_parts = ((0, 0), (0,), (slice(0, 1),)) if is_cut else ((0, 0), (..., slice(0, 1)), (0, 0, 0))
    for name in sample.tensors() if len(sample.tensors()) > 1 else ():
        full = sample.cut(name).whole(sample.shape)
        for index in smaller_parts:
            smaller = sample.values[name][index]
            try:
                results = _results(function, {**sample.values, name: smaller})
            except (RuntimeError, ValueError, IndexError):
                return False
            expected = _results(function, {**sample.values, name: smaller.expand(full)})
            if any(a.shape != b.shape for a, b in zip(results, expected, strict=True)):
                return False  # A result is as large as this tensor alone.
            if not all(_same_values(a, b) for a, b in zip(results, expected, strict=True)):
                raise RefusedError(f"that it treats {name} in another way where its shape is {tuple(smaller.shape)}", 4)
        # A result that does not depend on the only tensor of all dimensions is smaller.
        others = {other: tensor[0, 0] for other, tensor in sample.tensors().items() if other != name}
        whole = [tuple(result.shape) for result in _results(function, sample.values)]
        if [tuple(result.shape) for result in _results(function, {**sample.values, **others})] != whole:
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
    together = {name: sample.values[name][vector] for name in shapes}
    expanded = {name: tensor.expand(sample.shape) for name, tensor in together.items()}
    pairs = zip(_results(function, sample.values | together), _results(function, sample.values | expanded), strict=True)
    return shapes if all(_same_values(a, b) for a, b in pairs) else {}


def _takes(function: Function, sample: Sample, name: str, index: tuple[Any, ...]) -> bool:
    """Whether the function takes this part of a tensor as it takes the part repeated to the tensor's shape."""
    smaller = sample.values[name][index]
    try:
        results = _results(function, {**sample.values, name: smaller})
    except (RuntimeError, ValueError, IndexError):
        return False
    expected = _results(function, {**sample.values, name: smaller.expand(sample.shape)})
    return all(_same_values(a, b) for a, b in zip(results, expected, strict=True))


def agrees(function: Function, assumption: Any, forward: dict[str, Any]) -> bool:
    """Whether the function takes arguments of another assumption, and its graph is the same."""
    orders = [*assumption.orders.values(), *(out["order"] for out in forward["outputs"] if "order" in out)]
    if any(len(order) != assumption.rank for order in orders):
        return False
    sample = assumption.sample(1)
    leaves = {k: v.double().requires_grad_() if has_gradient(v) else v for k, v in sample.values.items()}
    try:
        results = _results(function, leaves)
    except Exception:  # It takes no such arguments.
        return False
    shapes = {"element": [sample.shape], "row": [sample.row_shape(), sample.row_shape(keeps=True)], "total": [()]}
    outputs = forward["outputs"]
    if "cuts" in forward:
        outputs = [out | {"cut": Cut(**cut)} for out, cut in zip(firsts(forward), forward["cuts"], strict=True)]
    ours = evaluate(forward, {k: v.detach() if has_gradient(v) else v for k, v in leaves.items()}, [], sample)
    for output, left, right in zip(outputs, ours, results, strict=True):
        if output["kind"] not in shapes:
            return False
        expected = shapes[output["kind"]][-1 if output["keeps"] and output["kind"] == "row" else 0]
        expected = output["cut"].whole(expected) if "cut" in output else expected
        expected = sample.joined_shape() if output.get("joined") else expected
        if "order" in output:
            expected = tuple(expected[dim] for dim in output["order"])
        if tuple(right.shape) != expected or left.numel() not in (1, right.numel()):
            return False
    try:
        _compare(ours, [result.detach() for result in results], sample, _tolerance(function, sample))
    except RefusedError:
        return False
    return True


def takes_short_rows(function: Function, assumption: Any, forward: dict[str, Any], backward: dict[str, Any]) -> bool:
    """Whether rows of one element have a result: a difference from the mean, for one, is then nothing but noise."""
    is_permuted = assumption.orders or any("order" in output for output in forward["outputs"])
    if assumption.cuts is not None or assumption.square or assumption.split or is_permuted:
        return False
    *_, sample = assumption.special_samples()  # Each scalar at its default: a small one hides no noise.
    shape = tuple(1 if dim in sample.dims else size for dim, size in enumerate(sample.shape))
    short = {k: _short(k, v, sample, shape) for k, v in sample.values.items()}
    sample = replace(sample, values=short, shape=shape)
    leaves = {k: v.clone().requires_grad_() if has_gradient(v) else v for k, v in short.items()}
    try:
        results = _results(function, leaves)
    except (RuntimeError, ValueError, IndexError):
        return False
    pairs = list(zip(evaluate(forward, short, [], sample), results, strict=True))
    if backward:
        wanted = [value for value in leaves.values() if has_gradient(value)]
        grads = [torch.full_like(result, 0.7) for result in results]
        chosen = [i for i, result in enumerate(results) if is_differentiable(result)]
        expected = torch.autograd.grad(
            [results[i] for i in chosen], wanted, [grads[i] for i in chosen], allow_unused=True
        )
        pairs += zip(evaluate(backward, short, grads, sample), expected, strict=True)
    # Noise is what the order of operations decides: it differs where the formula or the dtype is another.
    narrow = {k: v.float() if has_gradient(v) else v for k, v in short.items()}
    roundings = list(zip(evaluate(forward, short, [], sample), evaluate(forward, narrow, [], sample), strict=True))
    if backward:
        wide = evaluate(backward, short, grads, sample)
        roundings += zip(wide, evaluate(backward, narrow, [grad.float() for grad in grads], sample), strict=True)
    return _are_close(pairs, 1e-13) and _are_close(roundings, 1e-4)


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
        results = _results(function, leaves)
        differentiable = [result for result in results if is_differentiable(result)]
        if differentiable:
            wanted = [value for value in leaves.values() if has_gradient(value)]
            torch.autograd.grad([result.sum() for result in differentiable], wanted, allow_unused=True)
    except Exception:  # It does not take them.
        return False
    return not any(bool(result.double().isnan().any()) for result in results)


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


def _same_values(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left.double(), right.double(), 1e-5, 1e-6, equal_nan=True)


def _results(function: Function, values: dict[str, Any]) -> list[Tensor]:
    results = function.call(*values.values())
    return list(results) if isinstance(results, (tuple, list)) else [results]


class _Dtypes(TorchDispatchMode):
    """Notes the dtypes of all that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        self.seen |= {leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, Tensor)}
        return result


def _compare(ours: list[Tensor | None], theirs: list[Tensor | None], sample: Sample, tolerance: float = 0.0) -> None:
    """Raises RefusedError where they differ; `tolerance` is the share of the largest number that they may."""
    for left, right in zip(ours, theirs, strict=True):
        if left is None or right is None:
            same = (left is None and (right is None or not right.any())) or (right is None and not left.any())
        else:
            left = left.to(right.dtype)
            # Numbers of rows, and of a row's elements, have sizes of 1 here.
            if left.numel() != right.numel() and not _repeats(left.shape, right.shape):
                raise RefusedError("results of other sizes", 4)
            left = left.reshape(right.shape) if left.numel() == right.numel() else left.expand(right.shape)
            numbers = right.double()
            finite = numbers[numbers.isfinite()].abs()
            largest = float(finite.max()) if tolerance and finite.numel() else 0.0
            atol = 1e-9 + tolerance * largest
            same = torch.allclose(left.double(), numbers, rtol=1e-6, atol=atol, equal_nan=True)
        if not same:
            scalars = {k: v for k, v in sample.values.items() if not isinstance(v, Tensor)}
            values = " where " + ", ".join(f"{name} is {value}" for name, value in scalars.items()) if scalars else ""
            raise RefusedError(f"another path that it takes{values}", 4)


def _repeats(shape: Sequence[int], full: Sequence[int]) -> bool:
    """Whether a tensor of a shape can be repeated to a larger one."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(size in (1, whole) for size, whole in pairs)
