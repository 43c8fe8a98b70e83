"""How a function splits a dimension into groups: the channels of a group norm, the heads of a projection.

Kernels take the groups as a dimension of their own, which costs nothing: the function that is stamped splits the
dimension of its arguments, and joins it again in results.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Split:
    """The dimensions `dim` and `dim + 1` are one in the tensors that are `joined`. `count` is the size of the first of
    them, or of the second where it is the size `of_group`: the int argument of this name, or a number; of a group it
    may be the size of the vector `like` as well."""

    dim: int
    count: str | int | None = None
    like: str | None = None
    of_group: bool = False
    joined: frozenset[str] = frozenset()

    def as_dict(self) -> dict[str, Any]:
        how = {"dim": self.dim, "count": self.count, "like": self.like, "of_group": self.of_group}
        return how | {"joined": sorted(self.joined)}

    def places(self, rank: int) -> tuple[int, int]:
        """The two dimensions among so many."""
        first = self.dim % rank
        return first, first + 1

    def sized(self, shape: Sequence[int], size: int | None, primes: Sequence[int]) -> tuple[int, ...]:
        """A shape of as many dimensions, of which one has the size that is known; no two have a factor in common."""
        if size is None:
            return tuple(shape)
        place = self.places(len(shape))[self.of_group]
        others = iter(prime for prime in primes if size % prime)
        return tuple(size if dim == place else next(others) for dim in range(len(shape)))

    def joined_shape(self, shape: Sequence[int], dims: Collection[int]) -> tuple[int, ...]:
        """The shape of a tensor with these of the dimensions of a `shape`, as the function takes it."""
        first, second = self.places(len(shape))
        sizes: list[int] = []
        for dim in sorted(dims):
            if dim == second and first in dims:
                sizes[-1] *= shape[dim]
            else:
                sizes.append(shape[dim])
        return tuple(sizes)

    def dims_of_joined(self, dims: Collection[int], rank: int) -> tuple[int, ...]:
        """The dimensions among `rank` that those of a joined tensor are."""
        first, second = self.places(rank)
        own = {dim if dim <= first else dim + 1 for dim in dims}
        return tuple(sorted(own | {second} if first in own else own))
