"""Conditions by which a function refuses arguments, such as `if (var < 0).any(): raise`: a trace passes them.

A trace has no numbers to look at. What such a condition came to for the numbers of the sample, it comes to in the trace
as well; the function raised nothing of these. Any other look at a tensor's numbers is a branch, which no trace has.
"""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.trace.scalars import SOURCE

_LOOKS = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.allclose.default,
)


class Answers(DispatchMode):
    """While it is entered, notes what is looked at in conditions that only refuse arguments; `lines` are those of such
    conditions in the function's source."""

    def __init__(self, lines: set[int]) -> None:
        super().__init__()
        self._lines = lines
        self.every: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        if func in _LOOKS and _is_checked(self._lines):
            self.every.append(result)
        return result


class Answered(DispatchMode):
    """While it is entered, such looks have these answers, one after the other."""

    def __init__(self, lines: set[int], answers: Sequence[Any]) -> None:
        super().__init__()
        self._lines, self._left = lines, iter(answers)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _LOOKS or not _is_checked(self._lines):
            return func(*args, **kwargs or {})
        return next(self._left)


def checked_lines(tree: ast.AST) -> set[int]:
    """The lines of conditions by which a source does nothing but refuse arguments."""
    checks: list[ast.AST] = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise):
            checks.append(node.test)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHECKS:
            checks.append(node)
    return {line for node in checks for line in range(node.lineno, node.end_lineno + 1)}  # type: ignore[attr-defined]


# Of the module torch: what raises where a condition does not hold.
_CHECKS = {"_assert", "_check", "_check_value"}


def _is_checked(lines: set[int]) -> bool:
    """Whether the statement that looks at a number is such a condition, of the function or of what it calls."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == SOURCE:
            return frame.f_lineno in lines
        if frame.f_lineno in _lines_of(frame.f_code):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _lines_of(code: CodeType) -> frozenset[int]:
    """The lines of such conditions in a function of a library."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, TypeError):
        return frozenset()
    return frozenset(line + code.co_firstlineno - 1 for line in checked_lines(tree))
