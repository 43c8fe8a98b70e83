"""What may be assumed of a function's arguments, one assumption after the other."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelgen.worker.trace.assumption import Assumption
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.drawn import base_type
from kernelgen.worker.trace.refusals import RefusedError

_MOST_TENSORS = 8
_MOST_TENSORS_OF_ANY_KIND = 5
_MOST_FLAGS = 2
# Tensors that are repeated, each along dimensions of its own.
_MOST_REPEATED = 3
# Tensors whose dimensions come in another order.
_MOST_ORDERED = 2
# Into how many parts a dimension is cut.
_PARTS = (2, 3, 4)
# How many numbers a point has: of two halves that are broadcast, 4 are two and two, but 3 two and one.
_POINTS = (4, 3, 2)
# The dimensions that are cut beside the last one: channels, those of an image, a batch.
_FLAT_DIMS = (1, -3, 0, -2)
# In which order ranks are tried.
_RANKS = (3, 4, 2, 5)
# The same where neighbours are read: a dimension of a single tensor may count from the front, before any others.
_RANKS_OF_NEIGHBOURS, _RANKS_OF_ONE = (3, 4, 2), (4, 3, 2)


def assumptions(
    arguments: list[dict[str, Any]],
    recipes: list[str],
    may_cut: bool = False,
    may_index: bool = False,
    repeated: Sequence[str] = (),
    may_permute: bool = False,
    said: Mapping[str, str] | None = None,
    takes_numbers: bool = False,
    point_size: int = 0,
    may_shift: bool = False,
) -> Iterator[Assumption]:
    """What may be assumed of tensors and scalars, from the plain case on. Raises RefusedError of too many.

    Args:
        may_cut: whether the function may cut a dimension into parts, or join parts.
        may_index: whether it may compute with the coordinates of elements.
        repeated: the tensors that it may repeat along dimensions.
        may_permute: whether it may compute with tensors of which the dimensions come in another order.
        said: the dtypes of tensors that are not of floating-point numbers, where somebody says so.
        takes_numbers: whether it takes tensors of floating-point numbers alone, so that rows of these are likelier than
            masks.
        point_size: how many numbers it takes a last dimension apart into, which are likelier than parts of any size.
        may_shift: whether it may read neighbours of elements.
    """
    tensors = [argument["name"] for argument in arguments if argument["kind"] == "tensor"]
    said = said or {}
    unsaid = [name for name in tensors if name not in said]
    if not tensors:
        raise RefusedError("that it takes no tensor")
    if len(tensors) > _MOST_TENSORS:
        raise RefusedError(f"that it takes more than {_MOST_TENSORS} tensors")
    flags = {argument["name"]: True for argument in arguments if argument["type"] == "bool"}
    if len(flags) > _MOST_FLAGS:
        raise RefusedError(f"that it takes more than {_MOST_FLAGS} bools, each of which may be another path")
    most_masks = max(0, min(2, len(unsaid) - 1))
    every = [masks for count in range(most_masks + 1) for masks in itertools.combinations(unsaid, count)]
    in_order = [(recipe, masks) for recipe in recipes for masks in every]
    if takes_numbers:
        in_order.sort(key=lambda choice: bool(choice[1]))
    for recipe, masks in in_order:
        dtypes = {name: "bool" if name in masks else said.get(name, "float") for name in tensors}
        plain = Assumption(recipe, tuple(arguments), dtypes, dict.fromkeys(tensors, "element"), flags)
        yield plain
        if recipe == "pointwise" and may_index:
            yield from (replace(plain, coordinates=True, square=square) for square in (False, True))
        if recipe == "pointwise" and may_shift:
            for rank in _RANKS_OF_NEIGHBOURS if len(tensors) > 1 else _RANKS_OF_ONE:
                yield replace(plain, rank=rank, dims=(rank - 1,), neighbours=True)
        if recipe == "pointwise" and may_cut:
            every_cut = itertools.chain(_cut(plain, tensors), _flat(plain, tensors), _of_points(plain, tensors))
            yield from sorted(every_cut, key=lambda cut: not is_of_points(cut, point_size)) if point_size else every_cut
        if recipe == "row_wise":
            yield from _of_planes(plain, may_index, may_cut, [name for name in tensors if name in repeated])
            of_parts = list(_cut_rows(plain, tensors)) if may_cut else []
            # Of several tensors there are many ways to be no rows: the likely ones come first.
            yield from (cut for cut in of_parts if set(cut.kinds.values()) == {"element"})
            yield from _of_rows(plain, tensors)
            yield from (cut for cut in of_parts if set(cut.kinds.values()) != {"element"})
            yield from ordered(plain) if may_permute else ()


def ordered(plain: Assumption) -> Iterator[Assumption]:
    """Some tensors whose second and third dimensions, as heads and positions, come in the other order."""
    names = list(plain.kinds)
    for rank in (4, 3) if plain.split is None else (plain.rank,):
        swapped = (0, 2, 1, *range(3, rank))
        of_rank = replace(plain, rank=rank, dims=(rank - 1,))
        for count in range(1, min(len(names), _MOST_ORDERED) + 1):
            for chosen in itertools.combinations(names, count):
                if len(chosen) < len(names):  # The others tell that these come in another order.
                    yield replace(of_rank, orders=dict.fromkeys(chosen, swapped))


def _of_planes(plain: Assumption, may_index: bool, may_cut: bool, repeated: Sequence[str]) -> Iterator[Assumption]:
    """Rows of the last dimension, of tensors some of which are repeated along some dimensions, or of what depends on
    coordinates, or both."""
    every = [replace(plain, rank=rank, dims=(rank - 1,)) for rank in _RANKS if rank > 1]
    repeated = [name for name in repeated if name != next(iter(plain.kinds))]
    if may_index:
        for of_rank, square in itertools.product(every, (False, True)):
            yield replace(of_rank, coordinates=True, square=square)
    if not repeated:
        return
    several = [of_rank for of_rank in every if of_rank.rank in (3, 4)]
    pooled = replace(plain, rank=3, dims=(1,))  # Pooling reduces the dimension in the middle.
    for ranks in ((*several, pooled), [of_rank for of_rank in every if of_rank not in several]):
        for of_rank in ranks:
            if of_rank is not pooled:
                yield from _of_numbers(of_rank, may_index, repeated)
        for of_rank in ranks:
            for spread in _spread(of_rank, repeated):
                yield spread
                if may_cut and of_rank is not pooled:
                    whole = [name for name in plain.kinds if name not in repeated]
                    yield from (replace(spread, cuts=dict.fromkeys(names, Cut(2))) for names in (whole, plain.kinds))
                    yield from (replace(spread, cuts=dict.fromkeys(repeated, Cut(parts))) for parts in _PARTS)
                if may_index and of_rank is not pooled:
                    yield from (replace(spread, coordinates=True, square=square) for square in (False, True))


def _spread(plain: Assumption, repeated: Sequence[str]) -> Iterator[Assumption]:
    """The tensors that are repeated have some of the dimensions: all alike, then each in its own way."""
    patterns = _patterns(plain.rank, plain.dims)
    several = itertools.product(patterns, repeat=len(repeated)) if len(repeated) < _MOST_REPEATED else ()
    for dims in dict.fromkeys([*((pattern,) * len(repeated) for pattern in patterns), *several]):
        yield replace(plain, spreads=dict(zip(repeated, dims, strict=True)))


def _of_numbers(plain: Assumption, may_index: bool, repeated: Sequence[str]) -> Iterator[Assumption]:
    """The tensors that are repeated have a number for each row of the last dimensions, or a place in it."""
    numbers = replace(plain, kinds=plain.kinds | dict.fromkeys(repeated, "row"))
    for first in range(plain.rank - 1, 0, -1):
        yield replace(numbers, dims=tuple(range(first, plain.rank)))
    if may_index:
        places = {name: "int" for name in repeated if plain.dtypes[name] in ("float", "int64")}
        yield replace(numbers, dtypes=plain.dtypes | places)
        for dtypes, square in itertools.product((plain.dtypes | places, plain.dtypes), (False, True)):
            yield replace(numbers, dtypes=dtypes, coordinates=True, square=square)


def _patterns(rank: int, row: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Which dimensions a tensor may have that is repeated along others, from the end: all but one, then fewer. Those
    that are numbers of rows are known otherwise, and the last ones are what broadcasts anyway."""
    every = tuple(range(-rank, 0))
    of_rows = tuple(dim for dim in every if dim + rank not in row)
    chosen = [dims for count in range(rank - 1, 0, -1) for dims in itertools.combinations(every, count)]
    return [dims for dims in chosen if dims not in (of_rows, every[-len(dims) :])]


def _cut(plain: Assumption, tensors: list[str]) -> Iterator[Assumption]:
    """Tensors whose last dimension is cut: none where only results are joined of parts, the first, more, all; into
    parts of any size, then of one element."""
    for parts, in_turns in itertools.product(_PARTS, (False, True)):
        for names in _choices(tensors):
            if names or (parts, in_turns) == (_PARTS[0], False):
                yield replace(plain, cuts=dict.fromkeys(names, Cut(parts, in_turns)))
    # Half of the first is what meets the others, as where a part of each head is turned.
    if len(tensors) > 1:
        yield replace(plain, cuts={tensors[0]: Cut(4)} | dict.fromkeys(tensors[1:], Cut(2)))
    # A point's coordinates, a quaternion: of all tensors, or beside numbers of others; a quaternion turns vectors.
    for parts in _POINTS:
        for names in dict.fromkeys((tuple(tensors), tuple(tensors[:1]))):
            yield replace(plain, cuts=dict.fromkeys(names, Cut(parts, True)), exact=True)
        if parts == _PARTS[-1] and len(tensors) > 1:
            threes = dict.fromkeys(tensors[1:], Cut(3, True))
            yield replace(plain, cuts={tensors[0]: Cut(4, True)} | threes, exact=True)


def is_of_points(assumption: Assumption, size: int) -> bool:
    """Whether tensors are assumed to be of points of so many numbers, and none of another dimension than the last."""
    is_exact = assumption.exact and assumption.flat_dim is None
    return is_exact and size == max(cut.parts for cut in assumption.cuts.values())


def _flat(plain: Assumption, tensors: list[str]) -> Iterator[Assumption]:
    """Tensors of which another dimension is cut, as channels are; or none, where results are joined along one."""
    for dim, parts in itertools.product(_FLAT_DIMS, _PARTS):
        for names in _choices(tensors):
            if names or parts == _PARTS[0]:
                yield replace(plain, cuts=dict.fromkeys(names, Cut(parts)), flat_dim=dim)


def _choices(tensors: list[str]) -> list[tuple[str, ...]]:
    """Which tensors are cut: none, the first, more, all."""
    if len(tensors) >= _MOST_TENSORS_OF_ANY_KIND:
        return [(), tuple(tensors[:1]), tuple(tensors)]
    return [names for count in range(len(tensors) + 1) for names in itertools.combinations(tensors, count)]


def _of_points(plain: Assumption, tensors: list[str]) -> Iterator[Assumption]:
    """Some tensors are of points, and others have one number for each; then all the same as rows of matrices alone."""
    points = [
        replace(plain, cuts=dict.fromkeys(names, Cut(parts, True)), exact=True, numbers=frozenset(tensors) - set(names))
        for parts in _POINTS
        for names in reversed(_choices(tensors))
        if names
    ]
    yield from (of_points for of_points in points if of_points.numbers)
    yield from (replace(of_points, rank=2, dims=(1,), matrices=True) for of_points in points)


def _cut_rows(plain: Assumption, tensors: list[str]) -> Iterator[Assumption]:
    """Rows that are cut into parts: of the first tensor, or of all that have rows, beside others of rows, vectors of a
    part's size and numbers of the rows."""
    kinds_of_others = ("element", "column", "row")
    for kinds in itertools.product(kinds_of_others, repeat=min(len(tensors) - 1, _MOST_TENSORS_OF_ANY_KIND - 2)):
        if len(kinds) < len(tensors) - 1:
            return
        mixed = replace(plain, kinds=dict(zip(tensors, ("element", *kinds), strict=True)))
        whole = [name for name in tensors if mixed.kinds[name] == "element"]
        for parts in _PARTS:
            for names in dict.fromkeys([tuple(whole[:1]), tuple(whole), ()]):
                if names or parts == _PARTS[0]:
                    yield replace(mixed, cuts=dict.fromkeys(names, Cut(parts)))


def _of_rows(plain: Assumption, tensors: list[str]) -> Iterator[Assumption]:
    """Other ranks, a dimension that an argument chooses, tensors with a number for each row or for each element of a
    row."""
    for rank in _RANKS:
        if rank != plain.rank:
            yield replace(plain, rank=rank, dims=(rank - 1,))
    for argument in plain.arguments:
        if base_type(argument) == "int":
            yield from (replace(plain, rank=rank, dims=(0,), dim=argument["name"]) for rank in _RANKS)
    if len(tensors) == 1:
        return
    others = ("element", "column", "row") if len(tensors) < _MOST_TENSORS_OF_ANY_KIND else ("element", "column")
    every = [kinds for kinds in itertools.product(others, repeat=len(tensors) - 1) if set(kinds) != {"element"}]
    if "row" not in others:  # As a normalisation has them, with statistics that are given.
        every.insert(0, ("row",) * (len(tensors) - 1))
    mixed = [replace(plain, kinds=dict(zip(tensors, ("element", *kinds), strict=True))) for kinds in every]
    for of_kinds in mixed:
        for rank in _RANKS:
            yield from (replace(of_kinds, rank=rank, dims=dims) for dims in _row_dims(rank))
        # Places in the rows, such as the classes that a loss expects.
        for rank in _RANKS:
            for dims in ((rank - 1,), (1,)):
                if "row" in of_kinds.kinds.values() and rank > 1:
                    integers = {
                        name: "int"
                        for name, kind in of_kinds.kinds.items()
                        if kind == "row" and plain.dtypes[name] in ("float", "int64")
                    }
                    yield replace(of_kinds, dtypes={**of_kinds.dtypes, **integers}, rank=rank, dims=dims)
    # A number for each element of the first dimension is one for each row of two: of more dimensions, too.
    for of_kinds in mixed:
        yield from (replace(of_kinds, rank=rank, dims=(0,)) for rank in _RANKS if rank > 1)


def _row_dims(rank: int) -> list[tuple[int, ...]]:
    """Dimensions that functions reduce: the last, all but the channels, those of a channel, of a sample."""
    every = tuple(range(rank))
    return list(dict.fromkeys([every[-1:], (0, *every[2:]), every[2:], every[1:]] if rank > 2 else [every[-1:]]))
