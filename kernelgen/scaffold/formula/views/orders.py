"""Dimensions that come in another order for a function than for its operator, as attention's heads and positions; a
last dimension of size 1 that tensors of the operator alone have; and points in any shape, where the function takes
matrices.

The stamped function permutes its arguments and results, which are views. The operator's reference does the opposite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.parts import first_of_results
from kernelgen.scaffold.formula.views.view import Arguments, View

# The order of the operator's dimensions in a tensor of the function; "dropped" where the operator's has a last
# dimension of size 1; None where it is the same.
Order = Sequence[int] | str | None


class DimensionOrders(View):
    """Permuted tensors.

    Args:
        arguments: by the name of a tensor, its order.
        results: likewise of each result.
        copied: of each result, whether the function returns it contiguously.
        matrices: whether the function takes matrices alone, whose rows are points.
        first: the first tensor, in Python.
    """

    def __init__(
        self,
        arguments: Mapping[str, Order],
        results: Sequence[Order],
        copied: Sequence[bool],
        matrices: bool,
        first: str,
    ) -> None:
        self._arguments, self._results, self._copied = arguments, results, copied
        self._matrices, self._first = matrices, first

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> DimensionOrders | None:
        """Those of a traced function; None where no tensor is viewed so.

        Raises:
            KernelgenError: results are a class, of which the fields are as the operator returns them.
        """
        assumption = traced["assumption"]
        arguments = assumption.get("orders", {}) | dict.fromkeys(assumption.get("numbers", ()), "dropped")
        outputs = [output for output, _ in first_of_results(traced["paths"][0]["forward"])]
        results = ["dropped" if output.get("dropped") else output.get("order") for output in outputs]
        matrices = assumption.get("matrices", False)
        if not arguments and not any(results) and not matrices:
            return None
        if schema.get("container"):
            raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are viewed")
        first = next(name for name in traced["arguments"] if name in assumption["kinds"])
        names = {argument["name"]: argument["python"] for argument in schema["arguments"]}
        copied = [output.get("copied", False) for output in outputs]
        return cls(arguments, results, copied, matrices, names[first])

    def in_reference(self, argument: Mapping[str, Any], value: str) -> str:
        order = self._arguments.get(argument["name"])
        if self._matrices and "tensor" in argument["kind"]:
            return f"{value}.flatten()" if order == "dropped" else f"{value}.flatten(0, -2)"
        return _permuted(value, order)

    def from_reference(self, place: int) -> str:
        points = f".unflatten(0, {self._first}.shape[:-1])" if self._matrices else ""
        return _restored(points, self._results[place])

    def join(self, place: int) -> str:
        return _permuted("", self._results[place]) + (".contiguous()" if self._copied[place] else "")

    def of_signature(self, own: Arguments, given: Arguments) -> dict[str, Any]:
        """`permuted`: the arguments whose dimensions the function brings into the operator's order, and in Python
        `how`. `ranks`: the tensors of a function of matrices, with the dimensions that each has."""
        permuted = [
            {"python": a["python"], "how": _restored("", self._arguments[a["name"]])}
            for a in own
            if a["name"] in self._arguments
        ]
        return {"permuted": permuted} | ({"ranks": self._ranks(given)} if self._matrices else {})

    def _ranks(self, arguments: Arguments) -> list[dict[str, Any]]:
        tensors = [argument for argument in arguments if "tensor" in argument["kind"]]
        ranks = [1 if self._arguments.get(tensor["name"]) == "dropped" else 2 for tensor in tensors]
        return [
            {"name": tensor["name"], "python": tensor["python"], "rank": rank}
            for tensor, rank in zip(tensors, ranks, strict=True)
        ]


def _permuted(value: str, order: Order) -> str:
    """A tensor of the operator as the function has it, in Python."""
    if order == "dropped":
        return f"{value}.squeeze(-1)"
    return f"{value}.permute({', '.join(map(str, order))})" if order else value


def _restored(value: str, order: Order) -> str:
    """The opposite."""
    if order == "dropped":
        return f"{value}.unsqueeze(-1)"
    return _permuted(value, order and [order.index(dim) for dim in range(len(order))])
