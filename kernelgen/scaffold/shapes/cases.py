"""Sizes for tests and measurements: assignments of the named sizes under which all divisions are exact, all conditions
hold and no size is negative."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelgen.scaffold.shapes.binding import Scalar, steps
from kernelgen.scaffold.shapes.expressions import InexactError
from kernelgen.scaffold.shapes.parser import Shape, Shapes

# The leading dimensions, in a case.
LEADING = "leading"
Case = dict[str, "int | tuple[int, ...]"]


@dataclass(frozen=True)
class Sizes:
    """The names that a case gives sizes to, in order: `leading` first where there are such dimensions; `scalars` are
    those that int arguments give (`by_name`: by name alone), `rows` those that end a tensor's shape."""

    shapes: Shapes
    names: tuple[str, ...]
    scalars: tuple[str, ...]
    rows: tuple[str, ...]
    samples: Mapping[str, int]
    by_name: tuple[str, ...] = ()

    @cached_property
    def multiples(self) -> dict[str, int]:
        """What a size has to be a multiple of, for divisions by numbers."""
        multiples: dict[str, int] = {}
        for dividend, divisor in (pair for shape in self.shapes.shapes for dim in shape.dims for pair in dim.divisions):
            if dividend.name and divisor.value:
                multiples[dividend.name] = math.lcm(multiples.get(dividend.name, 1), divisor.value)
        return multiples

    @property
    def free(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name != LEADING)


def sizes_of(shapes: Shapes) -> Sizes:
    """The sizes that shapes name, in the order in which they name them; the leading dimensions come first."""
    ordered = [name for shape in shapes.shapes for dim in shape.dims for name in dim.names]
    bounds = [name for shape in shapes.shapes if shape.below for name in shape.below.names]
    conditions = [name for c in shapes.conditions for name in (c.left, *c.right.names)]
    names = list(dict.fromkeys([*ordered, *bounds, *conditions]))
    leading = [LEADING] if any(shape.leading for shape in shapes.shapes) else []
    scalars = [step.name for step in steps(shapes) if isinstance(step, Scalar)]
    rows = [name for shape in shapes.shapes if shape.dims for name in shape.dims[-1].names]
    defaults = {a.name: a.default for a in shapes.schema.arguments}
    samples = {name: int(defaults[name].python) if defaults[name] else 2 for name in scalars}
    by_name = tuple(a.name for a in shapes.schema.arguments if a.keyword_only and a.name in scalars)
    return Sizes(shapes, (*leading, *names), tuple(scalars), tuple(dict.fromkeys(rows)), samples, by_name)


def shape_in(shape: Shape, case: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...]:
    """A tensor's shape in a case. Raises InexactError where a division is inexact or a size negative."""
    dims = tuple(dim.evaluate(case) for dim in shape.dims)
    if any(dim < 0 for dim in dims):
        raise InexactError(f"{shape} has a negative size")
    return (*case[LEADING], *dims) if shape.leading else dims


def is_valid(shapes: Shapes, case: Mapping[str, int | tuple[int, ...]]) -> bool:
    """Whether a case's divisions are exact, its bounds 1 or more, and all conditions hold."""
    try:
        for shape in shapes.shapes:
            shape_in(shape, case)
            if shape.below and shape.below.evaluate(case) < 1:
                return False
        return all(
            case[c.left] >= c.right.evaluate(case) if c.symbol == ">=" else case[c.left] <= c.right.evaluate(case)
            for c in shapes.conditions
        )
    except InexactError:
        return False


def _elements(shapes: Shapes, case: Mapping[str, int | tuple[int, ...]]) -> list[int]:
    return [math.prod(shape_in(shape, case)) for shape in shapes.arguments.values()]


# Sizes to choose from, the best first, for a size that ends a shape and for any other.
_POOLS = {
    "typical": ((33, 34, 35, 36, 40, 48, 66, 80, 4, 2, 1), (4, 3, 5, 2, 6, 8, 12, 16, 24, 32, 48, 64, 128, 1)),
    "second": ((20, 24, 44, 28, 32, 64, 96, 160, 8, 6, 2, 1), (6, 5, 2, 8, 3, 4, 12, 16, 24, 32, 64, 128, 256, 1)),
    "odd": ((17, 18, 19, 34, 68, 51, 32, 64, 8, 4, 2, 1), (2, 3, 1, 4, 5, 6, 8, 12, 16, 32, 64, 128)),
    "one": ((1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128), (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128)),
    "two": ((2, 3, 4, 6, 8, 16, 32, 64, 128), (2, 3, 4, 6, 8, 16, 32, 64, 128)),
}


def cases(sizes: Sizes) -> list[Case]:
    """Cases for tests, of sizes as the suite asks for: a typical one, a second of other sizes, an odd row, one element,
    no element, and ten thousand elements. Those that the shapes rule out are left out."""
    drawn: list[Case | None] = [_first(sizes, *_POOLS["typical"])]
    drawn.append(_first(sizes, *_POOLS["second"], avoid=drawn[0]))
    drawn.append(_first(sizes, *_POOLS["odd"]))
    drawn.append(_first(sizes, *_POOLS["one"], scalar=1, rank=1))
    drawn.append(_empty(sizes, drawn[0]))
    drawn.append(_large(sizes, drawn[0], 10_000))
    if LEADING in sizes.names and drawn[2]:
        drawn.append(drawn[2] | {LEADING: ()})
        drawn.append(drawn[2] | {LEADING: (2, 3, 2)})
    unique: list[Case] = []
    for case in drawn:
        if case is not None and case not in unique and is_valid(sizes.shapes, case):
            unique.append(case)
    return unique


def _first(
    sizes: Sizes,
    rows: Sequence[int],
    others: Sequence[int],
    avoid: Mapping[str, int | tuple[int, ...]] | None = None,
    scalar: int | None = None,
    rank: int = 0,
) -> Case | None:
    """The first valid case with sizes of these pools, each of another size than in `avoid` where that can be."""
    leading: dict[str, tuple[int, ...]] = {}
    if LEADING in sizes.names:
        leading = {LEADING: (1,) if rank else ((5, 2) if avoid else (3, 4))}
    fixed = {name: sizes.samples[name] if scalar is None or name in sizes.by_name else scalar for name in sizes.scalars}
    free = [name for name in sizes.free if name not in fixed]
    pools = []
    for place, name in enumerate(free):
        pool = list(rows if name in sizes.rows else others)
        turn = place % 4 if name not in sizes.rows and scalar is None and len(pool) > 4 else 0
        pool = pool[turn:4] + pool[:turn] + pool[4:] if turn else pool
        multiple = sizes.multiples.get(name, 1)
        pool = list(dict.fromkeys(-(-size // multiple) * multiple for size in pool))
        if avoid:
            pool = [size for size in pool if size != avoid.get(name) and size > 1] or pool
        pools.append(pool)
    first = None
    for choice in itertools.islice(_nearest_first(pools), 20_000):
        case = {**leading, **dict(zip(free, choice, strict=True)), **fixed}
        if is_valid(sizes.shapes, case):
            first = first or {name: case[name] for name in sizes.names}
            if scalar is not None or _are_different(sizes.shapes, case):
                return {name: case[name] for name in sizes.names}
    return first


def _are_different(shapes: Shapes, case: Mapping[str, int | tuple[int, ...]]) -> bool:
    """Whether sizes that are different in words are different numbers: torch.compile takes equal ones for the same."""
    dims = {str(dim): dim.evaluate(case) for shape in shapes.arguments.values() for dim in shape.dims}
    numbers = [*dims.values(), *case.get(LEADING, ())]
    return len(set(numbers)) == len(numbers)


def _nearest_first(pools: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Choices from pools: those of early items before others."""
    if not pools:
        yield ()
        return
    longest = max(map(len, pools))
    for depth in range(longest):
        for places in itertools.product(*(range(min(depth + 1, len(pool))) for pool in pools)):
            if depth == 0 or max(places) == depth:
                yield tuple(pool[place] for pool, place in zip(pools, places, strict=True))


def _empty(sizes: Sizes, typical: Case | None) -> Case | None:
    """The typical case without elements: along its leading dimensions, or the first dimension that can be empty."""
    if typical is None:
        return None
    if LEADING in sizes.names:
        return typical | {LEADING: (0,)}
    free = [name for name in sizes.free if name not in sizes.scalars]
    candidates = (typical | {name: 0} for name in free)
    return next((case for case in candidates if is_valid(sizes.shapes, case)), None)


def _large(sizes: Sizes, typical: Case | None, elements: int) -> Case | None:
    """The typical case, with its first size so large that a tensor has so many elements."""
    if typical is None:
        return None
    if LEADING in sizes.names:
        return _grown(sizes, typical, elements, lambda case, count: case | {LEADING: (count,)})
    for name in (name for name in sizes.free if name not in sizes.scalars):
        case = _grown(sizes, typical, elements, lambda case, count, name=name: case | {name: count})
        if case:
            return case
    return None


def _grown(sizes: Sizes, case: Case, elements: int, grow: Callable[[Case, int], Case]) -> Case | None:
    for count in (101, 307, 1009, 2003, 3001, 10_007, 128, 512, 1024, 2048, 4096, 16_384, 131_072):
        grown = grow(case, count)
        if is_valid(sizes.shapes, grown) and max(_elements(sizes.shapes, grown), default=0) >= elements:
            return grown
    return None


def measured(sizes: Sizes, elements: int) -> dict[str, int] | None:
    """Sizes to measure, powers of two where they can be: about so many elements in the largest tensor.

    `leading` is a number here: of rows.
    """
    pools = ((1024, 512, 256, 128, 64, 2048), (16, 32, 8, 64, 4, 128))
    case = _first(sizes, *pools)
    if case is None:
        return None
    growing = LEADING if LEADING in sizes.names else next((n for n in sizes.free if n not in sizes.scalars), None)
    if growing is None:
        return {name: size for name, size in case.items() if isinstance(size, int)}
    count = 1
    while count < elements:
        case = case | {growing: (count,) if growing == LEADING else count}
        if is_valid(sizes.shapes, case) and max(_elements(sizes.shapes, case), default=0) >= elements:
            break
        count *= 2
    return {name: size[0] if isinstance(size, tuple) else size for name, size in case.items()}
