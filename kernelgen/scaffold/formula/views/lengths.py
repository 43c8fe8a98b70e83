"""Tensors that results are joined of: kernels are for those of one size along that dimension, and the function takes
others as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.scaffold.formula.views.view import Arguments, View


class Lengths(View):
    """Calls with tensors of several sizes, which the function computes by its reference.

    Args:
        first: the function's first tensor, in Python.
        others: its tensors that may have another size along the dimension `dim`, in Python, by their names.
    """

    def __init__(self, first: str, others: Mapping[str, str], dim: int) -> None:
        self._first, self._others, self._dim = first, others, dim

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Lengths | None:
        """Those of a traced function; None where it takes tensors of one size alone."""
        assumption = traced["assumption"]
        if not assumption.get("longer"):
            return None
        names = {argument["name"]: argument["python"] for argument in schema["arguments"]}
        first = next(names[name] for name in names if name in assumption["kinds"])
        others = {name: names[name] for name in assumption["longer"]}
        return cls(first, others, assumption.get("flat", {"dim": -1})["dim"])

    def kernels_are_for(self) -> list[str]:
        return [f"{' and '.join([self._first, *self._others.values()])} of one size in dimension {self._dim}"]

    def conditions(self) -> list[str]:
        size = f"shape[{self._dim}:{self._dim + 1 or ''}]"  # Of a tensor that lacks the dimension, too.
        return [f"{other}.{size} != {self._first}.{size}" for other in self._others.values()]

    def of_signature(self, own: Arguments, given: Arguments) -> dict[str, Any]:
        return {"lengths": list(self._others)}
