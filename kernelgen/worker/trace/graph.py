"""A function's graph, forward or backward, in the few operators that kernels are written in.

A graph is plain data:

- `nodes`: each has an `op` (of operators.py), `arguments`, a `dtype` (float, bool, int or that of integers), a `kind`,
  and the `name` of the variable that held it, or null. An argument is {"node": i}, {"input": name}, {"scalar": name},
  {"constant": value}; or {"place": true}, an element's place in its row. `checked_zero` of a place is 0 where the row
  has such a place, and NaN where not. The kind is `element`, `column` (a number for each element of a row), `row` (a
  number of each row), `total` (one number of all rows: a sum of such, or what is computed of sums) or `scalar`, which
  is known beforehand. What a row is, the sample says.
- `outputs`: of the forward, the results; of the backward, the gradient of each input of a floating-point dtype. Each is
  an argument as above with its `dtype` and `kind`, or null where there is no gradient.
- Of a tensor that is repeated along some dimensions, a gradient is an output with `summed`, these dimensions: those of
  all that it is repeated to are computed, and have to be added up.
- Where a dimension is split into groups (split.py), an output of elements has `joined`, whether they are
  one dimension with their elements.
- An output of elements whose dimensions come in another order than those of the sample's shape has this `order`, as
  permute takes it; it is `copied` where the function returns it contiguously.
- An output with one number for each point (see `of_points`), of a result without the last dimension, is `dropped`.
- Where values depend on coordinates (coordinates.py): {"coordinate": -1} is the place of an element along the last
  dimension, -2 that along the one before.
- Where neighbours are read (neighbours.py): an {"input": name} or a gradient has its `shift`, along the last two
  dimensions, whether it `wraps` around, and maybe which of them it `flips`; {"inside": [dim, distance]} is whether
  there is such a place. `border` says how much larger the results are than the arguments, and `least` which sizes these
  have at least.
- Where tensors are cut into parts (parts.py): an {"input": name} or a gradient that is cut has its `part`, and the
  `cut` of its tensor; `outputs` are the parts of all results, `cuts` says how each result is cut, and `part_names` how
  variables are called that hold a part of an input.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from kernelgen.worker.trace.cut import WHOLE, Cut
from kernelgen.worker.trace.operators import in_words
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, RefusedError
from kernelgen.worker.trace.split import Split

# Integers that numbers are cast to. An "int" is a place in a row instead.
INTEGERS = {getattr(torch, name): name for name in ("int8", "uint8", "int16", "int32", "int64")}
# Numbers of 8 bits, which have no arithmetic and no gradient: codes, as integers are.
FLOAT8 = {getattr(torch, name): name for name in ("float8_e4m3fn", "float8_e5m2")}
CODES = INTEGERS | FLOAT8
# The dtypes of results.
DTYPES = {torch.float32: "float", torch.bool: "bool", torch.int64: "int"}


@dataclass(frozen=True)
class Sample:
    """Arguments to trace with: their values by name, what each tensor is, the shape of most, and the dimensions of it
    that make up a row.

    The sizes are distinct primes: those of a tensor of another shape tell which dimensions are left in it.
    """

    values: dict[str, Any]
    kinds: dict[str, str]
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    cuts: dict[str, Cut] | None = None  # Of tensors of which `shape` is that of a part; None where nothing is cut.
    coordinates: bool = False  # Whether values may depend on where an element lies.
    sums_all: bool = False  # Whether a sum of all elements is one of all rows: each row is a sum before it.
    # Of tensors that have some of the dimensions, and are repeated along the others: which, counted from the end.
    spreads: dict[str, tuple[int, ...]] = field(default_factory=dict)
    split: Split | None = None  # Of the tensors of which two dimensions are one for the function.
    # Of tensors whose dimensions come in another order for the function, as permute takes it.
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    neighbours: bool = False  # Whether neighbours of elements are read.
    numbers: frozenset[str] = frozenset()  # The tensors that have one for each point, and no last dimension.

    def cut(self, name: str) -> Cut:
        return (self.cuts or {}).get(name, WHOLE)

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.values.items() if isinstance(value, Tensor)}

    @property
    def of_points(self) -> bool:
        """Whether parts are single elements, as the coordinates of a point are."""
        return bool(self.cuts) and self.shape[-1] == 1

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return math.prod(self.shape[dim] for dim in self.dims)

    @property
    def rows(self) -> int:
        return math.prod(size for dim, size in enumerate(self.shape) if dim not in self.dims)

    def row_shape(self, keeps: bool = False) -> tuple[int, ...]:
        """Of a tensor with a number for each row."""
        sizes = [1 if dim in self.dims else size for dim, size in enumerate(self.shape)]
        return tuple(sizes if keeps else (size for dim, size in enumerate(sizes) if dim not in self.dims))

    def order_of(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The order of the dimensions of a tensor of all elements; None where it is that of the sample, or a size does
        not tell which dimension it is of."""
        return order_of(self.shape, shape)

    def joined_shape(self, dims: Sequence[int] | None = None) -> tuple[int, ...]:
        """Of a tensor with these of the dimensions, or with all, as the function takes it: groups are one dimension."""
        dims = range(len(self.shape)) if dims is None else [dim % len(self.shape) for dim in dims]
        return self.split.joined_shape(self.shape, dims) if self.split else tuple(self.shape[dim] for dim in dims)

    def arranged(self, whole: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor of all elements, in the shape that the function has it in: with groups that are joined, or with its
        dimensions in another order."""
        if tuple(whole.shape) == tuple(shape):
            return whole
        order = order_of(whole.shape, shape)
        return whole.permute(order) if order else whole.reshape(shape)

    def spread_shape(self, name: str, keeps: bool = False) -> tuple[int, ...]:
        """Of a tensor that has some of the dimensions; `keeps`: the others are of size 1."""
        dims = {dim + len(self.shape) for dim in self.spreads[name]}
        sizes = [size if dim in dims else 1 for dim, size in enumerate(self.shape)]
        return tuple(sizes if keeps else (size for dim, size in enumerate(sizes) if dim in dims))

    def repeated_dims(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The dimensions that a tensor of this shape lacks of those of most; None where it is none that is repeated."""
        for name, dims in self.spreads.items():
            own_shapes = (self.spread_shape(name), self.joined_shape(dims))
            if tuple(size for size in shape if size > 1) in own_shapes:
                own = {dim + len(self.shape) for dim in dims}
                return tuple(dim for dim in range(len(self.shape)) if dim not in own)
        return None

    def kind(self, shape: Sequence[int]) -> str:
        """What a tensor of this shape is; raises RefusedError where it is nothing."""
        if tuple(shape) == self.shape:
            return "element"
        if tuple(shape) in (self.row_shape(), self.row_shape(keeps=True)):
            return "row"
        total = math.prod(shape)
        left = {dim for dim, size in enumerate(self.shape) if total % size == 0}
        rest = set(range(len(self.shape))) - set(self.dims)
        if total == math.prod(self.shape[dim] for dim in left):
            if len(left) == len(self.shape):
                return "element"
            if left == rest:
                return "row"
            if left == set(self.dims):
                return "column"
            if not left:
                return "scalar"
            if self.spreads:
                return "spread"
        raise RefusedError(
            f"a tensor of another shape, {tuple(shape)} for arguments of shape {self.shape}", UNKNOWN_OPERATOR - 1
        )


def order_of(whole: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The order in which a shape has the dimensions of another one; None where it is the same, or sizes do not tell."""
    is_permuted = tuple(shape) != tuple(whole) and sorted(shape) == sorted(whole)
    return tuple(list(whole).index(size) for size in shape) if is_permuted and len(set(whole)) == len(whole) else None


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes one."""
    return tuple(order.index(dim) for dim in range(len(order)))


@dataclass
class Graph:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any] | None] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    part_names: dict[tuple[str, int], str] = field(default_factory=dict)
    # Where neighbours are read: how much larger results are than arguments along the last two dimensions, and the least
    # sizes of these.
    border: list[int] | None = None
    least: list[int] | None = None
    # How the function computed numbers of its scalars, by their values: see scalars.py.
    trees: dict[float, list[tuple[Any, ...]]] = field(default_factory=dict)


def firsts(forward: dict[str, Any]) -> list[dict[str, Any]]:
    """The output of each result, or that of its first part."""
    counts = [cut["parts"] for cut in forward.get("cuts", [])] or [1] * len(forward["outputs"])
    return [forward["outputs"][sum(counts[:i])] for i in range(len(counts))]


def refuse_other_dtype(value: Tensor, known: dict[str, Any]) -> None:
    """Raises RefusedError where a result is not of the dtype that it is computed in."""
    if known["dtype"] == "float" and value.dtype in (torch.float16, torch.bfloat16):
        return  # It is rounded where it is written.
    if known["dtype"] not in (DTYPES.get(value.dtype), CODES.get(value.dtype)):
        raise RefusedError(f"a result of dtype {str(value.dtype).removeprefix('torch.')}", 2)


def filled(name: str, node: fx.Node) -> dict[str, Any]:
    values = {"zeros_like": 0.0, "ones_like": 1.0, "zeros": 0.0, "ones": 1.0}
    value = values.get(name, node.args[0] if name == "scalar_tensor" else node.args[-1])
    if not isinstance(value, (bool, int, float)):
        raise RefusedError(in_words(node.target), 2)
    is_bool = node.meta["val"].dtype == torch.bool
    return constant(bool(value) if is_bool else float(value))


def constant(value: Any) -> dict[str, Any]:
    return {"constant": value, "dtype": "bool" if isinstance(value, bool) else "float", "kind": "scalar"}


def dtype_of_argument(value: Tensor, kind: str) -> str:
    """Of an integer of 64 bits for each row it is a place; of others the name."""
    if value.dtype == torch.int64 and kind == "row":
        return "int"
    return CODES.get(value.dtype) or dtype_of(value)


def has_gradient(value: Any) -> bool:
    """Whether it is a tensor of numbers that a function is differentiated by, which have more than 8 bits."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype not in FLOAT8


def is_differentiable(result: Tensor) -> bool:
    """Whether a function's result is differentiated, by what it was computed of."""
    return has_gradient(result) and result.requires_grad


def dtype_of(value: Tensor) -> str:
    if value.dtype == torch.bool:
        return "bool"
    # Whole numbers are what decompositions choose from, such as 1 and -1.
    if value.dtype.is_floating_point or value.dtype in (torch.int32, torch.int64):
        return "float"
    raise RefusedError(f"numbers of dtype {str(value.dtype).removeprefix('torch.')}", 2)
