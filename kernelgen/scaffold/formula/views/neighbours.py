"""Tensors of which a function reads neighbours: for its operator, of any rank and size; for the function of those alone
for which it means what the operator computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.lines import free_name
from kernelgen.scaffold.formula.views.view import View


class Neighbours(View):
    """Calls of other ranks and of smaller sizes, which the function computes by its reference; and dimensions behind
    that of the neighbours as one, the last, where that counts from the front.

    Args:
        tensors: the function's tensors, in Python.
        known: what a trace says of shapes; see worker/trace/neighbour_sizes.py.
        taken: the names of the arguments in Python.
    """

    def __init__(self, tensors: Sequence[str], known: Mapping[str, Any], taken: Collection[str]) -> None:
        self._tensor, *self._others = tensors
        self._rank, self._least = known["rank"], known["least"]
        self._least_rank = known["rank"] - 1 if known["is_in_front"] else known["least_rank"]
        self._is_in_front = known["is_in_front"]
        self._behind = free_name("behind", taken)

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Neighbours | None:
        """Those of a traced function; None where the operator takes all that the function does.

        Raises:
            KernelgenError: results are a class, of which the fields are as the operator returns them.
        """
        known = traced["assumption"].get("neighbours")
        if known is None or (known["rank"] is None and not any(known["least"])):
            return None
        if known["is_in_front"] and schema.get("container"):
            raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are viewed")
        names = {argument["name"]: argument["python"] for argument in schema["arguments"]}
        tensors = [names[name] for name in names if name in traced["assumption"]["kinds"]]
        return cls(tensors, known, names.values())

    def kernels_are_for(self) -> list[str]:
        if self._is_in_front:
            alike = f"{' and '.join([self._tensor, *self._others])} of one shape" if self._others else self._tensor
            return [f"{alike} with {self._least[0]} or more elements in dimension {self._rank - 2}"]
        pairs = zip(self._least, ("rows", "columns"), strict=True)
        sizes = [f"{least} or more {what}" for least, what in pairs if least]
        return [f"{self._tensor} of " + " and ".join([*([f"{self._rank} dimensions"] if self._rank else []), *sizes])]

    def conditions(self) -> list[str]:
        is_exact = self._rank and not self._is_in_front
        ranks = f"ndim != {self._rank}" if is_exact else f"ndim < {self._least_rank}"
        dims = (self._rank - 2, -1) if self._is_in_front else (-2, -1)
        smaller = [f"shape[{dim}] < {least}" for dim, least in zip(dims, self._least, strict=True) if least]
        others = [f"{other}.shape != {self._tensor}.shape" for other in self._others if self._is_in_front]
        return [*(f"{self._tensor}.{condition}" for condition in (ranks, *smaller)), *others]

    def first_lines(self) -> list[str]:
        if not self._is_in_front:
            return []
        tensors, dim = [self._tensor, *self._others], self._rank - 2
        views = [f"    {tensor} = _pointwise.one_behind({tensor}, {dim})" for tensor in tensors]
        return [f"    {self._behind} = {self._tensor}.shape[{dim + 1}:]", *views]

    def join(self, place: int) -> str:
        return f".unflatten(-1, (*{self._behind}, 1)).squeeze(-1)" if self._is_in_front else ""
