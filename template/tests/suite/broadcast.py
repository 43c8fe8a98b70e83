"""The shapes of test cases: tensors that broadcast, that have rows, planes or parts; and arguments that are changed."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

Shape = tuple[int, ...]


def broadcast_cases(count: int, alike: bool = False, numbers: bool = True) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each of so many tensors: all alike, then each of them broadcast in every way, unless `alike`; as a
    tensor without dimensions only if `numbers`."""
    shapes = ((4, 33), (6, 20), (), (1,), (17,), (0, 5), (5, 0), (2, 3, 64), (101, 1001))
    cases = [(shape,) * count for shape in shapes]
    if alike or count == 1:
        return tuple(cases)
    for i in range(count):
        for shape in ((6, 40), (2, 3, 33)):
            for smaller in (shape[-1:], (*shape[:-1], 1), (1, *shape[1:]), () if numbers else (1,)):
                cases.append(tuple(smaller if place == i else shape for place in range(count)))
    return *cases, ((5, 1), *[(1, 7)] * (count - 1))


def plane_cases(
    count: int,
    alike: bool = False,
    square: bool = False,
    rank: int | None = None,
    least: tuple[int, int] = (0, 0),
    vectors: bool = False,
    in_front: bool = False,
    fewest: int = 0,
) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each of so many tensors of two or more dimensions, the last two of one size where they are `square`;
    then each but the first broadcast in every way, unless `alike`.

    Args:
        rank: the dimensions of all tensors that are not broadcast; None: two or more.
        least: the least sizes of the last two dimensions.
        vectors: whether tensors may have one dimension.
        in_front: whether the last dimension stands for any that are behind the one before it.
        fewest: the least size of the other dimensions.
    """
    shapes = ((2, 4, 33), (3, 6, 20), (1, 17), (17, 1), (1, 1), (0, 5), (5, 0), (2, 5, 1, 3), (101, 1001))
    if square:
        shapes = ((2, 20, 20), (3, 33, 33), (1, 1), (0, 0), (2, 3, 64, 64), (101, 101))
    shapes += ((0, 40, 33),) if min(least) > 0 and not fewest else ()
    shapes += ((33,), (1, 2)) if vectors else ()
    shapes = [shape for shape in shapes if (0, *shape)[-2] >= least[0] and shape[-1] >= least[1]]
    cases = [(shape if rank is None else _of_rank(shape, rank),) * count for shape in shapes]
    if in_front:
        cases += [(shape,) * count for shape in ((*[3] * (rank - 2), 40), (*[2] * (rank - 2), 20, 3, 1, 5))]
    several = ((2, 40, 40), (3, 2, 33, 33))
    for i in range(1, 1 if alike else count):
        for shape in several if rank is None else dict.fromkeys(_of_rank(shape, rank) for shape in several):
            for smaller in (shape[-1:], (*shape[:-1], 1), (1, *shape[1:]), (*shape[:-2], 1, 1), ()):
                cases.append(tuple(smaller if place == i else shape for place in range(count)))
    return tuple(cases)


def _of_rank(shape: Shape, rank: int) -> Shape:
    """A shape of so many dimensions, whose last two are of the same sizes."""
    batch = (math.prod(shape[:-2]),) if rank > 2 else ()
    return *[1] * (rank - 3), *batch, *shape[-2:]


def part_cases(
    *parts: int,
    alike: bool = False,
    shortest: int = 0,
    fewest: int = 0,
    exact: bool = False,
    matrices: bool = False,
) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each tensor, whose last dimension is cut into so many parts: all alike, then each of them broadcast
    in the other dimensions, unless `alike`; of `fewest` rows or more, whose parts have `shortest` elements or more, or
    one if they are `exact`; of two dimensions if they are `matrices`."""
    shapes: tuple[Shape, ...] = ((4, 33), (6, 20), (1,), (17,), (5, 1), (0, 5), (5, 0), (2, 3, 64), (101, 1001))
    if exact:
        shapes = ((5, 33, 1), (6, 20, 1), (1,), (17, 1), (0, 1), (2, 3, 64, 1), (101, 1001, 1))
    if matrices:
        shapes = tuple((math.prod(shape[:-1]), shape[-1]) for shape in shapes)
    cases = [(shape,) * len(parts) for shape in shapes if shape[-1] >= shortest and shape[0] >= fewest]
    if not alike and len(parts) > 1:
        for i in range(len(parts)):
            for shape in ((6, 1), (2, 33, 1)) if exact else ((6, 40), (2, 3, 33), (3, 4, 64)):
                for smaller in (shape[-1:], (1, *shape[1:]), shape[1:]):
                    cases.append(tuple(smaller if place == i else shape for place in range(len(parts))))
    return tuple(
        tuple((*shape[:-1], shape[-1] * count) for shape, count in zip(case, parts, strict=True)) for case in cases
    )


def flat_cases(*parts: int, dim: int, exact: bool = False, empty: bool = True) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each tensor, of which this dimension is cut into so many parts, each with a single element of it if
    they are `exact`; some without elements if `empty`."""
    # No size is a number of parts: older compilers of PyTorch take two that are equal for one.
    shapes: tuple[Shape, ...] = ((7, 3, 5, 33), (6, 5, 2, 20), (1, 1, 1), (17, 1, 2), (2, 3, 64, 101), (33, 3, 37))
    shapes += ((0, 2, 5), (5, 2, 0)) if empty else ()
    sizes = [1 if exact else max(1, shape[dim]) for shape in shapes]
    alike = [with_size(shape, dim, size) for shape, size in zip(shapes, sizes, strict=True)]
    return tuple(tuple(with_size(shape, dim, shape[dim] * count) for count in parts) for shape in alike)


def with_size(shape: Shape, dim: int, size: int) -> Shape:
    """A shape with another size of a dimension."""
    return *shape[:dim], size, *shape[dim % len(shape) + 1 :]


def changed(args: Sequence[Any], place: int, change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """The arguments with the `place`-th tensor among them changed."""
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    return tuple(change(arg) if i == places[place] else arg for i, arg in enumerate(args))


def row_cases(
    *shapes: str | tuple[int, ...],
    shortest: int = 1,
    fewest: int = 0,
    planes: bool = False,
    square: bool = False,
    groups: bool = False,
    dims: Callable[[int], Iterable[int]] = lambda rank: (-1,),
    ranks: tuple[int, int | None] = (1, None),
) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each tensor of an op of rows: `rows`, a `vector` of a row's dimensions, `either`, what may be
    `broadcast`, `numbers`, one for each row, or the dimensions that it has of the first, from the end.

    Args:
        shortest: the least elements of a row.
        fewest: the least rows.
        planes: whether values depend on where an element lies along the last two dimensions.
        square: whether these are of one size.
        groups: whether the last dimension of no row is so many groups, whose number is a constant of a compiled graph.
        dims: the dimensions of a row, of a tensor of so many.
        ranks: the least and the most dimensions of a tensor.
    """
    several = ((4, 33), (6, 20), (1,), (17,), (5, 1), (0, 5), (2, 3, 64), (101, 1001), (3, 4099), (40, 256))
    if planes:  # First cases of which the rows of a plane can stay together on one device.
        several = ((2, 4, 33), (3, 6, 20), *several[2:])
    if groups:  # First cases of one number.
        several = ((3, 4, 30), (3, 6, 20), (1,), (17,), (5, 1), (3, 0, 5), *several[6:])
    if square:
        several = ((4, 20, 20), (2, 33, 33), (2, 2), (17, 17), (3, 64, 64), (101, 101), (2, 3, 256, 256))
        several += () if fewest else ((0, 17, 17),)
        return tuple(_of_rows(_with_rank(shape, ranks), shapes, "rows", dims) for shape in several)
    first = _arranged(several[0], dims, ranks)
    if any(first[dim] == 1 for dim in dims(len(first))):  # A graph that is compiled for it takes no other size there.
        several = ((*several[0][:-1], 99), *several[1:])
    arranged = [_arranged(shape, dims, ranks) for shape in several if shape[-1] >= shortest]
    cases = [_of_rows(shape, shapes, "rows", dims) for shape in arranged if _row_size(shape, dims)]
    if "either" in shapes:
        of_vectors = [_with_rank(shape, ranks) for shape in ((6, 40), (2, 3, 33), (40, 4099))]
        cases += [_of_rows(shape, shapes, "vector", dims) for shape in of_vectors]
    if "broadcast" in shapes:
        smaller = {"vector": (2, 3, 33), "row": (6, 40), "first": (5, 3, 20), "number": (3, 4, 17)}
        cases += [_of_rows(_with_rank(shape, ranks), shapes, kind, dims) for kind, shape in smaller.items()]
    cases = [case for case in cases if fewest == 0 or 0 not in case[0]]
    return tuple(dict.fromkeys(cases))


def row_huge_cases(
    *shapes: str | tuple[int, ...],
    square: bool = False,
    dims: Callable[[int], Iterable[int]] = lambda rank: (-1,),
    ranks: tuple[int, int | None] = (1, None),
) -> tuple[tuple[Shape, ...], ...]:
    """A case of more than 2³¹ elements, where 32-bit indices overflow; the arguments are those of `row_cases`."""
    huge = (2**9 + 3, 2049, 2049)
    shape = _with_rank(huge, ranks) if square else _arranged((2**19 + 3, 4097), dims, ranks)
    return (_of_rows(shape, shapes, "vector", dims),)


def _with_rank(shape: Shape, ranks: tuple[int, int | None]) -> Shape:
    """A shape of as many dimensions as there may be, whose last are those of `shape`."""
    longer = (1,) * (ranks[0] - len(shape)) + shape
    return longer[len(longer) - min(len(longer), ranks[1] or len(longer)) :]


def _row_size(shape: Shape, dims: Callable[[int], Iterable[int]]) -> int:
    return math.prod(shape[dim] for dim in dims(len(shape)))


def _arranged(shape: Shape, dims: Callable[[int], Iterable[int]], ranks: tuple[int, int | None]) -> Shape:
    """A shape of as many dimensions as there may be, of which the last size of `shape` is the elements of a row."""
    rank = min(max(len(shape), ranks[0]), ranks[1] or len(shape) + ranks[0])
    of_row = sorted(dim % rank for dim in dims(rank))
    others = [dim for dim in range(rank) if dim not in of_row]
    sizes, rows = [1] * rank, list(shape[:-1])
    for dim in others[-len(rows) :] if rows else ():
        sizes[dim] = rows.pop()
    if rows and not others:  # All dimensions are one row.
        for dim in of_row[:-1]:
            sizes[dim] = rows.pop() if rows else 1
    elif rows and others:
        sizes[others[0]] *= math.prod(rows)
    columns = shape[-1]
    for dim in of_row[:-1] if others else ():
        if columns % 3 == 0 or columns % 2 == 0:
            sizes[dim] = 3 if columns % 3 == 0 else 2
            columns //= sizes[dim]
    sizes[of_row[-1]] = columns
    return tuple(sizes)


def _of_rows(
    shape: Shape, shapes: Sequence[str | tuple[int, ...]], either: str, dims: Callable[[int], Iterable[int]]
) -> tuple[Shape, ...]:
    of_row = sorted(dim % len(shape) for dim in dims(len(shape)))
    kinds = {
        "rows": shape,
        "vector": tuple(shape[dim] for dim in of_row),
        "numbers": tuple(size for dim, size in enumerate(shape) if dim not in of_row),
        "row": (*shape[:-1], 1),
        "first": (1, *shape[1:]),
        "number": (),
    }
    kinds["broadcast"] = kinds[either]
    kinds["either"] = kinds[either if either in ("rows", "vector") else "rows"]
    return tuple(kinds[kind] if isinstance(kind, str) else tuple(shape[dim] for dim in kind) for kind in shapes)
