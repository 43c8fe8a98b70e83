"""The shapes of the answers of an op's process, which are the op's word and may be anything. All are held against these
before anybody looks inside.

A type stands for its values, `object` for any; a list for one of any length, a tuple for a list of just these, a dict
for one that has these keys.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Maybe:
    """None, or of a shape."""

    shape: Any


_LAYOUT = str, str, [int], [int]  # Type, dtype, shape, strides.
_TENSOR = *_LAYOUT, str, int  # Device and address.
_RESULT = *_TENSOR, Maybe(int)  # Where it begins in the arena.
_ALLOCATIONS = [(int, int, str, int)]  # Address, bytes, what opens it, and a number of its own.
_CALLS = {"calls": [{"kind": str, "outputs": [_RESULT], "grads": [Maybe(_RESULT)]}], "allocations": _ALLOCATIONS}

# By order; of those that are not here nothing but a dict is asked for.
_SHAPES: dict[str, Any] = {
    "load_op": {"missing": dict},
    "require_kernel": {"problem": Maybe(str)},
    "graphs": {"captured": bool},
    "join_calls": {"captured": bool},
    "left": {"seconds": float},
    "layouts": {"layouts": [[_LAYOUT]]},
    "allocations": {"allocations": _ALLOCATIONS},
}
_SHAPES_OF_FUZZ: dict[str, Any] = {
    "inputs": {"addresses": [int]},
    "draw": {**_CALLS, "state": [str]},
    "compiled": {**_CALLS, "fake": Maybe(str)},
    "repeat": {**_CALLS, "held": Maybe(int)},
    "contract": {**_CALLS, "fake": Maybe(str), "cotangents": [_TENSOR]},
}


def is_asked_for(answer: Any, do: str, call: str = "") -> bool:
    """Whether an answer to an order has its shape; `call` is what "fuzz" was told to call."""
    return _has_shape(answer, _SHAPES_OF_FUZZ.get(call, _CALLS) if do == "fuzz" else _SHAPES.get(do, dict))


def _has_shape(value: Any, shape: Any) -> bool:
    if isinstance(shape, Maybe):
        return value is None or _has_shape(value, shape.shape)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and _has_shape(value[name], shape[name]) for name in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_has_shape(item, shape[0]) for item in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(_has_shape, value, shape))
    return shape is object or type(value) is shape
