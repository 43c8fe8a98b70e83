"""The operator of a gradient, of whole rows or of single elements: its entry, and what it is given of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.scaffold.formula import parts


@dataclass(frozen=True)
class GradientOperator:
    """Its entry, and the names of the gradients that it is given (`grads`), of the results at the places
    `differentiable`."""

    entry: dict[str, Any]
    grads: list[str]
    differentiable: list[int]

    def places(self) -> dict[str, dict[str, Any]]:
        """Its arguments by name."""
        return {argument["name"]: argument for argument in self.entry["arguments"]}

    def words(self) -> dict[str, str]:
        """What its arguments are called in C++, by name."""
        return {argument["name"]: argument["cpp"] for argument in self.entry["arguments"]}

    def pairs(self) -> list[tuple[str, int]]:
        """The gradients that it is given, with the places of their results."""
        return list(zip(self.grads, self.differentiable, strict=True))


def differentiated(path: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tensors that have a gradient."""
    floating = [tensor for tensor in tensors if tensor["dtype"] == "float"]
    outputs = parts.first_of_results(path["backward"])
    return [tensor for tensor, (output, _) in zip(floating, outputs, strict=True) if output is not None]
