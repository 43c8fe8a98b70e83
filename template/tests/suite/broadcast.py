"""Shapes and arguments for ops whose tensors broadcast."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Shape = tuple[int, ...]


def broadcast_cases(count: int, alike: bool = False) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each of so many tensors: all alike, then each of them broadcast in every way, unless `alike`."""
    shapes = ((4, 33), (6, 20), (), (1,), (17,), (0, 5), (5, 0), (2, 3, 64), (101, 1001))
    cases = [(shape,) * count for shape in shapes]
    if alike or count == 1:
        return tuple(cases)
    for i in range(count):
        for shape in ((6, 40), (2, 3, 33)):
            for smaller in (shape[-1:], (*shape[:-1], 1), (1, *shape[1:]), ()):
                cases.append(tuple(smaller if place == i else shape for place in range(count)))
    return *cases, ((5, 1), *[(1, 7)] * (count - 1))


def changed(args: Sequence[Any], place: int, change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """The arguments with the `place`-th tensor among them changed."""
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    return tuple(change(arg) if i == places[place] else arg for i, arg in enumerate(args))


def row_cases(*shapes: str, shortest: int = 1) -> tuple[tuple[Shape, ...], ...]:
    """A shape for each tensor of an op of rows: `rows`, a `vector` of the last dimension, or `either`."""
    several = ((4, 33), (6, 20), (1,), (17,), (5, 1), (0, 5), (2, 3, 64), (101, 1001), (3, 4099), (40, 256))
    cases = [_of_rows(shape, shapes, "rows") for shape in several if shape[-1] >= shortest]
    if "either" in shapes:
        cases += [_of_rows(shape, shapes, "vector") for shape in ((6, 40), (2, 3, 33), (40, 4099))]
    return tuple(cases)


def row_huge_cases(*shapes: str) -> tuple[tuple[Shape, ...], ...]:
    return (_of_rows((2**19 + 3, 4097), shapes, "vector"),)


def _of_rows(shape: Shape, shapes: Sequence[str], either: str) -> tuple[Shape, ...]:
    return tuple(shape if (either if kind == "either" else kind) == "rows" else shape[-1:] for kind in shapes)
