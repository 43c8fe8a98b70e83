"""The shapes that a function takes which reads neighbours: of which ranks, and from which sizes on."""

import itertools
from typing import Any

from kernelgen.worker.trace.comparison import compare, detached, gradients, leaves_of
from kernelgen.worker.trace.evaluate import bordered, evaluate
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import has_gradient
from kernelgen.worker.trace.precision import tolerance_of
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.sizes import of_shape

_RANKS = (2, 3, 4, 5)
# Sizes beyond the least ones, and those of other dimensions.
_MORE, _OTHERS = (0, 1, 2, 5), (2, 1, 3)


def shapes_of(function: Function, assumption: Any, paths: list[dict[str, Any]]) -> dict[str, Any]:
    """What is known of shapes: the `border` of results, the `least` sizes of the last two dimensions, and the ranks:
    the one of the assumption alone, or all from `least_rank` on.

    Raises:
        RefusedError: the graphs are not the function for some of these.
    """
    graphs = [graph for path in paths for graph in (path["forward"], path["backward"]) if graph]
    least = [max(graph["least"][i] for graph in graphs) for i in range(2)]
    border = paths[0]["forward"]["border"]
    for lines, columns in itertools.product(_MORE, repeat=2):
        shape = (*_OTHERS[: assumption.rank - 2], least[0] + lines, least[1] + columns)
        for choice, path in zip(assumption.with_flags(), paths, strict=True):
            _check(function, choice, path, shape)
    takes_any = all(_agrees(function, assumption, paths, (*_OTHERS[: rank - 2], 7, 5)) for rank in _RANKS)
    reads_lines = border[0] or any(map(_is_of_lines, graphs))
    is_of_vectors = takes_any and not reads_lines and _agrees(function, assumption, paths, (7,))
    return {
        "border": border,
        "least": least,
        "rank": None if takes_any else assumption.rank,
        "least_rank": 1 if is_of_vectors else 2,
    }


def _is_of_lines(graph: dict[str, Any]) -> bool:
    """Whether some neighbour lies along the dimension before the last."""
    values = [*graph["outputs"], *(argument for node in graph["nodes"] for argument in node["arguments"])]
    return any(
        value.get("shift", (0,))[0] != 0 or value.get("inside", (-1,))[0] == -2 for value in values if value is not None
    )


def _agrees(function: Function, assumption: Any, paths: list[dict[str, Any]], shape: tuple[int, ...]) -> bool:
    try:
        for choice, path in zip(assumption.with_flags(), paths, strict=True):
            _check(function, choice, path, shape)
    except RefusedError:
        return False
    return True


def _check(function: Function, assumption: Any, path: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Raises RefusedError where the function is not its graphs, for tensors of this shape."""
    sample = assumption.sample(0)
    given = {name: of_shape(name, sample, shape) for name in sample.tensors()}
    leaves = leaves_of({**sample.values, **given})
    try:
        results = function.results(leaves)
    except Exception as error:  # It does not take them.
        raise RefusedError(f"that it takes no tensors of shape {shape}", 4) from error
    expected = bordered(shape, path["forward"]["border"])
    if any(tuple(result.shape) != expected for result in results):
        raise RefusedError(f"a result of another shape for tensors of shape {shape}", 4)
    values, tolerance = detached(leaves), tolerance_of(function, sample)
    compare(evaluate(path["forward"], values, [], sample, shape), [r.detach() for r in results], sample, tolerance)
    if path["backward"] and any(has_gradient(result) for result in results):
        grads, wanted = gradients(results, leaves)
        ours = evaluate(path["backward"], values, grads, sample, shape)
        compare(ours, wanted, sample, tolerance)
