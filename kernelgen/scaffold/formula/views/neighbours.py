"""Tensors of which a function reads neighbours: for its operator, of any rank and size; for the function of those alone
for which it means what the operator computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.scaffold.formula.views.view import View


class Neighbours(View):
    """Calls of other ranks and of smaller sizes, which the function computes by its reference.

    Args:
        first: the first tensor, in Python.
        rank: the dimensions that it has; None: `least_rank` or more.
        least: the least sizes of the last two dimensions.
    """

    def __init__(self, first: str, rank: int | None, least_rank: int, least: tuple[int, int]) -> None:
        self._first, self._rank, self._least_rank, self._least = first, rank, least_rank, least

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Neighbours | None:
        """Those of a traced function; None where the operator takes all that the function does."""
        known = traced["assumption"].get("neighbours")
        if known is None or (known["rank"] is None and not any(known["least"])):
            return None
        first = next(a["python"] for a in schema["arguments"] if a["name"] in traced["assumption"]["kinds"])
        return cls(first, known["rank"], known["least_rank"], tuple(known["least"]))

    def kernels_are_for(self) -> list[str]:
        pairs = zip(self._least, ("rows", "columns"), strict=True)
        sizes = [f"{least} or more {what}" for least, what in pairs if least]
        return [f"{self._first} of " + " and ".join([*([f"{self._rank} dimensions"] if self._rank else []), *sizes])]

    def conditions(self) -> list[str]:
        is_other = f"ndim != {self._rank}" if self._rank else f"ndim < {self._least_rank}"
        smaller = [f"shape[{dim}] < {least}" for dim, least in zip((-2, -1), self._least, strict=True) if least]
        return [f"{self._first}.{condition}" for condition in (is_other, *smaller)]
