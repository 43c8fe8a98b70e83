"""Results that are a matrix for each point: of the operator they are vectors, which the stamped function views so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.views.view import View


class Matrices(View):
    """Vectors for the matrices that some results are.

    Args:
        sizes: the rows and columns of each result that is a matrix; None of others.
    """

    def __init__(self, sizes: Sequence[Sequence[int] | None]) -> None:
        self._sizes = sizes

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Matrices | None:
        """Those of a traced function; None where no result is a matrix.

        Raises:
            KernelgenError: results are a class, of which the fields are as the operator returns them.
        """
        sizes = traced["assumption"].get("matrix_sizes", [])
        if not sizes:
            return None
        if schema.get("container"):
            raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are matrices")
        return cls(sizes)

    def from_reference(self, place: int) -> str:
        return ".flatten(-2)" if self._sizes[place] else ""

    def join(self, place: int) -> str:
        sizes = self._sizes[place]
        return f".unflatten(-1, ({', '.join(map(str, sizes))}))" if sizes else ""
