"""A difference between what a function takes and what its operator takes, which views of the tensors bridge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Arguments and results, as a schema's entry has them.
Arguments = Sequence[Mapping[str, Any]]


class View:
    """One kind of difference. Of several, the first changes arguments first, and results last.

    `argument`: the function's argument that says a size, which the operator does not take; None of most.
    `names_result`: whether a single result has a variable in the operator's reference, as several have.
    """

    argument: str | None = None
    names_result = False

    def in_reference(self, argument: Mapping[str, Any], value: str) -> str:
        """A tensor of the operator, `value` in Python, as its reference passes it to the function; others as they
        are."""
        return value

    def from_reference(self, place: int) -> str:
        """What makes the operator's result at a place of the function's, in the operator's reference."""
        return ""

    def join(self, place: int) -> str:
        """What makes the function's result at a place of the operator's."""
        return ""

    def kernels_are_for(self) -> list[str]:
        """Which calls of the function the kernels are for, in words; none where they are for any."""
        return []

    def conditions(self) -> list[str]:
        """Conditions in Python that others meet."""
        return []

    def first_lines(self) -> list[str]:
        """Lines of the stamped function before its arguments become those of the operator."""
        return []

    def of_signature(self, own: Arguments, given: Arguments) -> dict[str, Any]:
        """What the templates say of the function's own arguments: `own` are those that the operator takes, `given`
        those that tests draw."""
        return {}

    def of_traced(self) -> dict[str, Any]:
        """What the templates know beside that of the op."""
        return {}
