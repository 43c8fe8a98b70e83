"""Neighbours of elements that a formula reads: each is a parameter of its own, as is whether there is one.

Kernels read a tensor at a constant distance from the place of an element along the last two dimensions. Where it has no
element there they read 0, or, of a dimension that `wraps`, the one from the other end. A dimension that flips is read
from its end on: the distance is from the last element for the first place.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

_DIMENSIONS = {-2: "row", -1: "column"}
# The farthest neighbours that a trace takes.
_FARTHEST = 8
# What tells a neighbour: the tensor, or the place of a gradient's result; its distances; whether it wraps around; and
# of which dimensions it is counted from the other end.
Key = tuple[Any, tuple[int, int, bool, tuple[bool, bool]]]


def key(tensor: Any, argument: Mapping[str, Any]) -> Key:
    lines, columns = argument["shift"]
    return tensor, (lines, columns, argument["wraps"], tuple(argument.get("flips", (False, False))))


def neighbour(dim: int, distance: int) -> str:
    """Which one along a dimension, in words of a name."""
    what = _DIMENSIONS[dim]
    if abs(distance) == 1:
        return f"{'next' if distance > 0 else 'previous'}_{what}"
    return f"{abs(distance)}_{what}s_{'after' if distance > 0 else 'before'}"


def words(lines: int, columns: int, wraps: bool, flips: tuple[bool, bool]) -> list[str]:
    """Those of the name of a neighbour; none of the element itself."""
    flipped = [f"flipped_{_DIMENSIONS[dim]}s" for dim, is_flipped in zip(_DIMENSIONS, flips, strict=True) if is_flipped]
    return flipped + [neighbour(dim, by) for dim, by in ((-2, lines), (-1, columns)) if by]


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
