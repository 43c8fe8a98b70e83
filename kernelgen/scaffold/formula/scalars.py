"""What a formula takes of the scalars of an op, computed once, on the host and in double, as Python computes it.

float32 has four digits of 1 - 0.999, and each thread of a GPU would compute it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula.expressions import ATOM, PREFIX, PRODUCT, Expression
from kernelgen.scaffold.formula.graph import FormulaGraph, Name, Node, Number, Value
from kernelgen.scaffold.formula.lines import Writer, free_name, word_of

_ARITHMETIC = {"add", "sub", "mul", "div", "neg"}
# The functions of <cmath>, by operator.
_FUNCTIONS = {"abs": "fabs", "maximum": "fmax", "minimum": "fmin"} | {
    name: name
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "exp"),
        *("exp2", "expm1", "floor", "hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "sin", "sinh", "sqrt"),
        *("tan", "tanh"),
    )
}
_INVERSES = {"reciprocal", "rsqrt", "inverse"}
_OPERATORS = {*_ARITHMETIC, *_FUNCTIONS, *_INVERSES}


class Scalars:
    """The numbers that the graphs of an op compute of its scalar arguments alone, each with a name.

    Args:
        arguments: the C++ names of the scalar arguments.
        taken: names that none of the numbers can have.
    """

    def __init__(self, arguments: Sequence[str], taken: Iterable[str]) -> None:
        self._arguments, self._taken = list(arguments), {*taken, *arguments}
        self._graph = FormulaGraph({"nodes": [], "outputs": []}, {})
        self._names: dict[int, str] = {}

    def take(self, graph: FormulaGraph, arguments: Mapping[str, str] | None = None) -> None:
        """Puts names in place of such numbers in a graph.

        Args:
            arguments: what the graph calls the scalar arguments, with the names given above, where these differ.
        """
        own = {name: name for name in self._arguments} | dict(arguments or {})
        computed: dict[int, Value] = {}
        for node in graph.nodes():
            is_known = all(_is_known(argument, computed, own) for argument in node.arguments)
            if is_known and node.op in _OPERATORS and node.kind == "scalar":
                computed[node.index] = self._copied(node, computed, own)
        users = [*graph.outputs, *(a for node in graph.nodes() if node.index not in computed for a in node.arguments)]
        replaced = {}
        for value in map(_without_sign, users):
            if isinstance(value, Node) and value.index in computed and _has_name(value):
                replaced[value.index] = Name(self._name(computed[value.index]), "float", "scalar")
        if replaced:
            graph.replace(replaced)

    def avoid(self, names: Iterable[str]) -> None:
        """None of the numbers to come has one of these names."""
        self._taken.update(names)

    def of_formula(self, scalars: Sequence[Mapping[str, Any]], read: set[str]) -> list[dict[str, Any]]:
        """The scalars that a formula takes which reads these names: arguments, and numbers that are computed of them.
        `given` is what the host calls each."""
        arguments = [{**s, "given": s["cpp"]} for s in scalars if s["cpp"] in read or s["number"] == "bool"]
        names = [name for name in self._names.values() if name in read]
        facts = {"type": "float", "cpp_type": "double", "number": "Number"}
        return [*arguments, *({"cpp": name, "given": f"scalars.{name}", **facts} for name in names)]

    def names(self) -> list[str]:
        return list(self._names.values())

    def note(self, facts: dict[str, Any], read: set[str]) -> None:
        """Notes in what templates know of an op how the numbers are computed, and that the forward takes them, which
        reads these names."""
        if not self._names:
            return
        arguments = [name for name in self._arguments if name in self._graph.names()]
        names = [self._names[index] for index in sorted(self._names)]  # Each after those that it is computed of.
        self._graph.outputs.sort(key=lambda number: number.index)
        lines = _lines(self._graph, names, self._taken)
        facts["computed"] = {"arguments": arguments, "names": names, "lines": lines}
        facts["formula_scalars"] = self.of_formula(facts["scalars"], read)
        for of_direction in (facts, *([facts["backward"]] if facts["backward"] else [])):
            pairs = zip(facts["scalars"], of_direction["scalars"], strict=True)
            if any("scalars." in scalar["given"] for scalar in of_direction.get("formula_scalars", ())):
                of_direction["computed_of"] = [own["cpp"] for scalar, own in pairs if scalar["cpp"] in arguments]

    def _copied(self, node: Node, computed: Mapping[int, Value], own: Mapping[str, str]) -> Value:
        """The same number in the graph of those of all graphs."""

        def copied(argument: Value) -> Value:
            if isinstance(argument, Node):
                return computed[argument.index]
            return Name(own[argument.text], "float", "scalar") if isinstance(argument, Name) else argument

        return self._graph.node(node.op, tuple(map(copied, node.arguments)), "float", "scalar", node.name)

    def _name(self, number: Node) -> str:
        if number.index not in self._names:
            name = free_name(_word(number), self._taken)
            self._taken.add(name)
            self._names[number.index] = name
            self._graph.outputs.append(number)
        return self._names[number.index]


def _is_known(argument: Value, computed: Mapping[int, Value], arguments: Mapping[str, str]) -> bool:
    if isinstance(argument, Node):
        return argument.index in computed
    return isinstance(argument, Number) or argument.text in arguments


def _without_sign(value: Value | None) -> Value | None:
    """What a number is the negative of, as often as it is one: no digit depends on a sign."""
    while isinstance(value, Node) and value.op == "neg":
        value = value.arguments[0]
    return value


def _has_name(value: Value) -> bool:
    """Whether it is computed of an argument: what is not is a literal."""
    return isinstance(value, Name) or (isinstance(value, Node) and any(map(_has_name, value.arguments)))


def _word(number: Node) -> str:
    """What a number is called."""
    first, *others = number.arguments
    if first == Number(1.0) and isinstance(others[0], Name) and number.op in ("sub", "div"):
        return f"{'one_minus' if number.op == 'sub' else 'inverse'}_{others[0].text}".rstrip("_")
    return word_of(number)


def _lines(graph: FormulaGraph, names: Sequence[str], taken: Iterable[str]) -> list[str]:
    writer = _Writer(graph, taken, 4)
    body: list[str] = []
    for output, name in zip(graph.outputs, names, strict=True):
        expression = writer.expression(output, len(name) + 4)
        body += [*writer.take(), f"{name} = {expression.text};"]
        writer.known(output, name)
    return body


class _Writer(Writer):
    """Writes numbers of the host."""

    _number = "double"

    def _leaf(self, value: Value) -> Expression:
        return Expression(value.text) if isinstance(value, Name) else _literal(value.value)

    def _apply(self, node: Node, operands: list[Expression]) -> Expression:
        if node.op in _FUNCTIONS:
            return Expression(f"std::{_FUNCTIONS[node.op]}({', '.join(operand.text for operand in operands)})")
        if node.op in _INVERSES:
            root = f"std::sqrt({operands[0].text})"
            return Expression(f"1.0 / {root if node.op == 'rsqrt' else operands[0].within(PREFIX)}", PRODUCT)
        return super()._apply(node, operands)


def _literal(value: float) -> Expression:
    if not math.isfinite(value):
        word = "math::kNaN<double>" if math.isnan(value) else "math::kInfinity<double>"
        return Expression(f"-{word}" if value == -math.inf else word, PREFIX if value == -math.inf else ATOM)
    whole = value == int(value) and abs(value) < 1 << 24
    return Expression(str(int(value)) if whole else repr(float(value)), PREFIX if value < 0 else ATOM)
