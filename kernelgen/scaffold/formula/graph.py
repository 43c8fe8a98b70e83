"""A traced graph, simplified: nothing is computed twice, or in vain.

A value of a graph is a `Node`, a `Name` (an argument of the op, or an incoming gradient) or a `Number`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.scaffold.formula import neighbours


@dataclass(frozen=True)
class Number:
    value: float | bool

    kind = "scalar"

    @property
    def dtype(self) -> str:
        return "bool" if isinstance(self.value, bool) else "float"


@dataclass(frozen=True)
class Name:
    """A parameter of the formula: `text` is its C++ name."""

    text: str
    dtype: str
    kind: str


@dataclass(frozen=True)
class Node:
    """An operator's result; `index` is its place in the graph, and `name` that of the variable that held it."""

    index: int
    op: str
    arguments: tuple[Value, ...]
    dtype: str
    kind: str
    name: str | None = None


Value = Node | Name | Number

# What a trace calls the epsilon of the dtype that kernels compute in.
EPSILON = "machine epsilon"
# Arithmetic of these is written as it was traced: it wraps around.
_INTEGERS = {"int8", "uint8", "int16", "int32", "int64"}
# What a last bit more or less changes much: a function of such an operator's argument has steps.
_STEPS = {"round", "floor", "ceil", "trunc", "sign", "remainder", "fmod", "to_bool"}
_STEPS |= {f"to_{code}" for code in (*_INTEGERS, "float8_e4m3fn", "float8_e5m2")}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_STEPS |= _COMPARISONS
# Arithmetic of truth values.
_OF_TRUTH_VALUES = {"mul": "logical_and", "minimum": "logical_and", "add": "logical_or", "maximum": "logical_or"}
# How a formula calls the place of an element along the last two dimensions.
COORDINATES = {-2: "row", -1: "column"}
COORDINATES_OF_ELEMENT = {dim: Name(text, "float", "element") for dim, text in COORDINATES.items()}
# The same in a formula of rows: the row has its own, and passes the place of an element in it on.
COORDINATES_OF_ROW = {-2: Name("line", "float", "row"), -1: Name("Number(place)", "float", "element")}
_COORDINATES = (*COORDINATES_OF_ELEMENT.values(), *COORDINATES_OF_ROW.values())
_COMMUTATIVE = {"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "logical_xor"}


class FormulaGraph:
    """A graph as traced, with the parameters' C++ names.

    Args:
        traced: `nodes` and `outputs`, as kernelgen/worker/trace/graph.py describes them.
        parameters: the C++ name of each argument that is a number or a tensor; by name, and (name, part) of parts,
            or (name, distances) of neighbours.
        grads: the C++ names of the gradients of the results, by the results' places; (place, part) of parts.
        coordinates: what the place of an element along a dimension is called, by the dimension.
    """

    def __init__(
        self,
        traced: Mapping[str, Any],
        parameters: Mapping[Any, str],
        grads: Mapping[Any, str] | None = None,
        coordinates: Mapping[int, Name] = COORDINATES_OF_ELEMENT,
    ) -> None:
        self._parameters, self._grads, self._coordinates = parameters, grads or {}, coordinates
        self._known: dict[tuple[Any, ...], Node] = {}
        self._values: list[Value] = []
        for node in traced["nodes"]:
            arguments = tuple(map(self._value, node["arguments"]))
            self._values.append(self.node(node["op"], arguments, node["dtype"], node["kind"], node["name"]))
        self.outputs = [None if output is None else self._value(output) for output in traced["outputs"]]
        self._multiply_by_inverses()
        self.sum_before_scaling()

    def nodes(self) -> list[Node]:
        """The nodes that the outputs need, each after its arguments, in the order in which they were traced."""
        reached: dict[int, Node] = {}
        pending = [output for output in self.outputs if isinstance(output, Node)]
        while pending:
            node = pending.pop()
            if node.index not in reached:
                reached[node.index] = node
                pending += [argument for argument in node.arguments if isinstance(argument, Node)]
        return [reached[index] for index in sorted(reached)]

    def names(self) -> set[str]:
        """The parameters that the outputs need."""
        values = [*self.outputs, *(argument for node in self.nodes() for argument in node.arguments)]
        return {value.text for value in values if isinstance(value, Name)}

    def names_of(self, output: Value) -> set[str]:
        """The parameters that one of the outputs needs."""
        every, self.outputs = self.outputs, [output]
        names = self.names()
        self.outputs = every
        return names

    def exponents(self) -> set[str]:
        """The scalar parameters that exponents of powers of tensors are computed of."""
        powers = [node for node in self.nodes() if node.op == "pow" and node.kind != "scalar"]
        pending = [node.arguments[1] for node in powers if node.arguments[1].kind == "scalar"]
        scalars: set[str] = set()
        while pending:
            value = pending.pop()
            if isinstance(value, Node):
                pending += value.arguments
            elif isinstance(value, Name):
                scalars.add(value.text)
        return scalars

    def checked_places(self) -> set[str]:
        """The parameters of which the formula refuses places that a row does not have."""
        pending = [node for node in self.nodes() if node.op == "checked_zero"]
        checked: set[str] = set()
        while pending:
            for argument in pending.pop().arguments:
                if isinstance(argument, Node):
                    pending.append(argument)
                elif isinstance(argument, Name) and argument.kind == "row":
                    checked.add(argument.text)
        return checked

    def replace(self, values: Mapping[int, Value]) -> None:
        """Puts other values in place of nodes, by their indices."""
        replaced: dict[int, Value] = dict(values)
        for node in self.nodes():
            if node.index not in replaced:
                arguments = tuple(replaced[a.index] if isinstance(a, Node) else a for a in node.arguments)
                replaced[node.index] = self.node(node.op, arguments, node.dtype, node.kind, node.name)
        self.outputs = [replaced[out.index] if isinstance(out, Node) else out for out in self.outputs]

    def _multiply_by_inverses(self) -> None:
        """Elements divided by what they have in common become products with its inverse, which is computed once; other
        divisions of elements become a `quotient`, which may be an approximation. What is multiplied and divided by the
        same, as in the derivative of x log x, is `cancelled`.

        Each has another last bit, so what decides a step stays a division.
        """
        exact = self.arguments_of_steps()
        replaced: dict[int, Value] = {}
        for node in self.nodes():
            arguments = tuple(replaced[a.index] if isinstance(a, Node) else a for a in node.arguments)
            op = node.op
            if op == "div" and node.kind == "element" and node.index not in exact and not self._is_of_places(node):
                divisor = arguments[1]
                if isinstance(divisor, Number) and divisor.value and math.isfinite(divisor.value):
                    op, arguments = "mul", (arguments[0], self.node("inverse", (divisor,), "float", "scalar", None))
                elif _has_inverse(divisor):
                    inverse = self.node("div", (Number(1.0), divisor), "float", divisor.kind, "inverse")
                    op, arguments = "mul", (arguments[0], inverse)
                elif (others := _other_factors(arguments[0], divisor)) is not None:
                    op, arguments = "cancelled", (others, arguments[1])
                else:
                    op = "quotient"
            replaced[node.index] = self.node(op, arguments, node.dtype, node.kind, node.name)
        self.outputs = [replaced[out.index] if isinstance(out, Node) else out for out in self.outputs]

    def _is_of_places(self, node: Node) -> bool:
        """Whether it depends on where an element lies and on no tensor, as a frequency does: what is computed of large
        angles has an error many times that of the angle."""
        pending: list[Value] = [node]
        names: list[Name] = []
        while pending:
            value = pending.pop()
            if isinstance(value, Node):
                pending += value.arguments
            elif isinstance(value, Name):
                names.append(value)
        of_tensors = [name for name in names if name.kind != "scalar" and name not in _COORDINATES]
        return not of_tensors and any(name in _COORDINATES for name in names)

    def sum_before_scaling(self) -> None:
        """A sum of terms that have an inverse of the row in common becomes the sum without it, times it: that sum needs
        no pass after the one for the inverse."""
        replaced: dict[int, Value] = {}
        for node in self.nodes():
            arguments = tuple(replaced[a.index] if isinstance(a, Node) else a for a in node.arguments)
            first = arguments[0] if arguments else None
            factor = _common_factor(first) if node.op == "row_sum" else None
            if factor is None:
                replaced[node.index] = self.node(node.op, arguments, node.dtype, node.kind, node.name)
                continue
            terms = self.without(first, factor)
            total = self.node("row_sum", (terms,), node.dtype, node.kind, None)
            replaced[node.index] = self.node("mul", (total, factor), node.dtype, node.kind, node.name)
        self.outputs = [replaced[out.index] if isinstance(out, Node) else out for out in self.outputs]

    def without(self, product: Value, factor: Value) -> Value:
        """A product without one of its factors."""
        left, right = product.arguments
        if factor in (left, right):
            return right if factor == left else left
        if is_factor(left, factor):
            left = self.without(left, factor)
        else:
            right = self.without(right, factor)
        return self.node("mul", (left, right), product.dtype, "element", None)

    def arguments_of_steps(self) -> set[int]:
        """The nodes that a step depends on; whether a product or a quotient is 0 or less, no last bit decides."""
        reached: set[int] = set()
        codes = self._only_codes_of()
        pending = [node for node in self.nodes() if node.op in _STEPS and node.index not in codes]
        while pending:
            node = pending.pop()
            is_sign = node.op in _COMPARISONS and any(isinstance(a, Number) and a.value == 0 for a in node.arguments)
            for argument in _deciding_signs(node.arguments) if is_sign else node.arguments:
                if isinstance(argument, Node) and argument.index not in reached:
                    reached.add(argument.index)
                    pending.append(argument)
        return reached

    def _only_codes_of(self) -> set[int]:
        """The nodes of which nothing but integers of 8 bits are computed: few of these may be off by one."""
        nodes = self.nodes()
        results = {output.index for output in self.outputs if isinstance(output, Node)}
        users: dict[int, list[Node]] = {node.index: [] for node in nodes}
        for node in nodes:
            for argument in node.arguments:
                if isinstance(argument, Node):
                    users[argument.index].append(node)
        codes: set[int] = set()
        for node in reversed(nodes):
            is_code = node.op in ("to_int8", "to_uint8") and node.index in results and not users[node.index]
            is_of_codes = node.index not in results and all(user.index in codes for user in users[node.index])
            if is_code or (is_of_codes and users[node.index]):
                codes.add(node.index)
        return codes

    def _value(self, argument: Mapping[str, Any]) -> Value:
        if "node" in argument:
            return self._values[argument["node"]]
        if "constant" in argument:
            return Number(argument["constant"])
        if "inside" in argument:
            return Name(neighbours.has_neighbour(*argument["inside"]), "bool", "element")
        if "place" in argument:
            return Name("place", "int", "element")
        if "coordinate" in argument:
            return self._coordinates[argument["coordinate"]]
        if "grad" in argument:
            return Name(self._grads[_part(argument["grad"], argument)], "float", argument["kind"])
        name = argument.get("input") or argument["scalar"]
        if name == EPSILON:
            return Name("math::kEpsilon<Number>", "float", "scalar")
        return Name(self._parameters[_part(name, argument)], argument["dtype"], argument["kind"])

    def node(self, op: str, arguments: tuple[Value, ...], dtype: str, kind: str, name: str | None) -> Value:
        """An operator's result: a simpler value that is the same, or the node that computes it already, if any."""
        if dtype == "bool" and all(argument.dtype == "bool" for argument in arguments):
            op = _OF_TRUTH_VALUES.get(op, op)
        simpler = (op, arguments) if dtype in _INTEGERS else _simplified(op, arguments)
        if isinstance(simpler, (Node, Name, Number)):
            return simpler
        op, arguments = simpler
        keys = map(_key, arguments)
        key = (op, tuple(sorted(keys) if op in _COMMUTATIVE else keys), kind, dtype)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Node(len(self._known), op, arguments, dtype, kind, name)
        return known


def _part(tensor: str | int, argument: Mapping[str, Any]) -> Any:
    """A tensor, a part of it, or its neighbours."""
    if "shift" in argument:
        return neighbours.key(tensor, argument)
    return (tensor, argument["part"]) if "part" in argument else tensor


def _deciding_signs(values: Sequence[Value]) -> list[Value]:
    """What decides whether values are 0, or below it: the factors of products and quotients, and no exponential."""
    deciding: list[Value] = []
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, Node) and value.op in ("mul", "div", "neg", "abs"):
            pending += value.arguments
        elif not _is_positive(value):
            deciding.append(value)
    return deciding


def _is_positive(value: Value) -> bool:
    """Whether it is an exponential, or a sum of some."""
    if isinstance(value, Node) and value.op == "row_sum":
        value = value.arguments[0]
    return isinstance(value, Node) and value.op == "exp"


def _has_inverse(divisor: Value) -> bool:
    """Whether elements have a divisor in common that is never so small that its inverse overflows: an argument of the
    function, or a sum of exponentials, of which the largest is 1."""
    if isinstance(divisor, Name):
        return divisor.kind == "scalar"
    if not isinstance(divisor, Node):
        return False
    first = divisor.arguments[0]
    return divisor.op == "row_sum" and isinstance(first, Node) and first.op == "exp"


def _other_factors(product: Value, factor: Value) -> Value | None:
    """What a product has beside a factor; None if that is none of its factors."""
    if not isinstance(product, Node) or product.op != "mul" or factor not in product.arguments:
        return None
    left, right = product.arguments
    return left if factor == right else right


def _common_factor(value: Value | None) -> Node | None:
    """The inverse of a sum of exponentials, or of a root, among the factors of a product of elements: such a factor is
    never what keeps the sum finite. Or any factor of an element that is chosen by its place: none is added to it."""
    if not isinstance(value, Node) or value.op != "mul" or value.kind != "element":
        return None
    for chosen, factor in (value.arguments, value.arguments[::-1]):
        if _is_of_one_place(chosen) and isinstance(factor, Node) and factor.kind in ("row", "total"):
            return factor
    for argument in value.arguments:
        if isinstance(argument, Node) and argument.kind == "row" and _is_inverse(argument):
            return argument
        if factor := _common_factor(argument):
            return factor
    return None


def _is_of_one_place(value: Value) -> bool:
    """Whether it is a choice by the place of an element in its row."""
    condition = value.arguments[0] if isinstance(value, Node) and value.op == "where" else None
    if not isinstance(condition, Node) or condition.op != "eq":
        return False
    kinds = {argument.kind for argument in condition.arguments}
    return kinds == {"element", "row"} and any(a == Name("place", "int", "element") for a in condition.arguments)


def _is_inverse(node: Node) -> bool:
    is_inverse = node.op == "div" and node.arguments[0] == Number(1.0) and _has_inverse(node.arguments[1])
    return is_inverse or node.op == "rsqrt"


def is_factor(value: Value, factor: Value) -> bool:
    return (
        isinstance(value, Node)
        and value.op == "mul"
        and (factor in value.arguments or any(is_factor(argument, factor) for argument in value.arguments))
    )


def _key(value: Value) -> str:
    return f"node {value.index}" if isinstance(value, Node) else repr(value)


def _simplified(op: str, arguments: Sequence[Value]) -> Value | tuple[str, tuple[Value, ...]]:
    """A value that is the same, or an operator and arguments that are."""
    first, second = (*arguments, None, None)[:2]
    if op in ("add", "mul") and isinstance(first, Number):
        first, second = second, first
    if op == "to_float" and isinstance(first, Number):
        return Number(float(first.value))
    if isinstance(first, Number) and isinstance(second, Number) and op in _FOLDED and _is_finite(first, second):
        return Number(_FOLDED[op](float(first.value), float(second.value)))
    if op in ("mul", "div") and second == Number(1.0) and first.dtype == "float":
        return first
    if op in ("mul", "div") and second == Number(-1.0) and first.dtype == "float":
        return "neg", (first,)
    if op in ("add", "sub") and second == Number(0.0) and first.dtype == "float":
        return first
    if op == "where" and isinstance(first, Number):
        return arguments[1] if first.value else arguments[2]
    if op in _COMPARISONS and second == Number(0.0) and _is_distance(first):
        return op, first.arguments  # Of coordinates, which are finite.
    if op == "logical_and" and Number(True) in (first, second):
        return second if first == Number(True) else first
    if op == "where" and isinstance(first, Node) and first.op == "logical_not":
        return "where", (first.arguments[0], arguments[2], arguments[1])
    if op == "where" and arguments[1] == arguments[2]:
        return arguments[1]
    if op == "pow":
        return _power(first, second)
    if op == "neg" and isinstance(first, Number):
        return Number(-first.value)
    if op == "neg" and isinstance(first, Node) and first.op == "neg":
        return first.arguments[0]
    return op, tuple(arguments)


def _is_distance(value: Value) -> bool:
    """Whether it is the difference of two coordinates."""
    return isinstance(value, Node) and value.op == "sub" and all(a in _COORDINATES for a in value.arguments)


_FOLDED = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else math.nan,
}


def _power(base: Value, exponent: Value) -> Value | tuple[str, tuple[Value, ...]]:
    if exponent == Number(0.0):
        return Number(1.0)
    if exponent == Number(1.0):
        return base
    if exponent == Number(2.0):
        return "mul", (base, base)
    if exponent == Number(0.5):
        return "sqrt", (base,)
    if exponent == Number(-0.5):
        return "rsqrt", (base,)
    if exponent == Number(-1.0):
        return "div", (Number(1.0), base)
    if exponent == Number(3.0):
        return "cube", (base,)
    return "pow", (base, exponent)


def _is_finite(*numbers: Number) -> bool:
    return all(math.isfinite(number.value) for number in numbers)
