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


def orders(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the function's tensors are those of the operator, permuted; None where none is.

    - `arguments`: by the name of a tensor, the order of the operator's dimensions in it; "dropped" where the operator's
      has a last dimension of size 1.
    - `results`: likewise of each result, or null.
    - `copied`: of each result, whether the function returns it contiguously.
    - `matrices`: whether the function takes matrices alone, whose rows are points. `first`: the first tensor.

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
    return {
        "arguments": dict(arguments),
        "results": results,
        "copied": [output.get("copied", False) for output in outputs],
        "matrices": matrices,
        "first": next(name for name in traced["arguments"] if name in assumption["kinds"]),
    }


def ranks(of: Mapping[str, Any], arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tensors of a function that takes matrices alone, each with how many dimensions it has; none of others."""
    tensors = [a for a in arguments if "tensor" in a["kind"]] if of["matrices"] else []
    names = [(a, 1 if of["arguments"].get(a["name"]) == "dropped" else 2) for a in tensors]
    return [{"name": a["name"], "python": a["python"], "rank": rank} for a, rank in names]


def in_reference(of: Mapping[str, Any], argument: Mapping[str, Any]) -> str:
    """A tensor of the operator as its reference passes it to the function; other arguments as they are."""
    value, order = argument["python"], of["arguments"].get(argument["name"])
    if of["matrices"] and "tensor" in argument["kind"]:
        return f"{value}.flatten()" if order == "dropped" else f"{value}.flatten(0, -2)"
    return permuted(value, order)


def from_reference(of: Mapping[str, Any], value: str, order: Sequence[int] | str | None, first: str) -> str:
    """A result of the function as the operator's reference returns it; `first` is the first tensor of the operator."""
    return restored(f"{value}.unflatten(0, {first}.shape[:-1])" if of["matrices"] else value, order)


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
