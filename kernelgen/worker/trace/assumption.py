"""What is assumed of a function's arguments, and samples of them to trace it with."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.drawn import base_type, default_of, draw_number, draw_tensor, neighbours
from kernelgen.worker.trace.graph import Sample
from kernelgen.worker.trace.split import Split

# Shapes that differ from sample to sample, so that a number that depends on them is seen to. Primes, each once in a
# shape: see Sample.
_SIZES = ((2, 3, 7, 5, 11), (3, 5, 11, 2, 7), (5, 2, 13, 3, 7), (7, 11, 3, 5, 2))
# Of functions that read neighbours, which lie in none of them beyond the other end.
_WIDE_SIZES = ((3, 2, 29, 31), (2, 5, 23, 37), (5, 3, 31, 41), (7, 2, 37, 23))
# For samples with a size that others must not have a factor in common with; and the most groups of a sample.
_MORE_SIZES, _MOST_GROUPS = (13, 17, 19), 64
# Where functions like to take another path.
_SPECIAL = {"float": (0.0, 1.0, -1.0, 2.0), "int": (0, 1, -1, 2)}


@dataclass(frozen=True)
class Assumption:
    """What each tensor is: `dtypes` are float, bool, int (a place in a row) or those of integers, `kinds` element,
    column (a number for each element of a row) or row (a number for each row). `dims` are the dimensions of a row, of
    `rank` in all; or `dim` names the int argument that says which dimension it is. `composed` says what was in the way
    of a kernel of the gradient, which is PyTorch's of the reference then. `near`: floats are drawn near their defaults,
    where a function that refuses others takes them. `cuts`: the tensors that are as large as several parts of the shape
    of the others; None where nothing is cut, or joined of parts. `coordinates`: values may depend on where an element
    lies in the last two dimensions, which are of one size where they are `square`. `neighbours`: elements are read at a
    distance from those that are computed. `sums_all`: sums of all elements are taken row by row, beside what else is
    computed of rows. `spreads`: the tensors that have some of the dimensions, and are repeated along the others, with
    these dimensions, from the end. `exact`: parts of what is cut are single elements, as the coordinates of a point
    are; `any_size`: the function takes longer ones, too. `numbers`: the tensors that have a number for each point, and
    lack the last dimension; `matrices`: points are rows of matrices, and nothing else. `matrix_sizes`: the rows and
    columns of the results that are a matrix for each point, None of others. `flat_dim`: the dimension that the function
    cuts; for its operator it is the last, with those behind it. `split`: a dimension of some tensors is two of `rank`.
    `orders`: the tensors whose dimensions come in another order for the function, as permute takes it. `domains`: the
    intervals that the numbers of some are drawn from, because the function refuses others."""

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
    neighbours: bool = False
    sums_all: bool = False
    spreads: dict[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = False
    any_size: bool = False
    matrix_sizes: tuple[tuple[int, int] | None, ...] = ()
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
        of_split = [self.split.dim + 2 if self.split.dim > 0 else -self.split.dim] if self.split else []
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
        if any(self.matrix_sizes):
            facts |= {"matrix_sizes": [sizes and list(sizes) for sizes in self.matrix_sizes]}
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
            base = base_type(argument)
            special = (*_SPECIAL.get(base, ()), *(near for n in numbers for near in neighbours(base, n)))
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
        scalars = [a for a in self.arguments if base_type(a) in ("float", "int") and a["name"] != self.dim]
        return {argument["name"]: default_of(argument) for argument in scalars if argument["default"]}

    def _sample(self, k: int, chosen: dict[str, Any]) -> Sample:
        dims = (k % self.rank,) if self.dim else self.dims
        shape = _WIDE_SIZES[k][-self.rank :] if self.neighbours else (*_SIZES[k], *_MORE_SIZES)[: self.rank]
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
            self.neighbours,
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
            name, base = argument["name"], base_type(argument)
            if name == self.dim:
                scalars[name] = dim
            elif base in ("float", "int"):
                default = default_of(argument) if self.near and base == "float" and argument["default"] else None
                scalars[name] = draw_number(base, position, k, default, is_share=self.near and base == "float")
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
        return draw_tensor(self.dtypes[name], shape, seed, sample.columns, self.domains.get(name))
