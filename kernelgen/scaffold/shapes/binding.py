"""In which order the sizes that shapes name become known, and what is then left to check: one list of steps, which is
spelt in C++ and in Python, and worked through to draw cases."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.scaffold.schema.model import Argument
from kernelgen.scaffold.shapes.expressions import Size, named
from kernelgen.scaffold.shapes.parser import Condition, Shape, Shapes, is_size


@dataclass(frozen=True)
class Scalar:
    """The int argument `name` is a size: 0 or more."""

    name: str


@dataclass(frozen=True)
class Tensor:
    """A tensor argument: its dtype is one of its class; its rank, or with leading dimensions the least rank, is known.

    `binds`: the sizes that become known, by dimension; each is an expression of the dimension's own size, which `OWN`
    names. `is_first`: its leading dimensions are those of all. `is_checked`: its shape has to equal what it says.
    """

    argument: Argument
    shape: Shape
    binds: tuple[tuple[int, str, Size], ...]
    is_first: bool
    is_checked: bool


@dataclass(frozen=True)
class Divisible:
    """`dividend` is a multiple of `divisor`; a size of the tensor `of` or an int argument."""

    of: str
    dividend: Size
    divisor: Size


# The size of a dimension, in the expressions of Tensor.binds.
OWN = "<own>"

Step = Scalar | Tensor | Divisible | Condition


def steps(shapes: Shapes) -> list[Step]:
    """Raises ShapesError where a size cannot be known from the arguments."""
    return _Binding(shapes).steps


class _Binding:
    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.arguments = {argument.name: argument for argument in shapes.schema.arguments}
        self.known: dict[str, str] = {}
        self.has_leading = False
        self.steps: list[Step] = []
        self.divided: set[tuple[str, str]] = set()
        used = {name for shape in shapes.shapes for dim in shape.dims for name in dim.names}
        used |= {name for c in shapes.conditions for name in (c.left, *c.right.names)}
        used |= {name for shape in shapes.shapes if shape.below for name in shape.below.names}
        for argument in self.arguments.values():
            if is_size(argument) and argument.name in used:
                self.known[argument.name] = argument.name
                self.steps.append(Scalar(argument.name))
        required = [n for n in shapes.arguments if not _may_lack(self.arguments[n])]
        optional = [n for n in shapes.arguments if _may_lack(self.arguments[n])]
        self.bind(required)
        for name in optional:
            self.check_known(self.shapes.arguments[name])
            self.add(name, ())
        for shape in shapes.results:
            self.check_known(shape)
            self.divisible("", shape.dims)
        for shape in shapes.arguments.values():
            if shape.below:
                self.check_named(shape.below)
        for condition in shapes.conditions:
            self.check_named(named(condition.left))
            self.check_named(condition.right)
            self.divisible("", (condition.right,))
            self.steps.append(condition)

    def bind(self, names: list[str]) -> None:
        """The tensors in the schema's order, but one whose sizes another gives after that other."""
        waiting = list(names)
        while waiting:
            ready = next((name for name in waiting if self.binds(self.shapes.arguments[name]) is not None), None)
            if ready is None:
                self.check_known(self.shapes.arguments[waiting[0]])
            waiting.remove(ready)
            self.add(ready, self.binds(self.shapes.arguments[ready]))

    def binds(self, shape: Shape) -> tuple[tuple[int, str, Size], ...] | None:
        """The sizes that a tensor gives, by dimension; None where a dimension leaves one open."""
        known, given = set(self.known), {}
        open_dims = dict(enumerate(shape.dims))
        while open_dims:
            progress = False
            for i, dim in sorted(open_dims.items(), key=lambda item: bool(item[1].operation)):
                unknown = [name for name in dim.names if name not in known]
                solved = dim.solved_for(unknown[0], named(OWN)) if len(unknown) == 1 else None
                if unknown and solved is None:
                    continue
                if unknown:
                    known.add(unknown[0])
                    given[i] = (i, unknown[0], solved)
                del open_dims[i]
                progress = True
            if not progress:
                return None
        return tuple(given[i] for i in sorted(given, key=lambda i: (bool(shape.dims[i].operation), i)))

    def add(self, name: str, binds: tuple[tuple[int, str, Size], ...]) -> None:
        shape, argument = self.shapes.arguments[name], self.arguments[name]
        is_first = shape.leading and not self.has_leading
        fresh = {i for i, _, _ in binds if not shape.dims[i].operation}
        is_checked = len(fresh) < len(shape.dims) or (shape.leading and not is_first)
        for _, size, _ in binds:
            self.known[size] = name
        dims = [dim for i, dim in enumerate(shape.dims) if i not in {i for i, _, _ in binds}]
        before = list(self.steps)
        self.divisible(name, tuple(dims))
        divisions = self.steps[len(before) :]
        self.steps = [*before, Tensor(argument, shape, binds, is_first, is_checked)]
        # A multiple of a size that the tensor itself gives is looked at after it, any other before.
        own = {size for _, size, _ in binds}
        position = len(before)
        for division in divisions:
            if own & {*division.dividend.names, *division.divisor.names}:
                self.steps.append(division)
            else:
                self.steps.insert(position, division)
                position += 1
        self.has_leading |= shape.leading

    def divisible(self, tensor: str, dims: tuple[Size, ...]) -> None:
        for dividend, divisor in (pair for dim in dims for pair in dim.divisions):
            if (str(dividend), str(divisor)) not in self.divided and str(divisor) != "1":
                self.divided.add((str(dividend), str(divisor)))
                self.steps.append(Divisible(self.known.get(dividend.name, tensor), dividend, divisor))

    def check_known(self, shape: Shape) -> None:
        for i, dim in enumerate(shape.dims):
            unknown = [size for size in dim.names if size not in self.known]
            if unknown:
                offset = shape.offsets[i] if shape.offsets else 0
                raise self.shapes.error(
                    f"{unknown[0]} is not known: let it be a dimension by itself of an argument that is always given.",
                    offset,
                )

    def check_named(self, size: Size) -> None:
        unknown = [name for name in size.names if name not in self.known]
        if unknown:
            raise self.shapes.error(f"{unknown[0]} is the size of no dimension.")


def _may_lack(argument: Argument) -> bool:
    return argument.type.optional or argument.type.is_list
