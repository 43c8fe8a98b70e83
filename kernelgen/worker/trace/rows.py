"""Which dimensions of a tensor make up a row, and of how many dimensions it may be."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kernelgen.worker.trace.check import agrees
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.refusals import RefusedError

# That are tried: a function that takes these takes more. One that asks how many there are is asked twice more.
_MOST_DIMENSIONS, _MOST_ASKED = 5, 7


def rows(function: Function, assumption: Any, path: dict[str, Any]) -> dict[str, Any]:
    """`rows`, the dimensions of a row in the form that holds for the most ranks, and `ranks`, the least and the most
    dimensions; the most is null where any number does.

    A form is {"dims": [...]}, where negative ones count from the end, {"from": dim}, {"but": dim}, {"argument": name},
    or {"like": name}: as many of the last ones as that tensor has.
    """
    if _parts(assumption.dims) > 2:
        raise RefusedError("a reduction of dimensions that lie in more than two places", 3)
    if like := _shaped_like(function, assumption, path):
        return {"rows": {"like": like}, "ranks": [1, None]}
    choices = [(_ranks(function, assumption, path, form), form) for form in _forms(assumption)]
    ranks, form = max(choices, key=lambda choice: len(choice[0]))
    takes_any = ranks[-1] == _most_dimensions(function, assumption)
    return {"rows": form, "ranks": [ranks[0], None if takes_any else ranks[-1]]}


def dims_of(form: dict[str, Any], rank: int) -> tuple[int, ...] | None:
    """The dimensions of a row among `rank`; None where there are not so many."""
    if "from" in form:
        return tuple(range(form["from"], rank)) or None
    if "but" in form:
        dims = tuple(dim for dim in range(rank) if dim != form["but"])
        return dims if form["but"] < rank else None
    if any(not -rank <= dim < rank for dim in form["dims"]):
        return None
    return tuple(sorted(dim % rank for dim in form["dims"]))


def _shaped_like(function: Function, assumption: Any, path: dict[str, Any]) -> str | None:
    """The tensor whose dimensions are those of a row, however many it has: a weight, where its shape is an argument."""
    names = [name for name, kind in assumption.kinds.items() if kind == "column"]
    if not names or assumption.dim or assumption.dims[-1] != assumption.rank - 1:
        return None
    others = [
        replace(assumption, rank=rank, dims=dims) for rank, dims in ((3, (1, 2)), (3, (2,)), (2, (0, 1)), (1, (0,)))
    ]
    return names[0] if all(agrees(function, other, path["forward"]) is True for other in others) else None


def _most_dimensions(function: Function, assumption: Any) -> int:
    most = _MOST_ASKED if function.asks_rank else _MOST_DIMENSIONS
    return most + bool(assumption.split)  # Two of these are one of the function's.


def _parts(dims: tuple[int, ...]) -> int:
    return sum(dim - 1 not in dims for dim in dims)


def _forms(assumption: Any) -> Iterator[dict[str, Any]]:
    rank, dims = assumption.rank, assumption.dims
    if assumption.dim:
        yield {"argument": assumption.dim}
        return
    yield {"dims": [dim - rank for dim in dims]}
    if dims == tuple(range(dims[0], rank)):
        yield {"from": dims[0]}
    if rank - len(dims) == 1:
        yield {"but": next(dim for dim in range(rank) if dim not in dims)}
    yield {"dims": list(dims)}


def _ranks(function: Function, assumption: Any, path: dict[str, Any], form: dict[str, Any]) -> list[int]:
    """The ranks around the one that was traced for which this form holds, or which the function does not take."""

    def holds(rank: int) -> bool:
        dims = (0,) if assumption.dim else dims_of(form, rank)
        return dims is not None and agrees(function, replace(assumption, rank=rank, dims=dims), path["forward"]) is True

    least = most = assumption.rank
    while least > assumption.least_rank and holds(least - 1):
        least -= 1
    while most < _most_dimensions(function, assumption) and holds(most + 1):
        most += 1
    return list(range(least, most + 1))
