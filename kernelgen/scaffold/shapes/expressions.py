"""Sizes as expressions of named sizes, such as `D/2`, `2*D` and `N+1`: their value, their text in C++ and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


class InexactError(ValueError):
    """A division that leaves a remainder, or by zero."""


@dataclass(frozen=True)
class Size:
    """A number (`value`), a name, or an operation on two sizes: + - * / (which leaves no remainder) and //."""

    value: int | None = None
    name: str = ""
    operation: str = ""
    left: Size | None = None
    right: Size | None = None

    @property
    def operands(self) -> tuple[Size, ...]:
        return (self.left, self.right) if self.left and self.right else ()

    @property
    def names(self) -> list[str]:
        """The names in it, in order; a name that stands twice is there twice."""
        return [self.name] if self.name else [name for operand in self.operands for name in operand.names]

    @property
    def divisions(self) -> list[tuple[Size, Size]]:
        """The dividend and the divisor of each division that leaves no remainder."""
        inner = [pair for operand in self.operands for pair in operand.divisions]
        return [*inner, (self.left, self.right)] if self.operation == "/" else inner

    def __str__(self) -> str:
        return self.text(lambda name: name, {"/": "/", "//": "//"}, space="")

    def cpp(self, spell: Callable[[str], str]) -> str:
        return self.text(spell, {"/": "/", "//": "/"})

    def python(self, spell: Callable[[str], str] = str) -> str:
        return self.text(spell, {"/": "//", "//": "//"})

    def text(self, spell: Callable[[str], str], divisions: Mapping[str, str], space: str = " ") -> str:
        if not self.operands:
            return spell(self.name) if self.name else str(self.value)
        left, right = (operand.text(spell, divisions, space) for operand in self.operands)
        if self.left.operation in ("+", "-") and self.operation not in ("+", "-"):
            left = f"({left})"
        if self.right.operation and not (self.operation == "+" and self.right.operation not in ("+", "-")):
            right = f"({right})"
        return f"{left}{space}{divisions.get(self.operation, self.operation)}{space}{right}"

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Raises InexactError where a division leaves a remainder."""
        if not self.operands:
            return sizes[self.name] if self.name else self.value
        left, right = (operand.evaluate(sizes) for operand in self.operands)
        if self.operation in ("/", "//"):
            if right == 0 or (self.operation == "/" and left % right):
                raise InexactError(f"{left} / {right}")
            return left // right
        return {"+": left + right, "-": left - right, "*": left * right}[self.operation]

    def solved_for(self, name: str, result: Size) -> Size | None:
        """The size that `name` has where this one is `result`; None where that cannot be said. It may be inexact."""
        if self.name == name:
            return result
        if self.names.count(name) != 1 or self.operation == "//":
            return None
        within_left = name in self.left.names
        inner, other = (self.left, self.right) if within_left else (self.right, self.left)
        if self.operation == "*" and not other.value:
            return None  # A factor that may be 0 says nothing.
        inverse = {"+": "-", "-": "+" if within_left else "", "*": "//", "/": "*" if within_left else ""}[
            self.operation
        ]
        return inner.solved_for(name, operation(inverse, result, other)) if inverse else None


ONE = Size(value=1)


def number(value: int) -> Size:
    return Size(value=value)


def named(name: str) -> Size:
    return Size(name=name)


def operation(symbol: str, left: Size, right: Size) -> Size:
    return Size(operation=symbol, left=left, right=right)


def product(sizes: list[Size]) -> Size:
    """Their product; 1 of none."""
    result = sizes[0] if sizes else ONE
    for size in sizes[1:]:
        result = operation("*", result, size)
    return result
