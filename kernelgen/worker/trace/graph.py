"""A function's graph, forward or backward, in the few operators that kernels are written in.

A graph is plain data:

- `nodes`: each has an `op` (of operators.py), `arguments`, a `dtype` (float, bool or int), a `kind`, and the `name` of
  the variable that held it, or null. An argument is {"node": i}, {"input": name}, {"scalar": name},
  {"constant": value}; or {"place": true}, an element's place in its row. `checked_zero` of a place is 0 where the row
  has such a place, and NaN where not. The kind is `element`, `column` (a number for each element of a row), `row` (a
  number of each row), `total` (one number of all rows: a sum of such, or what is computed of sums) or `scalar`, which
  is known beforehand. What a row is, the sample says.
- `outputs`: of the forward, the results; of the backward, the gradient of each input of a floating-point dtype. Each is
  an argument as above with its `dtype` and `kind`, or null where there is no gradient.
- Where values depend on coordinates (coordinates.py): {"coordinate": -1} is the place of an element along the last
  dimension, -2 that along the one before.
- Where tensors are cut into parts (parts.py): an {"input": name} or a gradient that is cut has its `part`, and the
  `cut` of its tensor; `outputs` are the parts of all results, `cuts` says how each result is cut, and `part_names` how
  variables are called that hold a part of an input.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from kernelgen.worker.trace.cut import WHOLE, Cut
from kernelgen.worker.trace.operators import (
    CASTS,
    FILLED,
    PLACED,
    REDUCTIONS,
    SAME,
    SCANS,
    TURNED,
    operator_of,
    spelled,
)
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, OtherRowsError, RefusedError

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"}
_COMPARISONS |= {"isnan", "isinf"}
# Integers that numbers are cast to. An "int" is a place in a row instead.
INTEGERS = {getattr(torch, name): name for name in ("int8", "uint8", "int16", "int32", "int64")}
_INTEGER_CASTS = {f"to_{name}": name for name in INTEGERS.values()}
# What is not NaN, whatever its arguments are.
_HIDES_NAN = {*_COMPARISONS, "sign", "row_argmax", "row_argmin"}

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

    def cut(self, name: str) -> Cut:
        return (self.cuts or {}).get(name, WHOLE)

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.values.items() if isinstance(value, Tensor)}

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return math.prod(self.shape[dim] for dim in self.dims)

    @property
    def rows(self) -> int:
        return math.prod(self.shape) // self.columns

    def row_shape(self, keeps: bool = False) -> tuple[int, ...]:
        """Of a tensor with a number for each row."""
        sizes = [1 if dim in self.dims else size for dim, size in enumerate(self.shape)]
        return tuple(sizes if keeps else (size for dim, size in enumerate(sizes) if dim not in self.dims))

    def kind(self, shape: Sequence[int]) -> str:
        """What a tensor of this shape is; raises RefusedError where it is nothing."""
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
        raise RefusedError(
            f"a tensor of another shape, {tuple(shape)} for arguments of shape {self.shape}", UNKNOWN_OPERATOR
        )


@dataclass
class Graph:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any] | None] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    part_names: dict[tuple[str, int], str] = field(default_factory=dict)


class Reader:
    """Turns a graph of torch.fx into a Graph."""

    def __init__(self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str]) -> None:
        self.sample, self.names = sample, names
        self.labels = iter(labels)
        self.graph = Graph()
        # By node with two results.
        self.pairs: dict[fx.Node, tuple[dict[str, Any], dict[str, Any]]] = {}
        # By node of torch.fx: the argument that stands for it.
        self.known: dict[fx.Node, dict[str, Any]] = {}
        # By node of the graph: the checked zeros of which a NaN reaches it, and those of which it would but for a
        # comparison in between.
        self.checks: dict[int, tuple[set[int], set[int]]] = {}

    def read(self, graph: fx.Graph) -> Graph:
        graph.eliminate_dead_code()
        for node in graph.nodes:
            if node.op == "placeholder":
                is_int = node.meta["val"].dtype == torch.int64
                self.known[node] = next(self.labels) | {"dtype": "int" if is_int else dtype_of(node.meta["val"])}
            elif node.op == "call_function":
                self.known[node] = self._call(node)
            elif node.op == "get_attr":
                self.known[node] = self._attribute(node)
            elif node.op == "output":
                self.graph.outputs = [None if out is None else self._output(out) for out in node.args[0]]
        return self.graph

    def _output(self, node: fx.Node) -> dict[str, Any]:
        value, known = node.meta["val"], self.known[node]
        kind = self.sample.kind(value.shape)
        kind = known["kind"] if kind == "scalar" else kind
        refuse_other_dtype(value, known)
        if known.get("turned"):
            raise RefusedError("the operator aten.flip", 2)
        # A row's number may have dimensions of size 1.
        shapes = {"element": [self.sample.shape], "row": [self.sample.row_shape(), self.sample.row_shape(keeps=True)]}
        if tuple(value.shape) not in shapes.get(kind, [tuple(value.shape)]):
            raise RefusedError("a result of which the dimensions are arranged in another way", 2)
        known = self._with_hidden_checks(known, value)
        if "node" not in known and known["kind"] not in (kind, "scalar"):  # An argument, repeated over each row.
            known = self._add("mul", [known, constant(1.0)], value, None, known["kind"])
        keeps = kind == "row" and value.ndim == len(self.sample.shape)
        return known | {"kind": kind, "keeps": keeps}

    def _attribute(self, node: fx.Node) -> dict[str, Any]:
        value = getattr(node.graph.owning_module, node.target)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise RefusedError("a constant tensor", 1)
        return constant(_as_written(value))

    def _call(self, node: fx.Node) -> dict[str, Any]:
        if node.target is operator.getitem:  # Of a reduction with its place: both are known.
            return self.pairs[node.args[0]][node.args[1]]
        name = operator_of(node.target)
        if name is None:
            raise RefusedError(f"the operator {spelled(node.target)}", 2)
        value = node.meta["val"]
        if name in ("max", "min") and isinstance(value, tuple):
            return self._with_place(name, node, value)
        if not isinstance(value, Tensor):
            raise RefusedError(f"the operator {spelled(node.target)}", 2)
        if name in SAME:
            return self._noted(node, self._same(node, value))
        if name in CASTS:
            return self._noted(node, self._cast(node, value))
        if name in FILLED:
            return filled(name, node)
        if name in ("max", "min") and len(node.args) == 1:
            return self._reduced(f"a{name}", node, value)
        if name in ("max", "min"):
            return self._pointwise({"max": "maximum", "min": "minimum"}[name], node, value)
        if name in REDUCTIONS:
            return self._reduced(name, node, value)
        if name in SCANS:
            return self._running(name, node, value)
        if name in TURNED:
            return self._noted(node, self._turned(node))
        if name in PLACED:
            return self._placed(name, node, value)
        return self._pointwise(name, node, value)

    def _pointwise(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        if name in ("clamp", "clamp_min", "clamp_max"):
            return self._clamped(name, node, value)
        arguments = [self._argument(argument) for argument in node.args]
        keywords = dict(node.kwargs)
        if name in ("add", "sub") and keywords.get("alpha", 1) != 1:
            arguments[1] = self._add("mul", [arguments[1], self._argument(keywords["alpha"])], value)
        if name == "rsub":
            scale = keywords.get("alpha", node.args[2] if len(node.args) > 2 else 1)
            first = arguments[0] if scale == 1 else self._add("mul", [arguments[0], self._argument(scale)], value)
            name, arguments = "sub", [arguments[1], first]
        rounding = keywords.get("rounding_mode")
        if name.startswith(("bitwise_", "logical_")) and name != "logical_not":
            name = name.replace("bitwise_", "logical_")
            if value.dtype != torch.bool or any(a["dtype"] != "bool" for a in arguments):
                raise RefusedError(f"the operator {spelled(node.target)} of numbers", 2)
        result = self._add(name, arguments, value, self.names.get(node.name))
        if rounding:
            result = self._add(rounding, [result], value, self.names.get(node.name))
        return result

    def _clamped(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        low, high = {"clamp": (1, 2), "clamp_min": (1, 9), "clamp_max": (9, 1)}[name]

        def bound(place: int, keyword: str) -> Any:
            return node.args[place] if len(node.args) > place else node.kwargs.get(keyword)

        result = self._argument(node.args[0])
        for bounded, limit in (("maximum", bound(low, "min")), ("minimum", bound(high, "max"))):
            if limit is not None:
                result = self._add(bounded, [result, self._argument(limit)], value)
        return self._noted(node, result)

    def _reduced(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        source = node.args[0].meta["val"]
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        dims = list(range(source.ndim)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        sizes = math.prod(source.shape[dim] for dim in dims)
        if sizes == 1:
            return self._noted(node, self._argument(node.args[0]))
        reduced = tuple(dim for dim, size in enumerate(self.sample.shape) if sizes % size == 0)
        kind = self.sample.kind(source.shape)
        argument = self._argument(node.args[0])
        if kind == "row" and sizes == self.sample.rows and name in ("sum", "mean"):
            return self._total(name, argument, node, value)
        if kind != "element":
            raise RefusedError(f"{name} of something else than whole rows", 2)
        if reduced == self.sample.dims:
            return self._rows(name, argument, node, value)
        if set(reduced).isdisjoint(self.sample.dims) and name == "sum" and self._are_all_rows(reduced):
            return self._add("column_sum", [argument], value, self.names.get(node.name), "column")
        raise OtherRowsError(f"{name} over several sets of dimensions", reduced)

    def _total(self, name: str, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The sum, or the mean, of a number of each row."""
        if argument["kind"] != "row":  # The same number for all.
            argument = argument | {"kind": "row"}
        if argument["dtype"] == "bool":
            argument = self._add("to_float", [argument], node.args[0].meta["val"].double())
        argument = self._with_hidden_checks(argument, node.args[0].meta["val"].double())
        total = self._add("total", [argument], value, None, "total")
        if name == "mean":
            total = self._add("div", [total, constant(self.sample.rows)], value, None, "total")
        return self._noted(node, total)

    def _with_place(self, name: str, node: fx.Node, values: tuple[Tensor, ...]) -> dict[str, Any]:
        """The largest number of each row, and its place."""
        place = self._reduced(f"arg{name}", node, values[1])
        number = self._reduced(f"a{name}", node, values[0])
        self.pairs[node] = (number, place)
        return number

    def _running(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The totals of each row's elements up to each of them; of a row that is turned, from each of them on."""
        dim = node.args[1] % max(1, value.ndim)
        argument = self._argument(node.args[0])
        if self.sample.kind(value.shape) != "element" or value.ndim != len(self.sample.shape):
            raise RefusedError(f"{name} of something else than whole rows", 2)
        if self.sample.dims != (dim,):
            raise OtherRowsError(f"{name} along another dimension than others", (dim,))
        if not value.is_floating_point():
            raise RefusedError(f"{name} of whole numbers", 2)
        if argument["dtype"] == "bool":
            argument = self._add("to_float", [argument], value)
        op = SCANS[name] + ("_back" if argument.get("turned") else "")
        return self._add(op, [argument], value, self.names.get(node.name), "element")

    def _turned(self, node: fx.Node) -> dict[str, Any]:
        """The elements of each row from the last to the first. What is computed of such rows alone is turned, too."""
        known, shape = self._argument(node.args[0]), node.meta["val"].shape
        dims = {dim % len(shape) for dim in node.args[1]}
        if all(shape[dim] == 1 for dim in dims) or known["kind"] in ("scalar", "total"):
            return known
        if known["kind"] != "element" or len(shape) != len(self.sample.shape) or len(dims) != 1:
            raise RefusedError(f"the operator {spelled(node.target)}", 2)
        if dims != set(self.sample.dims):
            raise OtherRowsError("flip along another dimension than others", tuple(dims))
        return known | {"turned": not known.get("turned", False)}

    def _placed(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """An element at a place of each row: the sum of the row where all others are 0."""
        tensor, dim, index = node.args[:3]
        shape, place = self.sample.shape, self._argument(index)
        is_of_row = (
            self.sample.dims == (dim % max(1, len(shape)),) and place["kind"] == "row" and place["dtype"] == "int"
        )
        if not is_of_row or self.known[tensor]["kind"] not in ("element", "scalar"):
            raise RefusedError(f"the operator {spelled(node.target)}", 2)
        element = index.meta["val"].new_empty(()).expand(shape)  # Of the right shape, for _add.
        is_there = self._add("eq", [{"place": True, "dtype": "int", "kind": "element"}, place], element.bool())
        others = self._checked_zero(place, value)
        if name == "gather":
            wide = tensor.meta["val"]
            chosen = self._add("where", [is_there, self._argument(tensor), others], wide)
            return self._add("row_sum", [chosen], value, self.names.get(node.name), "row")
        if self.known[tensor].get("constant") != 0.0:
            raise RefusedError(f"the operator {spelled(node.target)} on other numbers than zeros", 2)
        return self._add("where", [is_there, self._argument(node.args[3]), others], value)

    def _checked_zero(self, place: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """The 0 of the elements that are not at the place; NaN where none of the row is."""
        is_found = "node" in place and self.graph.nodes[place["node"]]["op"] in ("row_argmax", "row_argmin")
        if is_found or not value.is_floating_point():
            return constant(0.0)
        zero = self._add("checked_zero", [place], value, None, "row")
        self.checks[zero["node"]] = ({zero["node"]}, set())
        return zero

    def _with_hidden_checks(self, argument: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """A number that a place outside of its row makes NaN even where a comparison comes in between."""
        shown, hidden = self.checks.get(argument.get("node"), (set(), set()))
        if not value.is_floating_point() or argument["kind"] not in ("row", "element"):
            return argument
        for index in sorted(hidden - shown):
            zero = {"node": index, "dtype": "float", "kind": "row"}
            argument = self._add("add", [argument, zero], value, None, argument["kind"])
        return argument

    def _are_all_rows(self, dims: Sequence[int]) -> bool:
        return len(dims) + len(self.sample.dims) == len(self.sample.shape)

    def _rows(self, name: str, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        columns = constant(self.sample.columns)
        if name == "mean":
            total = self._add("row_sum", [argument], value, None, "row")
            return self._add("div", [total, columns], value, self.names.get(node.name), "row")
        if name == "var":
            return self._variance(argument, node, value)
        return self._add(f"row_{name}", [argument], value, self.names.get(node.name), "row")

    def _variance(self, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        correction = node.kwargs.get("correction", node.args[2] if len(node.args) > 2 else 1)
        count = constant(self.sample.columns)
        total = self._add("row_sum", [argument], value, None, "row")
        mean = self._add("div", [total, count], value, "mean", "row")
        wide = node.args[0].meta["val"]
        centred = self._add("sub", [argument, mean], wide, "centred")
        squares = self._add("row_sum", [self._add("mul", [centred, centred], wide)], value, None, "row")
        freedom = constant(self.sample.columns - correction)
        return self._add("div", [squares, freedom], value, self.names.get(node.name) or "variance", "row")

    def _same(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """A view or a copy of the same elements, or one number spread over others."""
        source = node.args[1] if operator_of(node.target) == "copy_" else node.args[0]
        before, after = self.sample.kind(source.meta["val"].shape), self.sample.kind(value.shape)
        known = self._argument(source)
        stretched = after == "element" and value.ndim <= len(self.sample.shape)
        if before not in (after, "scalar") and not stretched:
            raise RefusedError(f"the operator {spelled(node.target)}", 2)
        return known if before in (after, "scalar") else known | {"kind": before}

    def _cast(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        known, integer = self._argument(node.args[0]), INTEGERS.get(value.dtype)
        # Of truth values, 64 and 32 bits are for counts, which are numbers.
        if integer and (known["dtype"] in ("float", *INTEGERS.values()) or value.dtype.itemsize < 4):
            return self._add(f"to_{integer}", [known], value)
        target = dtype_of(value)
        if not (value.dtype.is_floating_point or value.dtype == torch.bool or known["dtype"] == "bool"):
            raise RefusedError(f"a cast to {str(value.dtype).removeprefix('torch.')}", 2)
        if known["dtype"] == target:
            return known
        if target == "bool":
            return self._add("ne", [known, constant(0.0)], value)
        return self._add("to_float", [known], value)

    def _noted(self, node: fx.Node, known: dict[str, Any]) -> dict[str, Any]:
        name = self.names.get(node.name)
        if name and "node" in known and not self.graph.nodes[known["node"]]["name"]:
            self.graph.nodes[known["node"]]["name"] = name
        return known

    def _argument(self, value: Any) -> dict[str, Any]:
        if isinstance(value, fx.Node):
            return self.known[value]
        if isinstance(value, (bool, int, float)):
            return constant(value)
        raise RefusedError(f"an argument {value!r}", 2)

    def _add(
        self, op: str, arguments: list[dict[str, Any]], value: Tensor, name: str | None = None, kind: str | None = None
    ) -> dict[str, Any]:
        if not op.startswith("to_"):
            arguments = [self._as_number(op, argument, value) for argument in arguments]
        kinds = {argument.get("kind", "scalar") for argument in arguments} - {"scalar"}
        kinds = kinds - {"total"} or kinds
        kind = kind or (kinds.pop() if len(kinds) == 1 else "element" if kinds else "scalar")
        if op in _INTEGER_CASTS:
            dtype = _INTEGER_CASTS[op]
        else:
            dtype = "bool" if op in _COMPARISONS else "int" if _is_place(op, arguments) else dtype_of(value)
        turned = {a.get("turned", False) for a in arguments if a.get("kind") in ("element", "column")}
        if len(turned) > 1:
            raise RefusedError("the operator aten.flip of some rows beside others", 2)
        self.graph.nodes.append({"op": op, "arguments": arguments, "dtype": dtype, "kind": kind, "name": name})
        result = {"node": len(self.graph.nodes) - 1, "dtype": dtype, "kind": kind}
        self._follow_checks(op, arguments, result["node"])
        return result | {"turned": True} if turned == {True} and kind == "element" else result

    def _as_number(self, op: str, argument: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """An integer as the number that PyTorch makes of it beside numbers; there is no arithmetic of integers."""
        if argument.get("dtype") not in INTEGERS.values():
            return argument
        if not value.is_floating_point() and op not in _COMPARISONS:
            raise RefusedError(f"{op} of {argument['dtype']}", 2)
        return self._add("to_float", [argument], value.double(), None, argument["kind"])

    def _follow_checks(self, op: str, arguments: list[dict[str, Any]], node: int) -> None:
        of_arguments = [self.checks.get(argument.get("node"), (set(), set())) for argument in arguments]
        shown = set().union(*(shown for shown, _ in of_arguments))
        hidden = set().union(*(hidden for _, hidden in of_arguments))
        if op in _HIDES_NAN:
            shown, hidden = set(), shown | hidden
        if shown or hidden:
            self.checks[node] = (shown, hidden)


def _is_place(op: str, arguments: list[dict[str, Any]]) -> bool:
    """Whether a node is the place of an element in its row."""
    if op == "where":
        chosen = [argument for argument in arguments[1:] if "constant" not in argument]
        return bool(chosen) and all(argument["dtype"] == "int" for argument in chosen)
    return op in ("row_argmax", "row_argmin")


def refuse_other_dtype(value: Tensor, known: dict[str, Any]) -> None:
    """Raises RefusedError where a result is not of the dtype that it is computed in."""
    if known["dtype"] not in (DTYPES.get(value.dtype), INTEGERS.get(value.dtype)):
        raise RefusedError(f"a result of dtype {str(value.dtype).removeprefix('torch.')}", 2)


def filled(name: str, node: fx.Node) -> dict[str, Any]:
    values = {"zeros_like": 0.0, "ones_like": 1.0, "zeros": 0.0, "ones": 1.0}
    value = values.get(name, node.args[0] if name == "scalar_tensor" else node.args[-1])
    if not isinstance(value, (bool, int, float)):
        raise RefusedError(f"the operator {spelled(node.target)}", 2)
    is_bool = node.meta["val"].dtype == torch.bool
    return constant(bool(value) if is_bool else float(value))


def constant(value: Any) -> dict[str, Any]:
    return {"constant": value, "dtype": "bool" if isinstance(value, bool) else "float", "kind": "scalar"}


def _as_written(value: Tensor) -> float | bool:
    """The shortest number that a tensor's dtype rounds to its element: 0.1 where float32 holds 0.100000001."""
    number = value.item()
    if value.is_floating_point() and math.isfinite(number):
        texts = (f"{number:.{digits}g}" for digits in range(1, 18))
        return next(float(text) for text in texts if value.new_tensor(float(text)).item() == number)
    return number


def dtype_of(value: Tensor) -> str:
    if value.dtype == torch.bool:
        return "bool"
    # Whole numbers are what decompositions choose from, such as 1 and -1.
    if value.dtype.is_floating_point or value.dtype in (torch.int32, torch.int64):
        return "float"
    raise RefusedError(f"numbers of dtype {str(value.dtype).removeprefix('torch.')}", 2)
