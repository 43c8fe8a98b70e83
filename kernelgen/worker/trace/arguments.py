"""What is assumed of a function's arguments, and samples of them to trace it with."""

import ast
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.graph import FLOAT8, INTEGERS, Sample
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.split import Split

# Shapes and values that differ from sample to sample, so that a number that depends on them is seen to. Primes, each
# once in a shape: see Sample.
_SIZES = ((2, 3, 7, 5, 11), (3, 5, 11, 2, 7), (5, 2, 13, 3, 7), (7, 11, 3, 5, 2))
_FLOATS = ((0.37, 0.59, 0.23, 0.71), (1.43, 1.29, 1.81, 1.67), (2.13, 2.31, 2.57, 2.05), (3.23, 3.07, 3.11, 3.41))
_INTEGERS = ((3, 2, 5, 4), (4, 7, 6, 2), (7, 3, 2, 6), (2, 5, 4, 9))
# Where functions like to take another path.
_SPECIAL = {"float": (0.0, 1.0, -1.0, 2.0), "int": (0, 1, -1, 2)}
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
# What integers in samples are below: the others of these functions compare them with small ones.
_LARGEST_INTEGER = 5
# For samples with a size that others must not have a factor in common with; and the most groups of a sample.
_MORE_SIZES, _MOST_GROUPS = (13, 17, 19), 64
# In which order ranks are tried.
_RANKS = (3, 4, 2, 5)


@dataclass(frozen=True)
class Assumption:
    """What each tensor is: `dtypes` are float, bool, int (a place in a row) or those of integers, `kinds` element,
    column (a number for each element of a row) or row (a number for each row). `dims` are the dimensions of a row, of
    `rank` in all; or `dim` names the int argument that says which dimension it is. `composed` says what was in the way
    of a kernel of the gradient, which is PyTorch's of the reference then. `near`: floats are drawn near their defaults,
    where a function that refuses others takes them. `cuts`: the tensors that are as large as several parts of the shape
    of the others; None where nothing is cut, or joined of parts. `coordinates`: values may depend on where an element
    lies in the last two dimensions, which are of one size where they are `square`. `sums_all`: sums of all elements
    are taken row by row, beside what else is computed of rows. `spreads`: the tensors that have some of the
    dimensions, and are repeated along the others, with these dimensions, from the end. `exact`: parts of what is
    cut are single elements, as the coordinates of a point are; `any_size`: the function takes longer ones, too.
    `numbers`: the tensors that have a number for each point, and lack the last dimension; `matrices`: points are rows
    of matrices, and nothing else. `flat_dim`: the dimension that the function cuts; for its operator it is the last,
    with those behind it. `split`: a dimension of some tensors is two of `rank`. `orders`: the tensors whose dimensions
    come in another order for the function, as permute takes it. `domains`: the intervals that the numbers of some are
    drawn from, because the function refuses others."""

    recipe: str
    arguments: tuple[dict[str, Any], ...]
    dtypes: dict[str, str]
    kinds: dict[str, str]
    flags: dict[str, bool]
    rank: int = 3
    dims: tuple[int, ...] = (2,)
    dim: str | None = None
    composed: str | None = None
    near: bool = False
    cuts: dict[str, Cut] | None = None
    coordinates: bool = False
    square: bool = False
    sums_all: bool = False
    spreads: dict[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = False
    any_size: bool = False
    numbers: frozenset[str] = frozenset()
    matrices: bool = False
    flat_dim: int | None = None
    split: Split | None = None
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    domains: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def least_rank(self) -> int:
        """The dimensions that a tensor has to have: those that coordinates and repeated tensors count from the end."""
        of_spreads = [-min(dims) for dims in self.spreads.values()]
        of_split = [self.split.at + 2 if self.split.at > 0 else -self.split.at] if self.split else []
        return max([1, *of_spreads, *of_split, *([2] if self.coordinates else [])])

    def as_dict(self) -> dict[str, Any]:
        facts = {"recipe": self.recipe, "dtypes": self.dtypes, "kinds": self.kinds, "composed": self.composed}
        if self.coordinates:
            facts["square"] = self.square
        if self.spreads:
            facts["spreads"] = {name: list(dims) for name, dims in self.spreads.items()}
        if self.split:
            facts["split"] = self.split.as_dict()
        if self.orders:
            facts["orders"] = {name: list(order) for name, order in self.orders.items()}
        if self.cuts is None:
            return facts
        facts |= {"exact": self.exact, "any_size": self.any_size}
        if self.numbers or self.matrices:
            facts |= {"numbers": sorted(self.numbers), "matrices": self.matrices}
        return facts | {"cuts": {name: cut.as_dict() for name, cut in self.cuts.items()}}

    def sample(self, k: int) -> Sample:
        """The k-th of four samples."""
        return self._sample(k, {})

    def special_samples(self, numbers: Iterable[float] = ()) -> Iterator[Sample]:
        """Samples with each scalar at values where functions like to take another path, then at its default.

        Args:
            numbers: those that stand in the function's source: `if alpha > 3.7` is seen by 3.7 and its neighbours.
        """
        if self.dim:
            for dim in range(-self.rank, self.rank):
                yield self._sample(dim % self.rank, {self.dim: dim})
        for argument in (argument for argument in self.arguments if argument["name"] != self.dim):
            base = _base(argument)
            special = (*_SPECIAL.get(base, ()), *(near for n in numbers for near in _near(base, n)))
            if self.split and self.split.count == argument["name"]:
                special = [value for value in special if 0 < value <= _MOST_GROUPS]
            for value in special:
                yield self._sample(0, {argument["name"]: value})
        yield self._sample(0, self._defaults())

    def large_sample(self, first: int = 8) -> Sample:
        """One with so many elements that rare ones are among them, and each scalar at its default; `first` is the size
        of the first of several dimensions, which others do not tell."""
        sample = self._sample(0, self._defaults())
        sizes = (8,) * (self.rank - 1) + (8 if self.square else 1 if self.exact else 32,)
        sizes = (first, *sizes[1:]) if 0 in self.free_dims() and self.rank > 1 else sizes
        if self.split and self._count(sample.values):
            place = self.split.places(self.rank)[self.split.of_group]
            sizes = (*sizes[:place], sample.shape[place], *sizes[place + 1 :])
        return self.with_shape(sizes)

    def of_rank(self, rank: int) -> "Assumption":
        """The same of tensors with so many dimensions, whose last are a row."""
        dims = tuple(dim - self.rank + rank for dim in self.dims)
        return replace(self, rank=rank, dims=dims if min(dims, default=0) >= 0 else (rank - 1,))

    def free_dims(self) -> tuple[int, ...]:
        """The dimensions that may have any size."""
        known = self.split.places(self.rank) if self.split else ()
        known += (self.rank - 2, self.rank - 1) if self.square else (self.rank - 1,) if self.exact else ()
        return tuple(dim for dim in range(self.rank) if dim not in known)

    def with_shape(self, shape: tuple[int, ...]) -> Sample:
        """A sample of this shape, with each scalar at its default."""
        sample = replace(self._sample(0, self._defaults()), shape=shape)
        tensors = {name: self._tensor(name, sample, seed) for seed, name in enumerate(self.dtypes)}
        return replace(sample, values={**sample.values, **tensors})

    def with_scalars(self, scalars: dict[str, Any]) -> Sample:
        """A sample with these scalars; others are those of the first."""
        return self._sample(0, scalars)

    def long_samples(self, least: int) -> Iterator[Sample]:
        """Samples of which one dimension has more elements than `least`, where no argument says how many."""
        if self.split or self.square or least < min(min(sizes) for sizes in _SIZES):
            return
        for dim in range(self.rank - self.exact):
            shape = self._sample(0, self._defaults()).shape
            # No factor of another size.
            sizes = tuple(13 * (least // 13 + 1) if place == dim else size for place, size in enumerate(shape))
            yield self.with_shape(sizes)

    def with_flags(self) -> Iterator["Assumption"]:
        """The same with each choice of its bool arguments."""
        names = list(self.flags)
        for chosen in itertools.product((True, False), repeat=len(names)):
            yield replace(self, flags=dict(zip(names, chosen, strict=True)))

    def _defaults(self) -> dict[str, Any]:
        scalars = [a for a in self.arguments if _base(a) in ("float", "int") and a["name"] != self.dim]
        return {argument["name"]: _literal(argument) for argument in scalars if argument["default"]}

    def _sample(self, k: int, chosen: dict[str, Any]) -> Sample:
        dims = (k % self.rank,) if self.dim else self.dims
        shape = (*_SIZES[k], *_MORE_SIZES)[: self.rank]
        shape = (*shape[:-2], shape[-1], shape[-1]) if self.square else shape
        shape = (*shape[:-1], 1) if self.exact else shape
        scalars = self._scalars(k, dims[0] if dims else 0) | chosen
        if self.split:
            shape = self.split.sized(shape, self._count(scalars), (*_SIZES[k], *_MORE_SIZES))
        values: dict[str, Any] = {}
        sample = Sample(
            values,
            self.kinds,
            shape,
            dims,
            self.cuts,
            self.coordinates,
            self.sums_all,
            self.spreads,
            self.split,
            self.orders,
            self.numbers,
        )
        for argument in self.arguments:
            name = argument["name"]
            is_tensor = argument["kind"] == "tensor"
            values[name] = self._tensor(name, sample, seed=100 * k + len(values)) if is_tensor else scalars[name]
        return sample

    def _scalars(self, k: int, dim: int) -> dict[str, Any]:
        """Those of the k-th sample, whose row is the dimension `dim` where an argument says so."""
        scalars: dict[str, Any] = {}
        position = 0
        for argument in (argument for argument in self.arguments if argument["kind"] != "tensor"):
            name, base = argument["name"], _base(argument)
            if name == self.dim:
                scalars[name] = dim
            elif base in ("float", "int"):
                default = _literal(argument) if self.near and base == "float" and argument["default"] else None
                scalars[name] = _number(base, position, k, default)
                position += 1
            else:
                scalars[name] = self.flags[name]
        return scalars

    def _count(self, scalars: Mapping[str, Any]) -> int | None:
        """The size of the dimension of the split whose size is known; None where a tensor says it."""
        return scalars[self.split.count] if isinstance(self.split.count, str) else self.split.count

    def _tensor(self, name: str, sample: Sample, seed: int) -> torch.Tensor:
        columns = tuple(sample.shape[dim] for dim in sample.dims)
        shapes = {"element": sample.shape, "column": columns, "row": sample.row_shape()}
        of_kind = sample.spread_shape(name) if name in self.spreads else shapes[self.kinds[name]]
        shape = of_kind[:-1] if name in self.numbers else sample.cut(name).whole(of_kind)
        if self.split and name in self.split.joined:
            of_whole = self.split.joined_shape(shape, range(len(shape)))
            shape = sample.joined_shape(self.spreads[name]) if name in self.spreads else of_whole
        if name in self.orders:
            shape = tuple(shape[dim] for dim in self.orders[name])
        return _tensor(self.dtypes[name], shape, seed, sample.columns, self.domains.get(name))


def assumptions(
    arguments: list[dict[str, Any]],
    recipes: list[str],
    may_cut: bool = False,
    may_index: bool = False,
    repeated: Sequence[str] = (),
    may_permute: bool = False,
    said: Mapping[str, str] | None = None,
) -> Iterator[Assumption]:
    """What may be assumed of tensors and scalars, from the plain case on. Raises RefusedError of too many.

    Args:
        may_cut: whether the function may cut a dimension into parts, or join parts.
        may_index: whether it may compute with the coordinates of elements.
        repeated: the tensors that it may repeat along dimensions.
        may_permute: whether it may compute with tensors of which the dimensions come in another order.
        said: the dtypes of tensors that are not of floating-point numbers, where somebody says so.
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
    for recipe in recipes:
        for count in range(max(0, min(2, len(unsaid) - 1)) + 1):
            for masks in itertools.combinations(unsaid, count):
                dtypes = {name: "bool" if name in masks else said.get(name, "float") for name in tensors}
                plain = Assumption(recipe, tuple(arguments), dtypes, dict.fromkeys(tensors, "element"), flags)
                yield plain
                if recipe == "pointwise" and may_index:
                    yield from (replace(plain, coordinates=True, square=square) for square in (False, True))
                if recipe == "pointwise" and may_cut:
                    yield from _cut(plain, tensors)
                    yield from _flat(plain, tensors)
                    yield from _of_points(plain, tensors)
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
        halves = dict.fromkeys(tensors[1:], Cut(2))
        yield replace(plain, cuts={tensors[0]: Cut(4)} | halves)
    # A point's coordinates, a quaternion: of all tensors, or beside numbers of others.
    for parts in _POINTS:
        for names in dict.fromkeys((tuple(tensors), tuple(tensors[:1]))):
            yield replace(plain, cuts=dict.fromkeys(names, Cut(parts, True)), exact=True)


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
        if _base(argument) == "int":
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
                if "column" not in of_kinds.kinds.values() and rank > 1:
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


def _number(base: str, position: int, k: int, default: float | None) -> float | int:
    """The scalar at a position among the arguments, in the k-th sample: another number for each; near its default, if
    that is given."""
    if default is not None:
        distance = _number(base, position, k, None) / 40
        return default * (1 - distance) if default else distance
    numbers = _FLOATS if base == "float" else _INTEGERS
    value = numbers[position % len(numbers)][k]
    turn = position // len(numbers)
    return value + 0.0137 * turn * (k + 2) if base == "float" else value + turn * (7 + 4 * k)


def _near(base: str, number: float) -> tuple[float | int, ...]:
    """A number and its neighbours, for a scalar of this type."""
    if base == "float":
        distance = 1e-3 * (abs(number) or 1)
        return number, number - distance, number + distance
    if base == "int" and abs(number) < 2**31:
        return math.floor(number) - 1, math.floor(number), math.floor(number) + 1
    return ()


def _base(argument: dict[str, Any]) -> str:
    return {"SymInt": "int"}.get(argument["type"], argument["type"])


def _literal(argument: dict[str, Any]) -> Any:
    """The default of a scalar, whose Python source is a literal."""
    return ast.literal_eval(argument["default"])


def _tensor(
    dtype: str, shape: tuple[int, ...], seed: int, columns: int, domain: tuple[float, float] | None = None
) -> torch.Tensor:
    return _drawn(dtype, shape, seed, columns, domain).clone()  # Functions may write to it.


@functools.lru_cache(maxsize=4096)
def _drawn(
    dtype: str, shape: tuple[int, ...], seed: int, columns: int, domain: tuple[float, float] | None
) -> torch.Tensor:
    """Of thousands of assumptions most have the same tensors."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == "int":
        return torch.randint(columns, shape, generator=generator)
    if dtype in INTEGERS.values():
        return torch.randint(_LARGEST_INTEGER, shape, generator=generator, dtype=getattr(torch, dtype))
    if domain is not None:
        low, high = domain
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float32)
    values = torch.randn(shape, generator=generator, dtype=torch.float32)
    if dtype in FLOAT8.values():
        return values.to(getattr(torch, dtype))
    if dtype != "bool":
        return values
    mask = values > 0
    mask.view(-1)[:2] = torch.tensor([True, False])[: mask.numel()]  # A small one may be all alike.
    return mask
