"""Dimensions that come in another order for a function than for its operator, as attention's heads and positions; and a
last dimension of size 1 that results of the operator alone have.

The stamped function permutes its arguments and results, which are views. The operator's reference does the opposite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.parts import first_of_results


def orders(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the function's tensors are those of the operator, permuted; None where none is.

    - `arguments`: by the name of a tensor, the order of the operator's dimensions in it.
    - `results`: likewise of each result, or null; "dropped" where the operator's has a last dimension of size 1.
    - `copied`: of each result, whether the function returns it contiguously.

    Raises:
        KernelgenError: results are a class, of which the fields are as the operator returns them.
    """
    arguments = traced["assumption"].get("orders", {})
    outputs = [output for output, _ in first_of_results(traced["paths"][0]["forward"])]
    results = ["dropped" if output.get("dropped") else output.get("order") for output in outputs]
    if not arguments and not any(results):
        return None
    if schema.get("container"):
        raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are viewed")
    return {
        "arguments": dict(arguments),
        "results": results,
        "copied": [output.get("copied", False) for output in outputs],
    }


def permuted(value: str, order: Sequence[int] | str | None) -> str:
    """A tensor of the operator as the function has it, in Python."""
    if order == "dropped":
        return f"{value}.squeeze(-1)"
    return f"{value}.permute({', '.join(map(str, order))})" if order else value


def restored(value: str, order: Sequence[int] | str | None) -> str:
    """The opposite."""
    if order == "dropped":
        return f"{value}.unsqueeze(-1)"
    return permuted(value, order and [order.index(dim) for dim in range(len(order))])
