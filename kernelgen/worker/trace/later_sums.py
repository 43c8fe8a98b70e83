"""Sums along the dimensions that a tensor is repeated along, as its gradient has them.

Kernels compute the terms; they are added up afterwards, in the tensor's shape. What is computed of such a sum is
computed of its terms, as long as it is linear in them: such a value is known with `summed`, the dimensions that are to
be added up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.worker.trace.refusals import RefusedError

# What is linear in its first argument, in either, or in all at once. Others do not vary along the dimensions that are
# added up, because the values that PyTorch computes there have lost these.
_OF_FIRST, _OF_EITHER, _OF_ALL = ("div", "neg", "to_float", "row_sum"), ("mul",), ("add", "sub")


def later_sum(op: str, arguments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of the sums in a node's result, by those in its arguments.

    Raises:
        RefusedError: it is not linear in them.
    """
    every = [argument.get("summed") for argument in arguments]
    chosen = {dims for dims in every if dims}
    if not chosen:
        return {}
    is_of_first = op in _OF_FIRST and every[0] and not any(every[1:])
    is_of_either = op in _OF_EITHER and sum(dims is not None for dims in every) == 1
    is_of_all = op in _OF_ALL and len(chosen) == 1 and all(every)
    is_choice = op == "where" and not every[0] and len(chosen) == 1 and all(map(_is_sum_or_zero, arguments[1:]))
    if not (is_of_first or is_of_either or is_of_all or is_choice):
        raise RefusedError(f"{op} of a sum over some dimensions of a tensor", 2)
    return {"summed": chosen.pop()}


def _is_sum_or_zero(argument: Mapping[str, Any]) -> bool:
    return bool(argument.get("summed")) or argument.get("constant") == 0
