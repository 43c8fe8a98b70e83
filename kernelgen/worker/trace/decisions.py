"""What a function decides in Python by its scalars and by the sizes of its tensors, and arguments on the other sides.

A graph has the path of its samples alone: `if x.shape[-1] > 1024` is not in it. What a function compares, rounds and
divides in whole numbers is noted while it runs, for one set of arguments after another; where something comes out
otherwise, the graph has to be the function as well.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.scalars import RANK, SIZE, Decision, Numbers

_SIZES = (0, 1, 2, 4, 6, 8, 16, 33, 64, 129, 512, 1025, 4100)
_MOST_ELEMENTS = 1 << 21
_MOST_CHECKS = 3  # Of a path: two may come to the same where a dimension is of one element.
_RANKS = (1, 2, 3, 4, 5, 6)
_FLOATS = (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 3.0, 5.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6)
_INTEGERS = (*range(3, 18), 31, 32, 33, 64, 100, 127, 128, 256, 1000, 1024, 10_000, 100_000)


def check_decisions(function: Function, assumption: Any, check: Callable[[Sample], None]) -> None:
    """Calls `check` with a sample of each path, and each side of a step, that some arguments lead to.

    Raises:
        RefusedError: the function compares a scalar, or a size, with a number, and no arguments are on its other side.
    """
    first = _decisions(function, assumption.sample(0)) or []
    if not first:
        return
    checks = Counter({_path(first): _MOST_CHECKS})
    sides: dict[tuple[int, int], set[Any]] = {}
    asked: dict[tuple[int, int], Decision] = {}
    origins = frozenset().union(*(decision.origins for decision in first))
    for sample in itertools.chain([assumption.sample(0)], _others(assumption, origins, function.numbers)):
        decisions = _decisions(function, sample)
        for decision in decisions or ():
            sides.setdefault(decision.place, set()).add(decision.outcome)
            asked[decision.place] = decision
        if decisions is not None and checks[_path(decisions)] < _MOST_CHECKS:
            checks[_path(decisions)] += 1
            check(sample)
    for place, decision in asked.items():
        # Kernels of rows say how many dimensions they take.
        is_known = decision.origins == {RANK} and assumption.recipe == "row_wise"
        is_comparison = isinstance(decision.outcome, bool) and decision.beside_number
        if is_comparison and not is_known and len(sides[place]) == 1:
            raise RefusedError(f"`{function.line(place[0])}`, of which no arguments led to another side", 4)


def _path(decisions: Sequence[Decision]) -> tuple[Any, ...]:
    return tuple((decision.place, decision.outcome) for decision in decisions)


def _decisions(function: Function, sample: Sample) -> list[Decision] | None:
    """What the function decides for a sample, but whether it refuses it; None where it does."""
    numbers = Numbers()
    values = {k: v if isinstance(v, Tensor) else numbers.scalar(k, v) for k, v in sample.values.items()}
    try:
        with torch.no_grad(), _Sizes(numbers):
            function.call(*values.values())
    except Exception:  # It does not take these arguments.
        return None
    return [decision for decision in numbers.decisions if decision.place[0] not in function.checked_lines]


class _Sizes(TorchFunctionMode):
    """While it is entered, sizes of tensors note what is decided by them."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self._numbers = numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        if func in _OF_RANK:
            return self._numbers.noted(result, None, frozenset({RANK}))
        if func in _OF_SIZE and isinstance(result, tuple):
            return torch.Size([self._size(size) for size in result])
        return self._size(result) if func in _OF_SIZE else result

    def _size(self, size: int) -> Any:
        return self._numbers.noted(size, None, frozenset({SIZE}))


_OF_RANK = (Tensor.dim, Tensor.ndimension, Tensor.ndim.__get__)
_OF_SIZE = (Tensor.shape.__get__, Tensor.size, Tensor.numel, Tensor.nelement, torch.numel)


def _others(assumption: Any, origins: frozenset[str], numbers: Sequence[float]) -> Iterator[Sample]:
    """Samples with other sizes, ranks and scalars, where the function decides by them; of the numbers in its source, of
    numbers near to them, and of some that are neither large nor small."""
    whole = sorted({int(n) for n in numbers if n == int(n) and 1 < n <= _MOST_ELEMENTS})
    if RANK in origins and assumption.recipe == "pointwise" and assumption.flat_dim is None:
        ranks = [rank for rank in _RANKS if rank >= assumption.least_rank]
        yield from (assumption.of_rank(rank).sample(0) for rank in ranks)
    if SIZE in origins:
        near = [n + k for n in whole for k in (-1, 0, 1)] + [k * n + 1 for n in whole for k in (2, 3)]
        yield from _of_sizes(assumption, sorted({*_SIZES, *near}), numbers=whole)
    of_others = (assumption.dim, assumption.split.count if assumption.split else None)
    for argument in assumption.arguments:
        if argument["name"] in origins and argument["name"] not in of_others:
            of_type = _FLOATS if argument["type"] == "float" else _INTEGERS
            for value in (*of_type, *(-value for value in of_type)):
                yield assumption.with_scalars({argument["name"]: value})
    if origins - {RANK, SIZE}:
        yield from assumption.special_samples(numbers)


def _of_sizes(assumption: Any, sizes: Sequence[int], numbers: Sequence[int]) -> Iterator[Sample]:
    """Samples of which a dimension has such a size, then those of about so many elements in all."""
    own = assumption.sample(0).shape
    for dim in assumption.free_dims():
        others = math.prod(size for place, size in enumerate(own) if place != dim)
        beyond = [number // others + k for number in numbers for k in (0, 1)]
        sizes_of_dim = dict.fromkeys((*sizes, *beyond))
        if assumption.recipe == "row_wise" and dim in assumption.dims:
            sizes_of_dim.pop(0, None)  # Rows of nothing have no largest element.
        for size in sizes_of_dim:
            shape = own if size * others <= _MOST_ELEMENTS else (2,) * len(own)
            yield assumption.with_shape((*shape[:dim], size, *shape[dim + 1 :]))
    if assumption.free_dims() == tuple(range(len(own))):  # Where two sizes are compared.
        yield assumption.with_shape((4,) * len(own))
