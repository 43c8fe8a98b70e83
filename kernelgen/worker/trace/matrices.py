"""Functions of points whose results are matrices, as the rotation that a quaternion means.

For the operator of such a function a matrix is the numbers of its rows, one after the other, in the last dimension. The
function that is stamped makes matrices of them, which are views.
"""

import copy
from dataclasses import replace
from typing import Any

from torch import Tensor

from kernelgen.worker.trace.function import Function

# The most rows and columns of a matrix.
_MOST_ROWS = 4


def with_matrices(function: Function, assumption: Any) -> Any:
    """The assumption with the rows and columns of the results that are a matrix for each point, where some are."""
    try:
        results = function.results(assumption.sample(0).values)
    except Exception:  # It does not take such arguments, which whoever calls it next tells.
        return assumption
    sizes = tuple(_sizes(result, assumption) for result in results)
    return replace(assumption, matrix_sizes=sizes) if any(sizes) else assumption


def of_vectors(function: Function, assumption: Any) -> Function:
    """The function with vectors for these matrices."""
    if not any(assumption.matrix_sizes):
        return function
    adapted = copy.copy(function)

    def call(*values: Any) -> Any:
        function.on_name = adapted.on_name
        try:
            results = function.call(*values)
        finally:
            function.on_name = None
        every = results if isinstance(results, (tuple, list)) else [results]
        pairs = zip(every, assumption.matrix_sizes, strict=True)
        return tuple(result.flatten(-2) if sizes else result for result, sizes in pairs)

    adapted.call = call
    return adapted


def _sizes(result: Any, assumption: Any) -> tuple[int, int] | None:
    if not isinstance(result, Tensor) or result.ndim != assumption.rank + 1:
        return None
    *points, rows, columns = result.shape
    is_of_points = points == list(assumption.sample(0).shape[:-1]) and max(rows, columns) <= _MOST_ROWS
    return (rows, columns) if is_of_points else None
