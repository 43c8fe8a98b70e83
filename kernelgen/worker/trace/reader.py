"""Turns a graph of torch.fx into the few operators that kernels are written in."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from kernelgen.worker.trace.graph import (
    CODES,
    FLOAT8,
    INTEGERS,
    Graph,
    constant,
    dtype_of,
    dtype_of_argument,
    filled,
    refuse_other_dtype,
)
from kernelgen.worker.trace.operators import (
    CASTS,
    FILLED,
    MASKED,
    PERMUTED,
    PICKED,
    PLACED,
    REDUCTIONS,
    SAME,
    SCANS,
    TURNED,
    in_words,
    operator_of,
    spelled,
    unknown,
)
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.row_operators import RowOperators

# Derivatives of digamma, by how often it is differentiated.
_POLYGAMMAS = {0: "digamma", 1: "trigamma"}


class Reader(RowOperators):
    """Turns a graph of torch.fx into a Graph."""

    def read(self, graph: fx.Graph) -> Graph:
        graph.eliminate_dead_code()
        for node in graph.nodes:
            if node.op == "placeholder":
                self.known[node] = self._placeholder(node, next(self.labels))
            elif node.op == "call_function":
                self.known[node] = self._call(node)
            elif node.op == "get_attr":
                self.known[node] = self._attribute(node)
            elif node.op == "output":
                self._read_outputs(node.args[0])
        return self.graph

    def _placeholder(self, node: fx.Node, label: dict[str, Any]) -> dict[str, Any]:
        return label | {"dtype": dtype_of_argument(node.meta["val"], label["kind"])}

    def _read_outputs(self, nodes: Sequence[fx.Node | None]) -> None:
        self.graph.outputs = [None if node is None else self._output(node) for node in nodes]

    def _output(self, node: fx.Node) -> dict[str, Any]:
        value, known = node.meta["val"], self.known[node]
        kind = self.sample.kind(value.shape)
        kind = known["kind"] if kind == "scalar" else kind
        if known.get("turned"):
            raise RefusedError("the operator aten.flip", 2)
        if kind == "spread" or "summed" in known:
            return self._gradient_of_repeated(known, value)
        # A row's number may have dimensions of size 1.
        whole = [self.sample.shape, self.sample.joined_shape()]
        shapes = {"element": whole, "row": [self.sample.row_shape(), self.sample.row_shape(keeps=True)]}
        order = self.sample.order_of(value.shape) if kind == "element" else None
        if order is None and tuple(value.shape) not in shapes.get(kind, [tuple(value.shape)]):
            raise RefusedError("a result of which the dimensions are arranged in another way", 2)
        if value.dtype == torch.int64 and known["dtype"] == "float" and kind == "row":  # A count of elements.
            known = self._add("to_int64", [known], value) | {"dtype": "int"}
        elif value.dtype in INTEGERS and known["dtype"] == "float" and kind == "element":  # Made of truth values.
            known = self._add(f"to_{INTEGERS[value.dtype]}", [known], value)
        refuse_other_dtype(value, known)
        known = self._with_hidden_checks(known, value)
        if "node" not in known and known["kind"] not in (kind, "scalar"):  # An argument, repeated over each row.
            known = self._add("mul", [known, constant(1.0)], value, None, known["kind"])
        keeps = kind == "row" and value.ndim == len(self.sample.shape)
        is_joined = kind == "element" and len(value.shape) < len(self.sample.shape)
        joined = {"joined": is_joined} if self.sample.split else {}
        return known | {"kind": kind, "keeps": keeps} | joined | ({"order": list(order)} if order else {})

    def _gradient_of_repeated(self, known: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """The gradient of a tensor that is repeated: the terms, and the dimensions that are to be added up."""
        lacking = self.sample.repeated_dims(value.shape)
        if lacking is None or known.get("summed") != lacking:
            raise RefusedError("a result with some of the dimensions of a tensor", 2)
        refuse_other_dtype(value, known)
        return {**known, "kind": "element", "keeps": False, "summed": list(lacking)}

    def _attribute(self, node: fx.Node) -> dict[str, Any]:
        value = getattr(node.graph.owning_module, node.target)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise RefusedError("a constant tensor of several numbers, which kernels take as an argument", 1)
        return constant(as_written(value))

    def _call(self, node: fx.Node) -> dict[str, Any]:
        if node.target is operator.getitem:  # Of a reduction with its place: both are known.
            known = self.pairs[node.args[0]][node.args[1]]
            if known is None:
                raise RefusedError(f"the places of {spelled(node.args[0].target)}", 2)
            return known
        if spelled(node.target) == "prims.iota":
            return self._noted(node, self._places(node))
        name = operator_of(node.target)
        if name is None:
            raise unknown(node.target)
        value = node.meta["val"]
        if name in ("max", "min") and isinstance(value, tuple):
            return self._with_place(name, node, value)
        if name in SCANS and isinstance(value, tuple):  # No kernel has the places of running maxima.
            self.pairs[node] = (self._running(name, node, value[0]), None)
            return self.pairs[node][0]
        if not isinstance(value, Tensor):
            raise RefusedError(in_words(node.target), 2)
        if name in SAME or (name in PICKED and value.numel() == node.args[0].meta["val"].numel()):
            return self._noted(node, self._same(node, value))
        if name in PERMUTED:
            return self._noted(node, self._permuted(node, value))
        if name in MASKED:
            return self._noted(node, self._masked(node, value))
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
        if name in PICKED:
            raise RefusedError(in_words(node.target), 2)
        return self._pointwise(name, node, value)

    def _permuted(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The same elements, whose dimensions come in another order: no two are of one size, so what meets tells."""
        if len(set(self.sample.shape)) < len(self.sample.shape):
            raise RefusedError(in_words(node.target), 2)
        return self._same(node, value)

    def _masked(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The elements that a mask of all of them chooses are a number, or one of theirs has a sum added."""
        tensor, indices, number = node.args[:3]
        mask = self.known[indices[0]] if len(indices) == 1 and isinstance(indices[0], fx.Node) else {}
        is_of_all = mask.get("dtype") == "bool" and indices[0].meta["val"].shape == value.shape
        adds = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
        if not is_of_all or adds or not isinstance(number, fx.Node) or number.meta["val"].numel() != 1:
            raise RefusedError(in_words(node.target), 2)
        return self._add("where", [mask, self.known[number], self.known[tensor]], value)

    def _pointwise(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        if name in ("clamp", "clamp_min", "clamp_max"):
            return self._clamped(name, node, value)
        arguments = [self._argument(argument) for argument in node.args]
        keywords = dict(node.kwargs)
        if name == "polygamma":
            order, *arguments = arguments
            if order["constant"] not in _POLYGAMMAS:
                raise RefusedError(f"{in_words(node.target)} of order {order['constant']:g}", 2)
            name = _POLYGAMMAS[order["constant"]]
        if name in ("add", "sub") and keywords.get("alpha", 1) != 1:
            arguments[1] = self._add("mul", [arguments[1], self._argument(keywords["alpha"])], value)
        if name == "rsub":
            scale = keywords.get("alpha", node.args[2] if len(node.args) > 2 else 1)
            first = arguments[0] if scale == 1 else self._add("mul", [arguments[0], self._argument(scale)], value)
            name, arguments = "sub", [arguments[1], first]
        rounding = keywords.get("rounding_mode")
        if name.startswith(("bitwise_", "logical_")):
            name = self._logical(name, node, arguments, value)
        if name == "pow" and value.dtype in INTEGERS and arguments[1].get("constant") == 2:
            name, arguments = "mul", [arguments[0], arguments[0]]
        if rounding and any(argument["dtype"] in INTEGERS.values() for argument in arguments):
            return self._add(f"{rounding}_divide", arguments, value, self.names.get(node.name))
        if name in ("lt", "le", "gt", "ge"):
            _refuse_sizes_of_truth_values(arguments)
        result = self._add(name, arguments, value, self.names.get(node.name))
        if rounding:
            result = self._add(rounding, [result], value, self.names.get(node.name))
        return result

    def _logical(self, name: str, node: fx.Node, arguments: list[dict[str, Any]], value: Tensor) -> str:
        """An operator of truth values by the one name that it has here; that of bits keeps its own."""
        if value.dtype == torch.bool and all(argument["dtype"] == "bool" for argument in arguments):
            return name.replace("bitwise_", "logical_")
        if name == "logical_not" or (name.startswith("bitwise_") and value.dtype in INTEGERS):
            return name
        raise RefusedError(f"{in_words(node.target)} of numbers", 2)

    def _clamped(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        low, high = {"clamp": (1, 2), "clamp_min": (1, 9), "clamp_max": (9, 1)}[name]

        def bound(place: int, keyword: str) -> Any:
            return node.args[place] if len(node.args) > place else node.kwargs.get(keyword)

        result = self._argument(node.args[0])
        for bounded, limit in (("maximum", bound(low, "min")), ("minimum", bound(high, "max"))):
            if limit is not None and result["dtype"] == "int":
                limit = self._argument(limit)
                beyond = self._add("lt" if bounded == "maximum" else "gt", [result, limit], value.bool())
                result = self._add("where", [beyond, limit, result], value)
            elif limit is not None:
                result = self._add(bounded, [result, self._argument(limit)], value)
        return self._noted(node, result)

    def _same(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """A view or a copy of the same elements, or one number spread over others."""
        source = node.args[1] if operator_of(node.target) == "copy_" else node.args[0]
        before, after = self.sample.kind(source.meta["val"].shape), self.sample.kind(value.shape)
        known = self._argument(source)
        is_whole = tuple(size for size in value.shape if size > 1) == self.sample.shape
        stretched = after == "element" and (is_whole or value.ndim <= len(self.sample.shape))
        if "spread" in (before, after) and known["kind"] in ("element", "row", "scalar"):
            return known  # Of a tensor that is repeated: it has no other dimensions, as distinct sizes tell.
        if before not in (after, "scalar") and not stretched:
            raise RefusedError(in_words(node.target), 2)
        return known if before in (after, "scalar") else known | {"kind": before}

    def _cast(self, node: fx.Node, value: Tensor) -> dict[str, Any]:
        known, code = self._argument(node.args[0]), CODES.get(value.dtype)
        if known["dtype"] == code:
            return known
        if value.dtype in FLOAT8 and known["dtype"] != "float":
            known = self._add("to_float", [known], value.float())
        # Of truth values, 64 and 32 bits are for counts, which are numbers.
        if code and (known["dtype"] in ("float", *INTEGERS.values()) or value.dtype.itemsize < 4):
            return self._add(f"to_{code}", [known], value)
        target = dtype_of(value)
        if not (value.dtype.is_floating_point or value.dtype == torch.bool or known["dtype"] == "bool"):
            raise RefusedError(f"a cast to {str(value.dtype).removeprefix('torch.')}", 2)
        if known["dtype"] == target:
            return known
        if target == "bool":
            return self._add("ne", [known, constant(0.0)], value)
        return self._add("to_float", [known], value)


def _refuse_sizes_of_truth_values(arguments: list[dict[str, Any]]) -> None:
    """Truth values that are larger or smaller than a place, or than other numbers, are numbers."""
    names = [argument["input"] for argument in arguments if argument["dtype"] == "bool" and "input" in argument]
    if names and not any("constant" in argument for argument in arguments):
        raise RefusedError(f"that {names[0]} is compared as a number", 1)


def as_written(value: Tensor) -> float | bool:
    """The shortest number that a tensor's dtype rounds to its element: 0.1 where float32 holds 0.100000001."""
    number = value.item()
    if value.is_floating_point() and math.isfinite(number):
        texts = (f"{number:.{digits}g}" for digits in range(1, 18))
        return next(float(text) for text in texts if value.new_tensor(float(text)).item() == number)
    return number
