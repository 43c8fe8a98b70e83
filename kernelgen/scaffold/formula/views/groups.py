"""A dimension that a function splits into groups: for its operator the groups are a dimension of their own.

The stamped function splits the dimension of its arguments and joins it again in the results, which are views. The
operator's reference does the opposite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.parts import first_of_results
from kernelgen.scaffold.formula.views.view import Arguments, View


class Groups(View):
    """Groups of a dimension as one of their own.

    Args:
        facts: what the templates know of the groups; see `groups`.
        names: those of the function's arguments in Python.
    """

    def __init__(self, facts: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._facts, self._names = facts, names
        self.argument = facts["argument"]

    @classmethod
    def of(cls, schema: Mapping[str, Any], traced: Mapping[str, Any]) -> Groups | None:
        """Those of a traced function; None where nothing is split. Raises KernelgenError as `groups` does."""
        facts = groups(schema, traced)
        names = {argument["name"]: argument["python"] for argument in schema["arguments"]}
        return cls(facts, names) if facts is not None else None

    def in_reference(self, argument: Mapping[str, Any], value: str) -> str:
        of, name = self._facts, argument["name"]
        if name == self.argument:
            return self._of_first(f".shape[{of['known']}]")
        if name not in of["joined"]:
            return value
        return f"in_one({value}, {of['dim'] - 1 if of['dim'] < 0 else of['dim'] if of['joined'][name] else 0})"

    def from_reference(self, place: int) -> str:
        of = self._facts
        sizes = self._of_first(".shape[-2:]" if of["dim"] < 0 else f".shape[{of['dim']}:{of['dim'] + 2}]")
        return f".unflatten({of['dim']}, {sizes})" if of["results"][place] else ""

    def join(self, place: int) -> str:
        dim = self._facts["dim"]
        how = "flatten(-2)" if dim < 0 else f"flatten({dim}, {dim + 1})"
        return f".{how}" if self._facts["results"][place] else ""

    def of_signature(self, own: Arguments, given: Arguments) -> dict[str, Any]:
        """`split`: the arguments of which the function splits a dimension: `name`, `python`, `dim` and in Python
        `how`."""
        of = self._facts
        value = self._names[of["argument"]] if of["argument"] else of["size"]
        if of["like"]:
            like = self._names[of["like"]]
            value = f"{like}.numel()" if of["like_dim"] is None else f"{like}.shape[{of['like_dim']}]"
        how = f"{'size' if of['of_group'] else 'groups'}={value}"
        split = [
            {"name": a["name"], "python": a["python"], "dim": of["dim"] if of["joined"][a["name"]] else 0, "how": how}
            for a in own
            if a["name"] in of["joined"]
        ]
        return {"split": split}

    def of_traced(self) -> dict[str, Any]:
        return {"groups": self._facts}

    def _of_first(self, what: str) -> str:
        """What is asked of the first tensor that is split, in Python."""
        return self._names[self._facts["first"]] + what


def groups(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the templates know of the groups; None where nothing is split.

    - `dim`: the dimension of the first tensor that is split, from the start or from the end.
    - `argument`, `size`: the int argument, or the number, that says how many groups there are, or how large a group is
      where it is `of_group`; or `like`, the vector that is as large as a group, or the tensor that has the groups as
      its dimension `like_dim`.
    - `first`: the first tensor. `known`: the place, among the operator's dimensions of it, of the size that is known.
    - `joined`: by the name of a tensor that is split, the place of its groups among the operator's dimensions of it.
    - `places`: the same by tensor, in the operator's order, or null; `sizes` likewise the places of the size that is
      known, and `growing` those of a size that may grow where it is a number.
    - `results`: of each result, whether the function joins it.

    Raises:
        KernelgenError: something is computed of the argument beside the sizes.
    """
    split = traced["assumption"].get("split")
    if split is None:
        return None
    if schema.get("container"):
        raise KernelgenError(f"{schema['container']['name']}, a class of results of which some are joined of groups")
    path = traced["paths"][0]
    nodes = [node for graph in (path["forward"], path["backward"]) if graph for node in graph["nodes"]]
    argument = split["count"] if isinstance(split["count"], str) else None
    if argument and any(a.get("scalar") == argument for node in nodes for a in node["arguments"]):
        raise KernelgenError(f"a number that is computed of {argument}")
    first = next(a["name"] for a in schema["arguments"] if a["name"] in split["joined"])
    dim, spreads = split["dim"], traced["assumption"].get("spreads", {})
    joined = {name: dim if name not in spreads else 0 for name in split["joined"]}
    known = {name: place + split["of_group"] for name, place in joined.items()}
    kinds = traced["assumption"]["kinds"]
    known |= {name: 0 for name, kind in kinds.items() if kind == "column" and split["of_group"]}
    growing = joined if split["of_group"] else {name: 0 for name in joined if name not in spreads}
    # Of what has a number for each group, the groups are the last dimension.
    numbers = [name for name, kind in kinds.items() if kind == "row"]
    known |= {} if split["of_group"] else dict.fromkeys(numbers, -1)
    growing = growing | dict.fromkeys(numbers, -1 if split["of_group"] else 0)
    tensors = [name for name in traced["arguments"] if name in kinds]
    orders = traced["assumption"].get("orders", {})
    like_dim = orders[split["like"]].index(dim % len(orders[split["like"]])) if split["like"] in orders else None
    return {
        "dim": dim + 1 if dim < 0 else dim,
        "argument": argument,
        "size": split["count"] if argument is None else None,
        "like": split["like"],
        "like_dim": like_dim,
        "of_group": split["of_group"],
        "first": first,
        "known": dim + split["of_group"],
        "joined": joined,
        "places": [joined.get(name) for name in tensors],
        "sizes": [known.get(name) for name in tensors],
        "growing": [growing.get(name) for name in tensors],
        "results": [output.get("joined", False) for output, _ in first_of_results(path["forward"])],
    }
