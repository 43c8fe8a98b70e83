"""Functions that cut another dimension than the last into parts, or join parts there, as a gate of channels does.

For the operator of such a function that dimension and those behind it are one, the last, whose parts are as long: views
of tensors that lie contiguously. The function that is stamped makes these views, and those of results.
"""

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.comparison import same_values
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.matrices import of_vectors
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.sizes import doubled, reads_further

# Sizes of the other dimensions, and the most dimensions of a tensor that are tried.
_SIZES = (2, 3, 5, 2)
_MOST_DIMENSIONS = len(_SIZES)
# Elements along the dimension in a part, where a part may have several.
_SEVERAL = 3


def of_operator(function: Function, assumption: Any) -> Function:
    """The function as it is of the operator's tensors, where it cuts such a dimension, or returns matrices."""
    dim = assumption.flat_dim
    if dim is None:
        return of_vectors(function, assumption)
    parts = {name: assumption.cuts[name].parts if name in assumption.cuts else 1 for name in assumption.kinds}
    places = {argument["name"]: i for i, argument in enumerate(assumption.arguments)}
    adapted = copy.copy(function)

    def call(*values: Any) -> Any:
        given = list(values)
        for name, count in parts.items():
            given[places[name]] = _at_dim(values[places[name]], dim, count)
        function.on_name = adapted.on_name
        try:
            results = function.call(*given)
        finally:
            function.on_name = None
        rank = given[places[next(iter(parts))]].ndim
        if not isinstance(results, (tuple, list)):
            return _at_end(results, dim, rank)
        return tuple(_at_end(result, dim, rank) for result in results)

    adapted.call = call
    return adapted


def facts_of(function: Function, assumption: Any) -> dict[str, Any]:
    """What is known of the dimension: `dim`, and whether each part has a single element along it (`exact`), as a colour
    of an image has, though the function takes more (`any_size`).

    Raises:
        RefusedError: the function is not that of the operator, for some number of dimensions or size of the dimension.
    """
    dim = assumption.flat_dim
    least = dim + 1 if dim >= 0 else -dim

    def agrees(size: int) -> bool:
        every = itertools.product(assumption.with_flags(), range(least, _MOST_DIMENSIONS + 1))
        return all(
            _is_that_of_operator(function, choice, shape)
            for choice, rank in every
            for shape in _part_shapes(rank, dim, size, function.largest_bound)
        )

    is_known = agrees(1)
    takes_several = is_known and agrees(_SEVERAL)
    if takes_several:
        is_known = agrees(function.largest_bound + 1)
    elif is_known:
        is_known = function.largest_bound <= max((cut.parts for cut in assumption.cuts.values()), default=0)
    if not is_known:
        raise RefusedError(f"another path that it takes for some sizes of dimension {dim}")
    any_size = not takes_several and _takes_longer(function, assumption, _part_shape(least, dim, 1))
    return {"dim": dim, "exact": not takes_several, "any_size": any_size}


def parts_of_results(function: Function, assumption: Any, cuts: Sequence[Cut]) -> list[int]:
    """Of how many parts each result is joined, or 0 where it lacks the dimension.

    Args:
        cuts: how each of the operator's results is cut.

    Raises:
        RefusedError: nothing is cut.
    """
    dim = assumption.flat_dim
    least = dim + 1 if dim >= 0 else -dim
    results = function.results(_drawn(assumption, _part_shape(least, dim, 1)))
    counts = [0 if result.ndim < least else cut.parts for result, cut in zip(results, cuts, strict=True)]
    if max([*counts, *(cut.parts for cut in assumption.cuts.values())]) < 2:
        raise RefusedError(f"that nothing of dimension {dim} is cut", 1)
    return counts


def longer_tensors(function: Function, assumption: Any) -> list[str]:
    """The tensors that may be longer than the first along the dimension that is cut, or that results are joined along:
    kernels are for parts of one size."""
    if assumption.exact:
        return []
    dim = -1 if assumption.flat_dim is None else assumption.flat_dim
    least = dim + 1 if dim >= 0 else -dim
    is_last = assumption.flat_dim is None
    values = assumption.sample(0).values if is_last else _drawn(assumption, _part_shape(least, dim, _SEVERAL))
    first, *others = assumption.kinds

    def is_taken(name: str) -> bool:
        try:
            function.results({**values, name: torch.cat((values[name], values[name]), dim)})
        except Exception:  # It does not take it.
            return False
        return assumption.cuts.get(name) == assumption.cuts.get(first)

    return list(filter(is_taken, others))


def _takes_longer(function: Function, assumption: Any, shape: list[int]) -> bool:
    """Whether the function takes more elements than it reads, where parts have this shape.

    Raises:
        RefusedError: it does not mean single elements, as its results are longer then, or depend on all.
    """
    takes_any = False
    own = [result.shape for result in function.results(_drawn(assumption, shape))]
    for longer in doubled(assumption):
        values = _drawn(longer, shape)
        try:
            results = function.results(values)
        except Exception:  # It does not take these.
            continue
        is_longer = [result.shape for result in results] != own
        if is_longer or reads_further(function, assumption, values, assumption.flat_dim):
            raise RefusedError("parts of any size, where single elements were assumed", 1)
        takes_any = True
    return takes_any


def _is_that_of_operator(function: Function, assumption: Any, shape: list[int]) -> bool:
    """Whether the function gives the operator's results of tensors whose parts have this shape."""
    dim, values = assumption.flat_dim, _drawn(assumption, shape)
    flat = {name: value.flatten(dim) if isinstance(value, Tensor) else value for name, value in values.items()}
    try:
        results = function.results(values)
        ours = of_operator(function, assumption).results(flat)
    except Exception:  # It does not take such tensors.
        return False
    pairs = zip(ours, results, strict=True)
    return all(left.numel() == right.numel() and same_values(left.reshape(right.shape), right) for left, right in pairs)


def _drawn(assumption: Any, shape: list[int]) -> dict[str, Any]:
    """Arguments of the function, with tensors whose parts have this shape."""
    generator = torch.Generator().manual_seed(len(shape))
    values = dict(assumption.sample(0).values)
    for name, value in values.items():
        if isinstance(value, Tensor):
            parts = assumption.cuts[name].parts if name in assumption.cuts else 1
            whole = _whole_shape(shape, assumption.flat_dim, parts)
            values[name] = value.flatten()[torch.randint(value.numel(), whole, generator=generator)]
    return values


def _part_shapes(rank: int, dim: int, size: int, bound: int) -> Iterator[list[int]]:
    """Shapes of parts with a size of the dimension; then with each other one longer than such an index reaches."""
    shape = _part_shape(rank, dim, size)
    yield shape
    for other in range(rank) if bound >= min(_SIZES) else ():
        if other != dim % rank:
            yield [*shape[:other], bound + 1, *shape[other + 1 :]]


def _part_shape(rank: int, dim: int, size: int) -> list[int]:
    shape = list(_SIZES[:rank])
    shape[dim] = size
    return shape


def _whole_shape(shape: list[int], dim: int, parts: int) -> list[int]:
    """The shape of what is joined of so many parts of this shape; of 0, without the dimension."""
    place = dim % len(shape)
    return [*shape[:place], *([shape[place] * parts] if parts else []), *shape[place + 1 :]]


def _at_dim(tensor: Tensor, dim: int, parts: int) -> Tensor:
    """A tensor of the operator as the function has it, with a single element of each part along the dimension."""
    apart = tensor.unflatten(-1, (parts, tensor.shape[-1] // parts))
    for _ in range(-2 - dim):
        apart = apart.unsqueeze(-1)
    if dim >= 0:
        apart = apart.movedim(-2, 0)
    for _ in range(dim):
        apart = apart.unsqueeze(0)
    return apart


def _at_end(result: Any, dim: int, rank: int) -> Any:
    """The opposite, of a result of the function, whose arguments have so many dimensions."""
    if not isinstance(result, Tensor):
        return result
    is_dropped = result.ndim == rank - 1
    for _ in range(-2 - dim):
        result = result.squeeze(-1)
    for _ in range(dim):
        result = result.squeeze(0)
    if is_dropped:
        return result
    return (result.movedim(0, -2) if dim >= 0 else result).flatten(-2)
