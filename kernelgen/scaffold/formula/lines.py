"""A graph as lines of C++, one expression a line: the reference's own names where it has some."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from kernelgen.scaffold.formula.expressions import CODES, Expression, apply, operand
from kernelgen.scaffold.formula.graph import FormulaGraph, Node, Number, Value
from kernelgen.scaffold.schema.identifiers import CPP_WORDS

WIDTH = 120
# The most operators in an expression: what is longer is read better in two lines.
_MOST_OPERATORS = 6
# What a result is called that the reference gives no name.
_WORDS = {
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "inverse": "inverse",
    "neg": "negative",
    "bitwise_and": "bits",
    "bitwise_or": "bits",
    "bitwise_xor": "bits",
    "bitwise_not": "bits",
    "bitwise_left_shift": "shifted",
    "bitwise_right_shift": "shifted",
    "floor_divide": "quotient",
    "trunc_divide": "quotient",
    "exp": "exponential",
    "pow": "power",
    "sigmoid": "sigmoid",
    "tanh": "tanh_value",
    "erf": "erf_value",
    "sqrt": "root",
    "rsqrt": "inverse_root",
    "where": "chosen",
    "maximum": "larger",
    "minimum": "smaller",
    "abs": "magnitude",
    "reciprocal": "inverse",
    "lt": "is_less",
    "le": "is_at_most",
    "gt": "is_greater",
    "ge": "is_at_least",
    "eq": "is_equal",
    "ne": "differs",
    "logical_not": "is_not",
    "logical_and": "both",
    "logical_or": "either",
    "to_float": "number",
    **{f"to_{integer}": "code" for integer in CODES},
    "checked_zero": "zero",
    "row_sum": "row_sum",
    "row_amax": "row_max",
    "row_amin": "row_min",
    "row_argmax": "place_of_max",
    "row_argmin": "place_of_min",
    "row_prod": "row_product",
    "corrected_mean": "mean",
    "corrected_squares": "squares",
    "corrected_sum": "corrected_sum",
    "total": "total",
    "running_sum": "running_sum",
    "running_sum_back": "running_sum",
    "running_product": "running_product",
    "running_product_back": "running_product",
    "running_max": "running_max",
    "running_max_back": "running_max",
    "running_min": "running_min",
    "running_min_back": "running_min",
    "running_log_sum": "running_log_sum",
    "running_log_sum_back": "running_log_sum",
}
# Names of the language, and of what the formula uses.
_TAKEN = {"Number", "math", "bool", "float", "double", "auto", "true", "false"}


def lines(graph: FormulaGraph, results: Sequence[str], taken: Iterable[str], indent: int = 2) -> list[str]:
    """The body of a function that assigns the graph's outputs to `results`; those without a value are left out.

    `taken` are names that its variables cannot have: of its parameters, for one.
    """
    writer = Writer(graph, taken, indent)
    body: list[str] = []
    for output, result in zip(graph.outputs, results, strict=True):
        if output is not None:
            expression = writer.expression(output, len(result) + 4)
            body += [*writer.take(), f"{result} = {expression.text};"]
            if isinstance(output, Node):
                writer.known(output, result)
    return body


class Writer:
    """Writes values as expressions, and into lines of their own what is used twice, named by the reference, or long."""

    _number = "Number"  # The type of floating-point numbers.

    def __init__(self, graph: FormulaGraph, taken: Iterable[str], indent: int) -> None:
        self._indent = indent
        self._names = {*_TAKEN, *taken}
        self._lines: list[str] = []
        self._written: dict[int, Expression] = {}
        self._sizes: dict[int, int] = {}
        self._uses: Counter[int] = Counter()
        for node in graph.nodes():
            self._uses.update({argument.index for argument in node.arguments if isinstance(argument, Node)})
            # In a square or a cube the same value stands twice.
            if node.op == "cube" or (node.op == "mul" and node.arguments[0] == node.arguments[1]):
                self._uses.update(argument.index for argument in node.arguments[:1] if isinstance(argument, Node))
        self._uses.update(output.index for output in graph.outputs if isinstance(output, Node))

    def take(self) -> list[str]:
        """The lines since the last call."""
        taken, self._lines = self._lines, []
        return taken

    def known(self, node: Node, name: str) -> None:
        """From now on, `name` holds the node's value."""
        self.known_index(node.index, name)

    def known_index(self, index: int, name: str) -> None:
        self._written[index] = Expression(name)

    def reserve(self, node: Node) -> str:
        """A name for a node that somebody else writes."""
        return self._free(word_of(node))

    def expression(self, value: Value, used: int = 0) -> Expression:
        """A value, in an expression for a line of which `used` columns are taken."""
        if not isinstance(value, Node):
            return self._leaf(value)
        if value.index in self._written:
            return self._written[value.index]
        operands = [self._operand(argument) for argument in value.arguments]
        expression = self._apply(value, operands)
        while len(expression.text) + used + self._indent + 1 > WIDTH or self._size(value) > _MOST_OPERATORS:
            operators = [argument for argument in value.arguments if isinstance(argument, Node)]
            longest = max(operators, key=self._size, default=None)
            if longest is None or not self._size(longest):
                break
            self._declare(longest)
            operands = [self._operand(argument) for argument in value.arguments]
            expression = self._apply(value, operands)
        return expression

    def shared(self, value: Value, used: int = 0) -> Expression:
        """The same; with a line of its own where the value is used more than once."""
        if isinstance(value, Node) and self._uses[value.index] > 1:
            return self.declare(value)
        return self.expression(value, used)

    def declare(self, node: Node, name: str | None = None) -> Expression:
        """A line for a node, with a name of its own, which is returned."""
        if node.index not in self._written:
            self._declare(node, name)
        return self._written[node.index]

    def _leaf(self, value: Value) -> Expression:
        return operand(value)

    def _operand(self, value: Value) -> Expression:
        if isinstance(value, Node) and value.index not in self._written and self._deserves_a_line(value):
            self._declare(value)
        return self.expression(value)

    def _deserves_a_line(self, node: Node) -> bool:
        # clang-format takes what follows `kInfinity<Number>)` for the operand of a cast.
        is_limited = node.op == "where" and any(
            isinstance(argument, Number) and not math.isfinite(argument.value) for argument in node.arguments
        )
        return self._uses[node.index] > 1 or bool(node.name) or is_limited

    def _declare(self, node: Node, name: str | None = None) -> None:
        name = name or word_of(node)
        kind = {"bool": "bool", "int": "int64_t", **CODES}.get(node.dtype, self._number)
        # Room for a number behind the name.
        expression = self.expression(node, len(f"const {kind} {name}_10 = ;"))
        name = self._free(name)
        self._lines.append(f"const {kind} {name} = {expression.text};")
        self._written[node.index] = Expression(name)

    def _apply(self, node: Node, operands: list[Expression]) -> Expression:
        if node.op == "cube":
            factor = operands[0].within(8)
            return Expression(f"{factor} * {factor} * {factor}", 6)
        return apply(node, operands)

    def _size(self, node: Node) -> int:
        """How many operators stand in a node's expression."""
        if node.index in self._written:
            return 0
        return 1 + sum(self._size(argument) for argument in node.arguments if isinstance(argument, Node))

    def _free(self, name: str) -> str:
        name = free_name(as_cpp(name), self._names)
        self._names.add(name)
        return name


def word_of(node: Node) -> str:
    """What a node's variable is called, before its name is made free: as in the reference, or by its operator."""
    of_truth_values = {"bitwise_and": "both"} if node.dtype == "bool" else {}
    return node.name or of_truth_values.get(node.op) or _WORDS.get(node.op, node.op)


def as_cpp(name: str) -> str:
    """A variable's name as C++ has it: lower case, and no word of the language."""
    name = re.sub(r"[^0-9a-z_]", "", name.lower()).strip("_") or "value"
    name = f"value_{name}" if name[0].isdigit() else re.sub("__+", "_", name)
    return f"{name}_" if name in CPP_WORDS else name


def free_name(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name.rstrip('_')}_{number}" in taken:
        number += 1
    return f"{name.rstrip('_')}_{number}"
