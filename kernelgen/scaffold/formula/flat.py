"""A dimension that a function cuts and that is not the last: for its operator it is, with the dimensions behind it.

The stamped function makes views of its arguments and results. The operator's reference takes the operator's tensors
apart again, with a single element of each part along the dimension, whatever the other dimensions are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError


def flat(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the templates know of the dimension; None where none but the last is cut.

    - `dim`, `exact`: the dimension, from the start or from the end, and whether each part is a single element of it.
    - `parts`: by the name of a tensor, into how many parts it is cut.
    - `results`: of how many parts each result is joined; 0 where it lacks the dimension.

    Raises:
        KernelgenError: results are a class, of which the fields are as the operator returns them.
    """
    assumption = traced["assumption"]
    if "flat" not in assumption:
        return None
    if schema.get("container"):
        raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are viewed")
    parts = {name: assumption["cuts"].get(name, {"parts": 1})["parts"] for name in assumption["kinds"]}
    return {**assumption["flat"], "parts": parts}


def in_reference(of: Mapping[str, Any], argument: Mapping[str, Any]) -> str:
    """A tensor of the operator as its reference passes it to the function; other arguments as they are."""
    value, dim = argument["python"], of["dim"]
    if argument["name"] not in of["parts"]:
        return value
    parts = of["parts"][argument["name"]]
    behind = ".unsqueeze(-1)" * (-2 - dim)
    if parts == 1:
        return value + (".unsqueeze(0)" * (dim + 1) if dim >= 0 else f".unsqueeze(-2){behind}")
    value += f".unflatten(-1, ({parts}, {value}.shape[-1] // {parts}))"
    return value + (".movedim(-2, 0)" + ".unsqueeze(0)" * dim if dim >= 0 else behind)


def from_reference(of: Mapping[str, Any]) -> list[str]:
    """What makes each of the operator's results of the function's, in the operator's reference."""
    dim = of["dim"]
    squeezed = ".squeeze(0)" * dim if dim >= 0 else ".squeeze(-1)" * (-2 - dim)
    joined = squeezed + (".movedim(0, -2)" if dim >= 0 else "") + ".flatten(-2)"
    return [joined if count else squeezed for count in of["results"]]


def joining(of: Mapping[str, Any]) -> list[str]:
    """What makes each of the function's results of the operator's."""
    return [f".reshape(_pointwise.joined(_part, {of['dim']}, {count}))" for count in of["results"]]


def of_function(of: Mapping[str, Any], arguments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the templates say of the function's tensors: each with its `parts`."""
    tensors = [
        {"name": a["name"], "python": a["python"], "parts": of["parts"][a["name"]]}
        for a in arguments
        if a["name"] in of["parts"]
    ]
    # Of more than 2³¹ elements; the place is that of the dimension.
    huge = ["2**11 + 1", "2**10", "2**10"]
    huge.insert(of["dim"] if of["dim"] >= 0 else of["dim"] + 1, "1")
    return {"dim": of["dim"], "exact": of["exact"], "tensors": tensors, "huge": ", ".join(huge)}
