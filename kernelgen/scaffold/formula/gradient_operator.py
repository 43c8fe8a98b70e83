"""The operator of a gradient, of whole rows or of single elements: its entry, and what it is given of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.scaffold.formula import parts
from kernelgen.scaffold.formula.values import FLOATING, names_of_grads, schema_text, with_free_names
from kernelgen.scaffold.schema.parser import parse


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


def grads_of(schema: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """The places of the results that are differentiated, and the names of their gradients."""
    differentiable = [i for i, result in enumerate(results) if result["dtype"] in FLOATING]
    return differentiable, names_of_grads(results, differentiable, schema["arguments"])


def entry_of(
    schema: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    given: Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The entry of the operator that is given tensors of these names beside the function's arguments, and returns the
    gradients of `inputs`."""
    return with_free_names(parse(schema_text(schema, tensors, scalars, given, inputs)).entry())


def differentiated(path: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tensors that have a gradient."""
    if path["backward"] is None:
        return []
    floating = [tensor for tensor in tensors if tensor["dtype"] == "float"]
    outputs = parts.first_of_results(path["backward"])
    return [tensor for tensor, (output, _) in zip(floating, outputs, strict=True) if output is not None]
