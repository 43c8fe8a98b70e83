"""Appends nodes to a graph, and follows where a place outside of its row has to be seen in results."""

import math
from typing import Any

from torch import Tensor, fx

from kernelgen.worker.trace.graph import CODES, INTEGERS, Graph, Sample, constant, dtype_of
from kernelgen.worker.trace.integers import common_dtype, integer_constant, is_arithmetic
from kernelgen.worker.trace.later_sums import later_sum
from kernelgen.worker.trace.refusals import RefusedError

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"}
_COMPARISONS |= {"isnan", "isinf"}
_CASTS = {f"to_{name}": name for name in CODES.values()}
# What is not NaN, whatever its arguments are.
_HIDES_NAN = {*_COMPARISONS, "sign", "row_argmax", "row_argmin"}


class NodeWriter:
    def __init__(self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str]) -> None:
        self.sample, self.names = sample, names
        self.labels = iter(labels)
        self.of_gradient = any("grad" in label for label in labels)
        self.graph = Graph()
        # By node with two results.
        self.pairs: dict[fx.Node, tuple[dict[str, Any], dict[str, Any]]] = {}
        # By node of torch.fx: the argument that stands for it.
        self.known: dict[fx.Node, dict[str, Any]] = {}
        # By node of the graph: the checked zeros of which a NaN reaches it, and those of which it would but for a
        # comparison in between.
        self.checks: dict[int, tuple[set[int], set[int]]] = {}

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
        if op in _COMPARISONS:
            _refuse_places_beside_numbers(arguments)
        integers = None
        if op in _COMPARISONS:
            integers = common_dtype(arguments)
        elif is_arithmetic(op, arguments, value):
            integers = INTEGERS[value.dtype]
        if integers:
            arguments = self._as_integers(op, arguments, integers, value)
        elif not op.startswith("to_"):
            arguments = [self._as_number(op, argument, value) for argument in arguments]
        kinds = {argument.get("kind", "scalar") for argument in arguments} - {"scalar"}
        kinds = kinds - {"total"} or kinds
        kind = kind or (kinds.pop() if len(kinds) == 1 else "element" if kinds else "scalar")
        if op in _CASTS:
            dtype = _CASTS[op]
        elif integers and op not in _COMPARISONS:
            dtype = integers
        else:
            dtype = "bool" if op in _COMPARISONS else "int" if _is_place(op, arguments) else dtype_of(value)
        turned = {a.get("turned", False) for a in arguments if a.get("kind") in ("element", "column")}
        if len(turned) > 1:
            raise RefusedError("the operator aten.flip of some rows beside others", 2)
        summed = later_sum(op, arguments)
        self.graph.nodes.append({"op": op, "arguments": arguments, "dtype": dtype, "kind": kind, "name": name})
        result = {"node": len(self.graph.nodes) - 1, "dtype": dtype, "kind": kind} | summed
        self._follow_checks(op, arguments, result["node"])
        return result | {"turned": True} if turned == {True} and kind == "element" else result

    def _as_integers(self, op: str, arguments: list[dict[str, Any]], dtype: str, value: Tensor) -> list[dict[str, Any]]:
        """The arguments of integer arithmetic, all of the dtype that it is computed in; but a condition."""
        first = 1 if op == "where" else 0
        return arguments[:first] + [self._as_integer(op, a, dtype, value) for a in arguments[first:]]

    def _as_integer(self, op: str, argument: dict[str, Any], dtype: str, value: Tensor) -> dict[str, Any]:
        if argument["dtype"] == dtype:
            return argument
        if "constant" in argument:
            return integer_constant(op, argument["constant"], dtype)
        return self._add(f"to_{dtype}", [argument], value, None, argument["kind"])

    def _as_number(self, op: str, argument: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """An integer, or a code of 8 bits, as the number that PyTorch makes of it beside numbers."""
        if argument.get("dtype") not in CODES.values():
            return argument
        if not value.is_floating_point() and op not in _COMPARISONS:
            raise RefusedError(f"{op} of {argument['dtype']}", 2)
        return self._add("to_float", [argument], value.double(), None, argument["kind"])

    def _with_hidden_checks(self, argument: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """A number that a place outside of its row makes NaN even where a comparison comes in between."""
        shown, hidden = self.checks.get(argument.get("node"), (set(), set()))
        if not value.is_floating_point() or argument["kind"] not in ("row", "element"):
            return argument
        for index in sorted(hidden - shown):
            zero = {"node": index, "dtype": "float", "kind": "row"}
            argument = self._add("add", [argument, zero], value, None, argument["kind"])
        return argument

    def _follow_checks(self, op: str, arguments: list[dict[str, Any]], node: int) -> None:
        of_arguments = [self.checks.get(argument.get("node"), (set(), set())) for argument in arguments]
        shown = set().union(*(shown for shown, _ in of_arguments))
        hidden = set().union(*(hidden for _, hidden in of_arguments))
        if op in _HIDES_NAN:
            shown, hidden = set(), shown | hidden
        if shown or hidden:
            self.checks[node] = (shown, hidden)


def _refuse_places_beside_numbers(arguments: list[dict[str, Any]]) -> None:
    """What a place is compared with counts elements: an argument of integers is meant."""
    numbers = [a["input"] for a in arguments if a["dtype"] == "float" and "input" in a]
    if numbers and any(argument["dtype"] == "int" for argument in arguments):
        raise RefusedError(f"that it compares places with {numbers[0]}", 2)


def _is_place(op: str, arguments: list[dict[str, Any]]) -> bool:
    """Whether a node is the place of an element in its row, or a whole number that is computed of places."""
    if op in ("add", "sub", "mul", "where"):
        terms = arguments[1:] if op == "where" else arguments
        constants = [argument["constant"] for argument in terms if "constant" in argument]
        others = [argument for argument in terms if "constant" not in argument]
        is_whole = all(math.isfinite(number) and number == int(number) for number in constants)
        return is_whole and bool(others) and all(argument["dtype"] == "int" for argument in others)
    return op in ("row_argmax", "row_argmin")
