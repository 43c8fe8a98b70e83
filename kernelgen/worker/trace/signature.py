"""Which arguments of a function its kernels take: all, or fewer."""

from collections.abc import Iterator
from typing import Any

from kernelgen.worker.trace.refusals import RefusedError

# The types of scalars in formulas.
_SCALARS = ("float", "int", "SymInt", "bool")
# Of these, what mostly chooses a path of the function or a dimension.
_CHOICES = ("int", "SymInt", "bool")

# Of so many tensors each may be the one of rows.
_MOST_FIRST = 4

Arguments = list[dict[str, Any]]


def taken(arguments: Arguments) -> Iterator[Arguments]:
    """Arguments that kernels may take, from the most on: the function has its defaults for those that are left out.

    An optional tensor is first taken as a tensor, which every call of the kernels gives. A str or a dtype, and what is
    optional otherwise, is left out; numbers are where nothing else leads to kernels. Last, another tensor comes first:
    the first is that of rows, whatever the function calls first.

    Raises:
        RefusedError: an argument that no kernel takes has no default.
    """
    every, optional, choices, floats = [], set(), set(), set()
    for argument in arguments:
        name, type, kind = argument["name"], argument["type"], argument["kind"]
        if argument["mutated"]:
            raise RefusedError(f"{name}, which is a {type}")
        if kind == "optional_tensor":
            every.append({**argument, "kind": "tensor", "type": "Tensor", "default": None})
            optional |= {name} if argument["default"] is not None else set()
        elif kind == "tensor" or type in _SCALARS:
            every.append(argument)
            if type in _SCALARS and argument["default"] is not None:
                (choices if type in _CHOICES else floats).add(name)
        elif argument["default"] is None:
            advice = ": tensors that are arguments of their own are taken" if "tensor_list" in kind else ""
            raise RefusedError(f"{name}, which is a {type}{advice}")
    one_choice = [{name} for name in sorted(choices)] if len(choices) > 1 else []
    ways = (set(), optional, *one_choice, choices, optional | choices, choices | floats, optional | choices | floats)
    for left_out in dict.fromkeys(map(frozenset, ways)):
        yield [argument for argument in every if argument["name"] not in left_out]
    tensors = [argument for argument in every if argument["kind"] == "tensor"]
    for first in tensors[1:_MOST_FIRST]:
        yield [first, *(argument for argument in every if argument is not first)]
