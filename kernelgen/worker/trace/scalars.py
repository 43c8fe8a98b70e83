"""Scalar arguments that note what a function computes of them, so that a number in its graph is known by its value.

PyTorch's operators take such a number as any other, and the graph has its value alone. Two numbers may have one value;
merge() takes what is the same in all samples.
"""

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

# What a number was computed by: ("scalar", name), ("number", value), or an operator and what it was computed of.
Tree = tuple[Any, ...]

_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
_OF_INTEGERS = ("add", "sub", "mul")
_METHODS = {"div": "truediv"}
_FUNCTIONS = {
    getattr(math, name): name
    for name in ("cos", "exp", "expm1", "log", "log10", "log1p", "log2", "pow", "sin", "sqrt", "tanh")
}
_CHOICES = {builtins.max: "maximum", builtins.min: "minimum"}


class Numbers:
    """What was computed of the scalars in one call: the trees of each value."""

    def __init__(self) -> None:
        self.trees: dict[float, list[Tree]] = {}

    def scalar(self, name: str, value: Any) -> Any:
        """An argument of the function, which notes what is computed of it; others than numbers as they are."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        return self.noted(value, ("scalar", name))

    def noted(self, value: Any, tree: Tree) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            trees = self.trees.setdefault(float(value), [])
            if tree not in trees:
                trees.append(tree)
            number = (_Integer if isinstance(value, int) else _Float)(value)
            number.tree, number.numbers = tree, self
            return number
        return value


class _Float(float):
    tree: Tree
    numbers: Numbers


class _Integer(int):
    tree: Tree
    numbers: Numbers


def _tree(value: Any) -> Tree:
    return value.tree if isinstance(value, (_Float, _Integer)) else ("number", float(value))


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, _Float) else int(value) if isinstance(value, _Integer) else value


def _computed(op: str, function: Callable[..., Any], *values: Any) -> Any:
    """A function of numbers, which notes how it was computed; NotImplemented of anything else."""
    plain = [_plain(value) for value in values]
    if not all(isinstance(value, (int, float)) for value in plain):
        return NotImplemented
    result = function(*plain)
    numbers = next(value.numbers for value in values if isinstance(value, (_Float, _Integer)))
    if isinstance(result, int) and op not in (*_OF_INTEGERS, "maximum", "minimum"):
        return result
    return numbers.noted(result, (op, *map(_tree, values)))


def _add_operators(number: type) -> None:
    for op, function in _OPERATORS.items():
        word = _METHODS.get(op, op)
        setattr(number, f"__{word}__", _method(op, function))
        setattr(number, f"__r{word}__", _reflected(op, function))
    number.__neg__ = lambda self: _computed("neg", operator.neg, self)  # type: ignore[attr-defined]


def _method(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _computed(op, function, self, other)


def _reflected(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _computed(op, function, other, self)


_add_operators(_Float)
_add_operators(_Integer)


def notes_functions(scope: dict[str, Any]) -> None:
    """Has a module's `math`, `max` and `min` note what they compute of such numbers, too."""
    noting = {function: _noting(op, function) for function, op in {**_FUNCTIONS, **_CHOICES}.items()}
    for name, value in list(scope.items()):
        if value is math:
            scope[name] = _Math(noting)
        elif callable(value) and value in noting:
            scope[name] = noting[value]
    scope.setdefault("max", noting[builtins.max])
    scope.setdefault("min", noting[builtins.min])


class _Math:
    def __init__(self, noting: dict[Any, Any]) -> None:
        self._noting = noting

    def __getattr__(self, name: str) -> Any:
        function = getattr(math, name)
        return self._noting.get(function, function) if callable(function) else function


def _noting(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*values: Any, **keywords: Any) -> Any:
        is_noted = any(isinstance(value, (_Float, _Integer)) for value in values)
        if not is_noted or keywords or (function in _CHOICES and len(values) != 2):
            return function(*values, **keywords)
        result = _computed(op, function, *values)
        return function(*values) if result is NotImplemented else result

    return noting
