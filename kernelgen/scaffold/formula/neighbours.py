"""Neighbours of elements that a formula reads: each is a parameter of its own, as is whether there is one.

Kernels read a tensor at a constant distance from the place of an element along the last two dimensions. Where it has no
element there they read 0, or, of a dimension that `wraps`, the one from the other end.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

_DIMENSIONS = {-2: "row", -1: "column"}
# The farthest neighbours that a trace takes.
_FARTHEST = 8
# What tells a neighbour: the tensor, or the place of a gradient's result; its distances; whether it wraps around.
Key = tuple[Any, tuple[int, int, bool]]


def key(tensor: Any, argument: Mapping[str, Any]) -> Key:
    lines, columns = argument["shift"]
    return tensor, (lines, columns, argument["wraps"])


def neighbour(dim: int, distance: int) -> str:
    """Which one along a dimension, in words of a name."""
    what = _DIMENSIONS[dim]
    if abs(distance) == 1:
        return f"{'next' if distance > 0 else 'previous'}_{what}"
    return f"{abs(distance)}_{what}s_{'after' if distance > 0 else 'before'}"


def has_neighbour(dim: int, distance: int) -> str:
    """What a formula calls it whether there is a place so far away."""
    return f"has_{neighbour(dim, distance)}"


# All that formulas call so.
CONDITIONS = {
    has_neighbour(dim, distance): {"dim": dim, "distance": distance}
    for dim in _DIMENSIONS
    for distance in range(-_FARTHEST, _FARTHEST + 1)
    if distance
}


def conditions(read: Container[str]) -> list[dict[str, Any]]:
    """Those that a formula reads: `cpp`, the dimension and the distance."""
    return [{"cpp": name, **condition} for name, condition in CONDITIONS.items() if name in read]
