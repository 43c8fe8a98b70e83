"""The shapes that a function takes which reads neighbours: of which ranks, and from which sizes on."""

import itertools
import math
from typing import Any

from kernelgen.worker.trace.comparison import compare, detached, gradients, leaves_of
from kernelgen.worker.trace.evaluate import bordered, evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import has_gradient
from kernelgen.worker.trace.precision import tolerance_of
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.sizes import broadcasts, of_shape

_RANKS = (2, 3, 4, 5)
# Sizes beyond the least ones, and those of other dimensions.
_MORE, _OTHERS = (0, 1, 2, 5), (2, 1, 3)
# What may be behind a dimension that counts from the front.
_BEHIND = ((), (5, 3), (2, 1, 3))


def shapes_of(function: Function, assumption: Any, paths: list[dict[str, Any]]) -> dict[str, Any]:
    """What is known of shapes: the `border` of results, the `least` sizes of the last two dimensions, and the ranks:
    all from `least_rank` on, or the `rank` of the assumption alone. Where the dimension of the neighbours counts from
    the front (`is_in_front`), what is behind it may be any dimensions, which are the last for the operator.

    Raises:
        RefusedError: the graphs are not the function for some of these.
    """
    graphs = [graph for path in paths for graph in (path["forward"], path["backward"]) if graph]
    least = _least(function, assumption, [max(graph["least"][i] for graph in graphs) for i in range(2)])
    border = paths[0]["forward"]["border"]
    for lines, columns in itertools.product(_MORE, repeat=2):
        shape = (*_OTHERS[: assumption.rank - 2], least[0] + lines, least[1] + columns)
        for choice, path in zip(assumption.with_flags(), paths, strict=True):
            _check(function, choice, path, shape)
    takes_any = all(_agrees(function, assumption, paths, (*_OTHERS[: rank - 2], 7, 5)) for rank in _RANKS)
    reads_lines = border[0] or any(_reads(graph, 0) for graph in graphs)
    is_of_vectors = takes_any and not reads_lines and _agrees(function, assumption, paths, (7,))
    reads_columns = border[1] or any(_reads(graph, 1) for graph in graphs)
    are_alike = len(assumption.dtypes) == 1 or not broadcasts(function, assumption)
    may_be_in_front = are_alike and not takes_any and not reads_columns
    front = (*_OTHERS[: assumption.rank - 2], 7)
    takes_no_others = _takes(function, assumption, (0,) * (assumption.rank - 2), [7, 5])
    return {
        "border": border,
        "least": least,
        "rank": None if takes_any else assumption.rank,
        **({} if takes_no_others or assumption.rank == 2 else {"others": 1}),
        "least_rank": 1 if is_of_vectors else 2,
        "is_in_front": may_be_in_front and all(_agrees(function, assumption, paths, front, end) for end in _BEHIND),
    }


def _least(function: Function, assumption: Any, known: list[int]) -> list[int]:
    """The least sizes that the function takes, from the known ones on: an operator may refuse results, or tensors,
    without elements."""
    choices = ([known[0] + lines, known[1] + columns] for lines in (0, 1) for columns in (0, 1))
    others = _OTHERS[: assumption.rank - 2]
    return next((sizes for sizes in choices if _takes(function, assumption, others, sizes)), known)


def _takes(function: Function, assumption: Any, others: tuple[int, ...], sizes: list[int]) -> bool:
    """Whether the function takes tensors of these sizes of the last two dimensions, and of the others."""
    sample = assumption.sample(0)
    given = {name: of_shape(name, sample, (*others, *sizes)) for name in sample.tensors()}
    try:
        function.results(leaves_of({**sample.values, **given}))
    except Exception:  # It does not take them.
        return False
    return True


def _reads(graph: dict[str, Any], place: int) -> bool:
    """Whether some neighbour lies along the dimension before the last (0), or the last (1)."""
    values = [*graph["outputs"], *(argument for node in graph["nodes"] for argument in node["arguments"])]
    return any(
        value.get("shift", (0, 0))[place]
        or value.get("flips", (False, False))[place]
        or value.get("inside", (0,))[0] == place - 2
        for value in values
        if value
    )


def _agrees(
    function: Function,
    assumption: Any,
    paths: list[dict[str, Any]],
    shape: tuple[int, ...],
    behind: tuple[int, ...] | None = None,
) -> bool:
    try:
        for choice, path in zip(assumption.with_flags(), paths, strict=True):
            _check(function, choice, path, shape, behind)
    except RefusedError:
        return False
    return True


def _check(
    function: Function,
    assumption: Any,
    path: dict[str, Any],
    shape: tuple[int, ...],
    behind: tuple[int, ...] | None = None,
) -> None:
    """Raises RefusedError where the function is not its graphs, for tensors of this shape; with dimensions `behind` it,
    which are one for the graphs."""
    sample = assumption.sample(0)
    own = shape if behind is None else (*shape, math.prod(behind))
    given = {name: of_shape(name, sample, (*shape, *(behind or ()))) for name in sample.tensors()}
    leaves = leaves_of({**sample.values, **given})
    try:
        results = function.results(leaves)
    except Exception as error:  # It does not take them.
        raise RefusedError(f"that it takes no tensors of shape {shape}", 4) from error
    expected = bordered(own, path["forward"]["border"])
    whole = expected if behind is None else (*expected[:-1], *behind)
    if any(tuple(result.shape) != whole for result in results):
        raise RefusedError(f"a result of another shape for tensors of shape {shape}", 4)
    values, tolerance = detached(leaves), tolerance_of(function, sample)
    values |= {name: values[name].reshape(own) for name in given}
    compare(evaluate(path["forward"], values, [], sample, own), [r.detach() for r in results], sample, tolerance)
    if path["backward"] and any(has_gradient(result) for result in results):
        grads, wanted = gradients(results, leaves)
        grads = [grad.reshape(expected) for grad in grads]
        compare(evaluate(path["backward"], values, grads, sample, own), wanted, sample, tolerance)
