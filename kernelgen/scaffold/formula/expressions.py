"""An operator applied to operands, as a C++ expression with no more parentheses than it needs."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
# Numbers of 8 bits, which a formula has as codes: what the functions that make them and read them are called.
FLOAT8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
# The types in C++ of what has a dtype of its own.
CODES = INTEGERS | dict.fromkeys(FLOAT8, "uint8_t")
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "bitwise_right_shift": ">>"}
# The functions of `integers` (include/cpu/integers.h) that are not called as in PyTorch.
_OF_INTEGERS = {
    "bitwise_left_shift": "shift_left",
    "bitwise_not": "invert",
    "fmod": "remainder_of_truncated",
}
_PREFIX = {"neg": "-", "logical_not": "!"}
# What C++ computes in the operands' own types.
_UNTYPED = ("add", "sub", "mul", "neg", "where")
# The functions of `math` (include/cuda/functions.cuh, include/cpu/functions.h) that are not called as in PyTorch.
_FUNCTIONS = {
    "isnan": "is_nan",
    "isinf": "is_infinite",
    "copysign": "copy_sign",
    "fmod": "remainder_of_truncated",
}
# The headers that define functions beside the common ones.
_HEADERS = {
    "float8.h": ("float8::",),
    "integers.h": ("integers::",),
    "special_functions.h": ("math::lgamma(", "math::digamma(", "math::trigamma(", "math::erfinv("),
}


def header_of(formulas: Iterable[str]) -> dict[str, Any]:
    """`functions`, the header that the lines of formulas need beside the common one, or a list of such; nothing where
    they need none."""
    lines = list(formulas)
    headers = [header for header, words in _HEADERS.items() if any(word in line for line in lines for word in words)]
    return {"functions": headers if len(headers) > 1 else headers[0]} if headers else {}


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
    if node.dtype in INTEGERS and not op.startswith("to_"):
        return _of_integers(node, operands)
    if op in _INFIX and any(argument.dtype in INTEGERS for argument in node.arguments):
        operands = _integer_operands(node, operands)
    if op in _BITWISE and node.dtype == "bool":
        return Expression(f"{operands[0].within(PREFIX)} {_BITWISE[op]} {operands[1].within(PREFIX)}", CONDITIONAL)
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
    if (code := op.removeprefix("to_")) in FLOAT8:
        return Expression(f"float8::to_{FLOAT8[code]}({operands[0].text})")
    if op == "to_float" and node.arguments[0].dtype in FLOAT8:
        return Expression(f"Number(float8::of_{FLOAT8[node.arguments[0].dtype]}({operands[0].text}))")
    if op == "to_float":
        return Expression(f"Number({operands[0].text})")
    if op == "checked_zero":
        return Expression(f"row.checked_zero({operands[0].text})")
    if op == "reciprocal":
        return Expression(f"1 / {_argument(node.arguments[0], operands[0]).within(PREFIX)}", PRODUCT)
    texts = [_argument(value, text).text for value, text in zip(node.arguments, operands, strict=True)]
    is_shared = op == "pow" and node.arguments[1].kind == "scalar" and not isinstance(node.arguments[1], Number)
    function = "scalar_power" if is_shared else _FUNCTIONS.get(op, op)
    return Expression(f"math::{function}({', '.join(texts)})")


def _argument(value: Value, expression: Expression) -> Expression:
    """An argument of a function template, which takes all of one type."""
    if isinstance(value, Number):
        return number(value.value, in_call=True)
    is_variable = value.dtype not in ("bool", "int") and expression.binding == ATOM
    return Expression(f"Number({expression.text})") if _is_untyped(value) and not is_variable else expression


def _is_untyped(value: Value) -> bool:
    """Whether C++ computes it in integers, or in float whatever a Number is: truth values, places and literals, and
    what is added up of them."""
    if isinstance(value, Number):
        return "Number" not in number(value.value).text
    if value.dtype in ("bool", "int"):
        return True
    if not isinstance(value, Node) or value.op not in _UNTYPED:
        return False
    terms = value.arguments[1:] if value.op == "where" else value.arguments
    return all(map(_is_untyped, terms)) and not all(isinstance(term, Number) for term in terms)


def _of_integers(node: Node, operands: list[Expression]) -> Expression:
    """Arithmetic of integers: by functions where C++ has another one, or computes in a wider type."""
    operands = _integer_operands(node, operands)
    texts = [expression.text for expression in operands]
    if node.op == "where":
        condition, chosen, other = operands
        return Expression(f"{condition.within(OR)} ? {chosen.within(OR)} : {other.within(CONDITIONAL)}", CONDITIONAL)
    if word := _BITWISE.get(node.op):
        return Expression(f"{operands[0].within(PREFIX)} {word} {operands[1].within(PREFIX)}", CONDITIONAL)
    return Expression(f"integers::{_OF_INTEGERS.get(node.op, node.op)}<{INTEGERS[node.dtype]}>({', '.join(texts)})")


def _integer_operands(node: Node, operands: list[Expression]) -> list[Expression]:
    """The operands, with numbers as integers: of bits in base 16."""
    is_of_bits = node.op in ("bitwise_and", "bitwise_or", "bitwise_xor")
    return [
        _integer(argument.value, is_of_bits) if isinstance(argument, Number) else expression
        for argument, expression in zip(node.arguments, operands, strict=True)
    ]


def _integer(value: float, in_base_16: bool) -> Expression:
    text = f"{int(value):#x}" if in_base_16 and value > 9 else str(int(value))
    return Expression(text, PREFIX if value < 0 else ATOM)


def _infix(node: Node, operands: list[Expression]) -> Expression:
    word, binding = _INFIX[node.op]
    left, right = operands
    is_of_literals = all(isinstance(argument, Number) for argument in node.arguments)
    if node.op == "div" and not is_of_literals and all(map(_is_untyped, node.arguments)):
        left = _argument(node.arguments[0], left)
    if node.op == "mul" and isinstance(node.arguments[1], Number):
        left, right = right, left
    if node.op in ("add", "sub") and right.text.startswith("-") and right.binding in (PRODUCT, PREFIX):
        word, right = ("-" if node.op == "add" else "+"), Expression(right.text[1:], PRODUCT)
    if word == "||":  # Compilers ask for the parentheses of `(a && b) || c`.
        left, right = (Expression(f"({side.text})") if side.binding == AND else side for side in (left, right))
    # `a - (b - c)` and `a / (b * c)` need theirs; so does a sum on the right, which would be added up otherwise.
    return Expression(f"{left.within(binding)} {word} {right.within(binding + 1)}", binding)


def operand(value: Value) -> Expression:
    """A parameter or a literal."""
    if isinstance(value, Name):
        return Expression(value.text)
    assert isinstance(value, Number)
    return number(value.value)
