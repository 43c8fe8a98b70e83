"""Results that are a matrix for each point: of the operator they are vectors, which the stamped function views so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError

# The rows and columns of each result that is a matrix; None of others.
Matrices = Sequence[Sequence[int] | None]


def matrices(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Matrices:
    """Those of a traced function; empty where no result is a matrix.

    Raises:
        KernelgenError: results are a class, of which the fields are as the operator returns them.
    """
    sizes = traced["assumption"].get("matrix_sizes", [])
    if sizes and schema.get("container"):
        raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are matrices")
    return sizes


def joining(of: Matrices) -> list[str]:
    """What makes each of the function's results of the operator's."""
    return [f".unflatten(-1, ({', '.join(map(str, sizes))}))" if sizes else "" for sizes in of]


def from_reference(of: Matrices) -> list[str]:
    """The opposite, in the operator's reference."""
    return [".flatten(-2)" if sizes else "" for sizes in of]
