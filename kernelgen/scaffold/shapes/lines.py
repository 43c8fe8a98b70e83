"""Calls and declarations broken over lines of 120 columns, as clang-format (AlwaysBreak) and ruff format do."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 120


def cpp(start: str, items: Sequence[str], end: str) -> list[str]:
    indent = len(start) - len(start.lstrip()) + 4
    joined = ", ".join(items)
    if len(start + joined + end) <= WIDTH:
        return [start + joined + end]
    if indent + len(joined + end) <= WIDTH:
        return [start, " " * indent + joined + end]
    return [start, *(" " * indent + item + "," for item in items[:-1]), " " * indent + items[-1] + end]


def assigned(start: str, call: str, items: Sequence[str], end: str) -> list[str]:
    """A C++ call whose value is assigned: it moves to a line of its own where it fits there and not beside the name."""
    indent = len(start) - len(start.lstrip()) + 4
    below = " " * indent + call + ", ".join(items) + end
    whole = cpp(f"{start} {call}", items, end)
    return [start, below] if len(whole) > 1 and len(below) <= WIDTH else whole


def declared(line: str) -> list[str]:
    """A C++ declaration in one line, or broken after its `=`."""
    if len(line) <= WIDTH:
        return [line]
    name, _, value = line.partition(" = ")
    return [f"{name} =", " " * (len(line) - len(line.lstrip()) + 4) + value]


def python(start: str, items: Sequence[str], end: str) -> list[str]:
    indent = len(start) - len(start.lstrip())
    joined = ", ".join(items)
    if len(start + joined + end) <= WIDTH:
        return [start + joined + end]
    if indent + 4 + len(joined) <= WIDTH:
        return [start, " " * (indent + 4) + joined, " " * indent + end]
    return [start, *(" " * (indent + 4) + item + "," for item in items), " " * indent + end]


def collection(start: str, items: Sequence[str], end: str) -> list[str]:
    """A tuple, list or dict in Python: in one line, or an item a line."""
    joined = ", ".join(items) + ("," if len(items) == 1 and start.endswith("(") else "")
    if len(start + joined + end) <= WIDTH:
        return [start + joined + end]
    indent = len(start) - len(start.lstrip())
    return [start, *(" " * (indent + 4) + item + "," for item in items), " " * indent + end]


def tuple_of(items: Sequence[str]) -> str:
    """The text of a Python tuple."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
