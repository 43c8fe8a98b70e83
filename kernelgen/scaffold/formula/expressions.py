"""An operator applied to operands, as a C++ expression with no more parentheses than it needs."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kernelgen.scaffold.formula.graph import Name, Node, Number, Value

# From the weakest binding to the strongest.
CONDITIONAL, OR, AND, EQUALITY, RELATION, SUM, PRODUCT, PREFIX, ATOM = range(9)

_INFIX = {
    "logical_or": ("||", OR),
    "logical_and": ("&&", AND),
    "eq": ("==", EQUALITY),
    "ne": ("!=", EQUALITY),
    "logical_xor": ("!=", EQUALITY),
    "lt": ("<", RELATION),
    "le": ("<=", RELATION),
    "gt": (">", RELATION),
    "ge": (">=", RELATION),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
}
# The types of integers that numbers are cast to.
INTEGERS = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t"}
_PREFIX = {"neg": "-", "logical_not": "!"}
# The functions of `math` (include/cuda/functions.cuh, include/cpu/functions.h) that are not called as in PyTorch.
_FUNCTIONS = {
    "isnan": "is_nan",
    "isinf": "is_infinite",
    "copysign": "copy_sign",
    "fmod": "remainder_of_truncated",
}
# Those of special_functions.h.
_SPECIAL = ("math::lgamma(", "math::digamma(", "math::trigamma(", "math::erfinv(")


def header_of(formulas: Iterable[str]) -> dict[str, str]:
    """`functions`, the header that the lines of formulas need beside the common one; nothing where they need none."""
    lines = list(formulas)
    is_needed = any(function in line for line in lines for function in _SPECIAL)
    return {"functions": "special_functions.h"} if is_needed else {}


@dataclass(frozen=True)
class Expression:
    text: str
    binding: int = ATOM

    def within(self, binding: int) -> str:
        """The text as an operand of something that binds as tightly, in parentheses where they are needed."""
        return self.text if self.binding >= binding else f"({self.text})"


def number(value: float | bool, in_call: bool = False) -> Expression:
    """A literal. `in_call`: as an argument of a function template, which takes all of one type."""
    if isinstance(value, bool):
        return Expression("true" if value else "false")
    if math.isinf(value) or math.isnan(value):
        word = "math::kNaN<Number>" if math.isnan(value) else "math::kInfinity<Number>"
        return Expression(f"-{word}", PREFIX) if value == -math.inf else Expression(word)
    whole = value == int(value) and abs(value) < 1 << 24
    if whole and not in_call:
        return Expression(str(int(value)), PREFIX if value < 0 else ATOM)
    if whole:
        return Expression(f"Number({int(value)})")
    exact = struct.unpack("f", struct.pack("f", value))[0] == value if abs(value) < 1e38 else False
    if exact and not in_call:
        return Expression(f"{value!r}f", PREFIX if value < 0 else ATOM)
    return Expression(f"Number({value!r})")


def apply(node: Node, operands: list[Expression]) -> Expression:
    """The expression of a node, given those of its arguments."""
    op = node.op
    if op in _PREFIX:
        inner = operands[0].within(PREFIX)
        # `--x` is something else.
        return Expression(f"-({inner})" if inner.startswith("-") else _PREFIX[op] + inner, PREFIX)
    if op == "inverse":
        return Expression(f"Number(1.0 / {operands[0].within(PREFIX)})")
    if op in _INFIX:
        return _infix(node, operands)
    if op == "where":
        condition, chosen, other = operands
        if isinstance(node.arguments[1], Number) and isinstance(node.arguments[2], Number):
            chosen = number(node.arguments[1].value, in_call=True)
        return Expression(f"{condition.within(OR)} ? {chosen.within(OR)} : {other.within(CONDITIONAL)}", CONDITIONAL)
    if (integer := op.removeprefix("to_")) in INTEGERS:
        return Expression(f"static_cast<{INTEGERS[integer]}>({operands[0].text})")
    if op == "to_float":
        return Expression(f"Number({operands[0].text})")
    if op == "checked_zero":
        return Expression(f"row.checked_zero({operands[0].text})")
    if op == "reciprocal":
        return Expression(f"1 / {operands[0].within(PREFIX)}", PRODUCT)
    texts = [
        number(argument.value, in_call=True).text if isinstance(argument, Number) else operand.text
        for argument, operand in zip(node.arguments, operands, strict=True)
    ]
    return Expression(f"math::{_FUNCTIONS.get(op, op)}({', '.join(texts)})")


def _infix(node: Node, operands: list[Expression]) -> Expression:
    word, binding = _INFIX[node.op]
    left, right = operands
    if node.op == "mul" and isinstance(node.arguments[1], Number):
        left, right = right, left
    if node.op in ("add", "sub") and right.text.startswith("-") and right.binding in (PRODUCT, PREFIX):
        word, right = ("-" if node.op == "add" else "+"), Expression(right.text[1:], PRODUCT)
    # `a - (b - c)` and `a / (b * c)` need theirs; so does a sum on the right, which would be added up otherwise.
    return Expression(f"{left.within(binding)} {word} {right.within(binding + 1)}", binding)


def operand(value: Value) -> Expression:
    """A parameter or a literal."""
    if isinstance(value, Name):
        return Expression(value.text)
    assert isinstance(value, Number)
    return number(value.value)
