"""A dimension that a function cuts and that is not the last: for its operator it is, with the dimensions behind it.

The stamped function makes views of its arguments and results. The operator's reference takes the operator's tensors
apart again, with a single element of each part along the dimension, whatever the other dimensions are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.views.view import Arguments, View


class FlatDimension(View):
    """The dimension and all behind it as one, the last.

    Args:
        dim: the dimension, from the start or from the end.
        exact: whether each part is a single element of it.
        parts: by the name of a tensor, into how many parts it is cut.
        results: of how many parts each result is joined; 0 where it lacks the dimension.
    """

    names_result = True

    def __init__(self, dim: int, exact: bool, parts: Mapping[str, int], results: Sequence[int]) -> None:
        self._dim, self._exact, self._parts, self._results = dim, exact, parts, results

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> FlatDimension | None:
        """That of a traced function; None where none but the last is cut.

        Raises:
            KernelgenError: results are a class, of which the fields are as the operator returns them.
        """
        assumption = traced["assumption"]
        if "flat" not in assumption:
            return None
        if schema.get("container"):
            raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are viewed")
        parts = {name: assumption["cuts"].get(name, {"parts": 1})["parts"] for name in assumption["kinds"]}
        known = assumption["flat"]
        return cls(known["dim"], known["exact"], parts, known["results"])

    def in_reference(self, argument: Mapping[str, Any], value: str) -> str:
        dim = self._dim
        if argument["name"] not in self._parts:
            return value
        parts = self._parts[argument["name"]]
        behind = ".unsqueeze(-1)" * (-2 - dim)
        if parts == 1:
            return value + (".unsqueeze(0)" * (dim + 1) if dim >= 0 else f".unsqueeze(-2){behind}")
        value += f".unflatten(-1, ({parts}, {value}.shape[-1] // {parts}))"
        return value + (".movedim(-2, 0)" + ".unsqueeze(0)" * dim if dim >= 0 else behind)

    def from_reference(self, place: int) -> str:
        dim = self._dim
        squeezed = ".squeeze(0)" * dim if dim >= 0 else ".squeeze(-1)" * (-2 - dim)
        joined = squeezed + (".movedim(0, -2)" if dim >= 0 else "") + ".flatten(-2)"
        return joined if self._results[place] else squeezed

    def join(self, place: int) -> str:
        return f".reshape(_pointwise.joined(_part, {self._dim}, {self._results[place]}))"

    def of_signature(self, own: Arguments, given: Arguments) -> dict[str, Any]:
        """`flat`: the dimension, and the function's tensors, each with its `parts`."""
        tensors = [
            {"name": a["name"], "python": a["python"], "parts": self._parts[a["name"]]}
            for a in given
            if a["name"] in self._parts
        ]
        # Of more than 2³¹ elements; the place is that of the dimension.
        huge = ["2**11 + 1", "2**10", "2**10"]
        huge.insert(self._dim if self._dim >= 0 else self._dim + 1, "1")
        return {"flat": {"dim": self._dim, "exact": self._exact, "tensors": tensors, "huge": ", ".join(huge)}}
