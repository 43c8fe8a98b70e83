"""Scalar arguments that note what a function computes of them, so that a number in its graph is known by its value.

PyTorch's operators take such a number as any other, and the graph has its value alone. Two numbers may have one value;
merge() takes what is the same in all samples. What Python decides by such numbers is noted, too: see decisions.py.
"""

import builtins
import functools
import math
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

# What a number was computed by: ("scalar", name), ("number", value), or an operator and what it was computed of.
Tree = tuple[Any, ...]
# What a number is computed of that depends on the tensors' sizes, or on how many dimensions they have.
SIZE, RANK = "size", "rank"
# The name that the file of the function is compiled under.
SOURCE = "reference.py"

_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
_OF_INTEGERS = ("add", "sub", "mul", "pow", "neg")
_METHODS = {"div": "truediv"}
_FUNCTIONS = {
    getattr(math, name): name
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc", "exp", "expm1"),
        *("hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
} | {math.fabs: "abs"}
_CHOICES = {builtins.max: "maximum", builtins.min: "minimum"}
# What has steps: between these a number that is computed so, or a path that is taken by it, is the same.
_COMPARISONS = ("lt", "le", "eq", "ne", "ge", "gt")
_STEPS = {"floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod}
_STEPS_OF_BITS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_STEPS_OF_BITS["rshift"] = operator.rshift
_CONVERSIONS = {"bool": bool, "int": int, "float": float, "round": round, "abs": abs}
_CONVERSIONS |= {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}
_CONVERSIONS |= {"str": str, "repr": repr, "format": format}
_METHODS_OF_STEPS = ("as_integer_ratio", "bit_count", "bit_length", "is_integer")


class Decision(NamedTuple):
    """What a step of a function came to: `place` tells the step, its line first; `origins` are the numbers that it was
    computed of, and `beside_number`: with a number that stands in the source."""

    place: tuple[int, int]
    outcome: Any
    origins: frozenset[str]
    beside_number: bool


class Numbers:
    """What was computed of the scalars in one call: the trees of each value; and what was decided by them."""

    def __init__(self) -> None:
        self.trees: dict[float, list[Tree]] = {}
        self.decisions: list[Decision] = []

    def scalar(self, name: str, value: Any) -> Any:
        """An argument of the function, which notes what is computed of it; others than numbers as they are."""
        return self.noted(value, ("scalar", name), frozenset({name}))

    def noted(self, value: Any, tree: Tree | None, origins: frozenset[str]) -> Any:
        """A number that notes what is computed of it; `tree` is None of one that no kernel computes."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        trees = self.trees.setdefault(float(value), []) if tree else []
        if tree and tree not in trees:
            trees.append(tree)
        number = (_Integer if isinstance(value, int) else _Float)(value)
        number.tree, number.numbers, number.origins = tree, self, origins
        return number

    def decide(self, outcome: Any, values: tuple[Any, ...]) -> None:
        """Notes a step in the function itself, not in one that it calls."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            frame = frame.f_back  # type: ignore[assignment]
        if frame.f_code.co_filename == SOURCE:
            beside_number = len(values) == 1 or any(not _origins((value,)) for value in values)
            place = (frame.f_lineno, frame.f_lasti)
            self.decisions.append(Decision(place, outcome, _origins(values), beside_number))


class _Float(float):
    """`numbers` is None of one that stands in the source, which is noted for what it meets: Python's own float times an
    integer is no more than a float."""

    tree: Tree | None
    numbers: Numbers | None
    origins: frozenset[str]


class _Integer(int):
    tree: Tree | None
    numbers: Numbers
    origins: frozenset[str]


def literal(value: float) -> float:
    """A number that stands in the source of the function."""
    number = _Float(value)
    number.tree, number.numbers, number.origins = ("number", value), None, frozenset()
    return number


def _tree(value: Any) -> Tree | None:
    return value.tree if isinstance(value, (_Float, _Integer)) else ("number", float(value))


def _origins(values: tuple[Any, ...]) -> frozenset[str]:
    return frozenset().union(*(value.origins for value in values if isinstance(value, (_Float, _Integer))))


def _plain(value: Any) -> Any:
    if isinstance(value, _Float):
        return float.__float__(value)
    return int.__int__(value) if isinstance(value, _Integer) else value


def _numbers_of(values: Sequence[Any]) -> Numbers | None:
    """Where what is computed of these is noted; None where all of them stand in the source."""
    every = (value.numbers for value in values if isinstance(value, (_Float, _Integer)))
    return next((numbers for numbers in every if numbers), None)


def _result(function: Callable[..., Any], values: Sequence[Any]) -> Any:
    """What a function of numbers gives for them; NotImplemented of anything else."""
    plain = list(map(_plain, values))
    return function(*plain) if all(isinstance(value, (int, float)) for value in plain) else NotImplemented


def _computed(op: str, function: Callable[..., Any], *values: Any) -> Any:
    """A function of numbers, which notes how it was computed; NotImplemented of anything else."""
    result, numbers = _result(function, values), _numbers_of(values)
    if result is NotImplemented:
        return result
    if numbers is None:
        return literal(result) if isinstance(result, float) else result
    trees = list(map(_tree, values))
    is_known = None not in trees and not (isinstance(result, int) and op not in (*_OF_INTEGERS, "maximum", "minimum"))
    if not is_known and op in ("maximum", "minimum"):
        numbers.decide(list(map(_plain, values)).index(result), values)
    return numbers.noted(result, (op, *trees) if is_known else None, _origins(values))


def _decided(function: Callable[..., Any], *values: Any) -> Any:
    """A step, which is noted; NotImplemented of others than numbers."""
    outcome, numbers = _result(function, values), _numbers_of(values)
    if outcome is NotImplemented or numbers is None:
        return outcome
    numbers.decide(outcome, values)
    return numbers.noted(outcome, None, _origins(values))


def _add_operators(number: type) -> None:
    for op, function in _OPERATORS.items():
        word = _METHODS.get(op, op)
        setattr(number, f"__{word}__", _method(op, function))
        setattr(number, f"__r{word}__", _reflected(op, function))
    number.__neg__ = lambda self: _computed("neg", operator.neg, self)  # type: ignore[attr-defined]
    for op in _COMPARISONS:
        setattr(number, f"__{op}__", _step(getattr(operator, op)))
    for op, function in {**_STEPS, **(_STEPS_OF_BITS if issubclass(number, int) else {})}.items():
        setattr(number, f"__{op}__", _step(function))
        setattr(number, f"__r{op}__", _reflected_step(function))
    for op, function in _CONVERSIONS.items():
        setattr(number, f"__{op}__", _conversion(function))
    for name in _METHODS_OF_STEPS:
        if plain_method := getattr(number.__mro__[1], name, None):
            setattr(number, name, _conversion(plain_method))
    number.__hash__ = number.__mro__[1].__hash__  # type: ignore[method-assign]


def _method(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _computed(op, function, self, other)


def _step(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _decided(function, self, other)


def _reflected_step(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _decided(function, other, self)


def _shifted(value: Any, places: Any) -> Any:
    """`value << places`: times a power of two."""
    if not isinstance(value, int) or not isinstance(places, int):
        return NotImplemented
    operator.lshift(_plain(value), _plain(places))  # Which refuses negative places.
    return _computed("mul", operator.mul, value, _computed("pow", operator.pow, 2, places))


def _conversion(function: Callable[..., Any]) -> Callable[..., Any]:
    """What Python converts a number by, with a number of digits or without. The result is one of Python's own."""
    return lambda self, *digits: _plain(_decided(function, self, *digits))


def _reflected(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _computed(op, function, other, self)


_add_operators(_Float)
_add_operators(_Integer)
_Integer.__lshift__ = _shifted  # type: ignore[method-assign,assignment]
_Integer.__rlshift__ = lambda self, other: _shifted(other, self)  # type: ignore[method-assign,assignment]


def notes_functions(scope: dict[str, Any]) -> None:
    """Has a module's `math`, NumPy, `max`, `min`, `len` and `range` note what they compute of such numbers, too."""
    noting = {function: _noting(op, function) for function, op in {**_FUNCTIONS, **_CHOICES}.items()}
    for name, value in list(scope.items()):
        if isinstance(value, types.ModuleType) and value.__name__ in ("math", "numpy"):
            scope[name] = _Module(value, noting)
        elif isinstance(value, types.BuiltinFunctionType) and value.__module__ == "math":
            scope[name] = noting.get(value) or _noting_step(value)
    scope.setdefault("max", noting[builtins.max])
    scope.setdefault("min", noting[builtins.min])
    scope.setdefault("len", _len)
    scope.setdefault("range", _range)


class _Module:
    """A module of functions of numbers; what has steps, or is none of the functions above, is noted as a step."""

    def __init__(self, module: types.ModuleType, noting: dict[Any, Any]) -> None:
        self._module, self._noting = module, noting

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, float):
            return literal(value)
        if not callable(value) or isinstance(value, type):
            return value
        return self._noting.get(value) or _noting_step(value)


def _noting(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def of_two(*values: Any) -> Any:
        result = _computed(op, function, *values)
        return function(*values) if result is NotImplemented else result

    def noting(*values: Any, **keywords: Any) -> Any:
        own = values[0] if function in _CHOICES and len(values) == 1 else values
        if keywords or not isinstance(own, (tuple, list)) or not _has_noted(own):
            return function(*values, **keywords)
        return functools.reduce(of_two, own) if function in _CHOICES else of_two(*own)

    return noting


def _noting_step(function: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*values: Any, **keywords: Any) -> Any:
        if keywords or not _has_noted(values):
            return function(*values, **keywords)
        result = _decided(function, *values)
        return function(*values) if result is NotImplemented else result

    return noting


def _has_noted(values: Sequence[Any]) -> bool:
    return any(isinstance(value, (_Float, _Integer)) for value in values)


def _range(*values: Any) -> range:
    result = range(*map(_plain, values))
    if numbers := _numbers_of(values):
        numbers.decide(len(result), values)
    return result


def index(value: Any) -> Any:
    """What an element of a list is chosen by."""
    if isinstance(value, _Integer):
        value.numbers.decide(_plain(value), (value,))
    return value


def sliced(value: Any, *bounds: Any) -> Any:
    """`value[lower:upper:step]`; of a list, how many elements that are is noted."""
    part = value[slice(*bounds)]
    if not isinstance(value, torch.Tensor) and (numbers := _numbers_of(bounds)):
        numbers.decide(len(part), bounds)
    return part


def _len(value: Any) -> Any:
    """The number of dimensions, of a shape; the size of the first, of a tensor."""
    if isinstance(value, torch.Tensor) and value.ndim:
        return value.shape[0]
    sizes = value if isinstance(value, torch.Size) else ()
    numbers = next((size.numbers for size in sizes if isinstance(size, _Integer)), None)
    return numbers.noted(len(value), None, frozenset({RANK})) if numbers else len(value)
