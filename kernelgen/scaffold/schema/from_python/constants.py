"""Numbers that a default computes, such as `1 / 3` or `math.sqrt(0.5)`: read from the source, which is never run."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from kernelgen.scaffold.schema.from_python.source_file import SourceFile

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_CONSTANTS = {f"math.{name}": getattr(math, name) for name in ("pi", "e", "tau")}
_CONSTANTS |= {"torch.pi": math.pi, "torch.e": math.e}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in ("sqrt", "log", "log2", "log10", "exp", "tanh")},
    "float": float,
    "int": int,
    "abs": abs,
    "min": min,
    "max": max,
}
_DEPTH = 8
# A power, or a shift, of more than this is no default of anybody's, and may take forever.
_MOST_BITS = 64


def number(file: SourceFile, node: ast.expr) -> int | float | None:
    """The finite number that an expression of literals, of `math` and of the file's own constants is; else None."""
    try:
        value = _value(file, node, _DEPTH)
    except (_OtherError, ArithmeticError, ValueError, TypeError):
        return None
    return value if math.isfinite(value) else None


class _OtherError(Exception):
    """Not a number that is known from the source."""


def _value(file: SourceFile, node: ast.expr, depth: int) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(file, node.operand, depth)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and (function := _BINARY.get(type(node.op))):
        left, right = _value(file, node.left, depth), _value(file, node.right, depth)
        if isinstance(node.op, (ast.Pow, ast.LShift)) and (abs(right) > _MOST_BITS or abs(left) > 2**_MOST_BITS):
            raise _OtherError
        return _real(function(left, right))
    dotted = file.dotted(node) or ""
    if dotted in _CONSTANTS:
        return _CONSTANTS[dotted]
    if isinstance(node, ast.Call) and not node.keywords and (function := _FUNCTIONS.get(file.dotted(node.func) or "")):
        return _real(function(*(_value(file, argument, depth) for argument in node.args)))
    if isinstance(node, ast.Name) and depth and (assigned := file.value(node.id)) is not None:
        return _value(file, assigned, depth - 1)
    raise _OtherError


def _real(value: Any) -> int | float:
    if not isinstance(value, (int, float)):
        raise _OtherError  # A root of a negative number is complex.
    return value
