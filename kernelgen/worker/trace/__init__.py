"""Traces a reference to the pointwise operators and reductions of rows that it is made of: forward, and its gradient.

The request's `source` is the text of a file, `function` names a function in it, and `arguments` are those of its
schema's entry. `calls`, if there are any, are what it has to take: shapes of the `arguments` and their `dtypes`, by
name, and the shapes of the `results`. The answer is an event, "trace", with what scaffold/formula/ reads (see
graph.py), or "refused" with `reason`, a phrase that names what was in the way.
"""

from dataclasses import replace
from typing import Any

from kernelgen.worker.protocol import Emit
from kernelgen.worker.quiet import quiet
from kernelgen.worker.trace.arguments import Assumption, assumptions
from kernelgen.worker.trace.check import (
    between,
    broadcasts,
    check,
    is_differentiable_twice,
    takes_float64,
    takes_no_rows,
    takes_short_rows,
    vectors,
)
from kernelgen.worker.trace.function import Function, load
from kernelgen.worker.trace.graph import (
    UNKNOWN_OPERATOR,
    OtherRowsError,
    RefusedError,
    first_line,
    trace,
    unknown_operator,
)
from kernelgen.worker.trace.rows import rows
from kernelgen.worker.trace.shapes import MatrixError, refuse_matrices, refuse_other_shapes
from kernelgen.worker.trace.symbols import BATCH, COLUMNS, ROWS, merge


def work(request: dict[str, Any], emit: Emit) -> None:
    try:
        emit("trace", **traced(request))
    except RefusedError as refused:
        emit("refused", reason=str(refused))


def traced(request: dict[str, Any]) -> dict[str, Any]:
    """The first assumption about dtypes and shapes that holds, and the graphs under it."""
    with quiet():
        return _traced(request)


def _traced(request: dict[str, Any]) -> dict[str, Any]:
    arguments, calls = request["arguments"], request.get("calls")
    function = load(request["source"], request["function"], arguments)
    reasons, forward_alone, plain = [], [], None
    for assumption in assumptions(arguments, request["recipes"]):
        if plain and "column" not in assumption.kinds.values():
            continue
        try:
            facts = _with_its_shapes(assumption, function, calls)
            if plain or not _may_be_of_vectors(facts):
                return facts
            plain = facts
        except MatrixError:
            raise
        except RefusedError as refused:
            reasons.append(refused)
            if refused.is_of_gradient:
                forward_alone.append((assumption, str(refused)))
        except Exception as error:  # It does not take such arguments.
            reasons.append(RefusedError(f"a {type(error).__name__} while it was called ({first_line(error)})"))
    if plain:
        return plain
    for assumption, composed in forward_alone:
        try:
            return _with_its_shapes(replace(assumption, composed=composed), function, calls)
        except MatrixError:
            raise
        except RefusedError as refused:
            reasons.append(refused)
    # The assumption that came furthest says most; of several the first, which is the plain case.
    reason = max(reasons, key=lambda reason: reason.progress)
    if reason.progress == UNKNOWN_OPERATOR and (name := foreign_operator(function, arguments, request["recipes"])):
        raise RefusedError(f"the operator {name}")
    raise reason


def _may_be_of_vectors(facts: dict[str, Any]) -> bool:
    """Whether all dimensions are a row because a tensor of all of them says so, as a weight that others give the shape
    of a row."""
    assumption, outputs = facts["assumption"], facts["paths"][0]["forward"]["outputs"]
    is_whole = assumption.get("rows") in ({"from": 0}, {"dims": [0]})
    return is_whole and len(assumption["kinds"]) > 1 and all(output["kind"] == "element" for output in outputs)


def foreign_operator(function: Function, arguments: list[dict[str, Any]], recipes: list[str]) -> str | None:
    """The first operator of the function, as its author knows it, that is neither pointwise nor a reduction."""
    for assumption in assumptions(arguments, recipes):
        try:
            return unknown_operator(function, assumption.sample(0))
        except Exception:  # It does not take such arguments.
            continue
    return None


def _with_its_shapes(assumption: Assumption, function: Function, calls: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The graphs under an assumption whose kernels take the shapes that the function is called with."""
    facts = _under_its_rows(assumption, function)
    if calls:
        refuse_other_shapes(function, facts["assumption"], assumption.sample(0), calls)
    else:
        refuse_matrices(function, assumption)
    return facts


def _under_its_rows(assumption: Assumption, function: Function) -> dict[str, Any]:
    """The graphs under an assumption; of other dimensions than it says where the function reduces others."""
    try:
        return _under(assumption, function)
    except OtherRowsError as other:
        if assumption.dim or assumption.recipe != "row_wise" or set(assumption.kinds.values()) != {"element"}:
            raise
        try:
            return _under(replace(assumption, dims=other.dims), function)
        except RefusedError as refused:
            raise other if other.is_of_gradient else refused from refused


def _under(assumption: Assumption, function: Function) -> dict[str, Any]:
    """The graphs, for each choice of the bool arguments."""
    function.call(*assumption.sample(0).values.values())  # It may not take such arguments: that is known at once.
    choices = list(assumption.with_flags())
    paths = [_path(choice, function) for choice in choices]
    if len({str(_signature(path)) for path in paths}) > 1:
        raise RefusedError("results or gradients that depend on a bool argument", 3)
    exact = all(
        takes_float64(function, choice, path["forward"], path["backward"])
        for choice, path in zip(choices, paths, strict=True)
    )
    facts = {
        **assumption.as_dict(),
        **(rows(function, assumption, paths[0]) if assumption.recipe == "row_wise" else {}),
        "twice": not paths[0]["backward"] or is_differentiable_twice(function, assumption),
        "between": between(function, assumption, paths[0]["forward"]),
        "short_rows": assumption.recipe == "row_wise"
        and takes_short_rows(function, assumption, paths[0]["forward"], paths[0]["backward"]),
        "no_rows": assumption.recipe != "row_wise" or takes_no_rows(function, assumption),
        "vectors": vectors(function, assumption) if assumption.recipe == "row_wise" else {},
        "broadcasts": assumption.recipe == "pointwise" and broadcasts(function, assumption),
    }
    return {"assumption": facts, "takes_float64": exact, "paths": paths}


def _path(assumption: Assumption, function: Function) -> dict[str, Any]:
    samples = [assumption.sample(k) for k in range(4)]
    forward = merge([trace(function, sample, "forward") for sample in samples], samples)
    if assumption.recipe == "pointwise":
        _refuse_rows(forward)  # Before the gradient is traced, which takes longer.
    backward = None
    if any(output["dtype"] == "float" for output in forward["outputs"]) and not assumption.composed:
        try:
            backward = merge([trace(function, sample, "backward") for sample in samples], samples)
        except RefusedError as refused:
            refused.is_of_gradient = True
            raise
    if assumption.recipe == "pointwise":
        _refuse_rows(backward)
    elif any(output["kind"] == "scalar" for output in forward["outputs"]):
        raise RefusedError("a result that depends on no tensor", 3)
    check(function, assumption, forward, backward)
    return {"flags": assumption.flags, "forward": forward, "backward": backward}


def _refuse_rows(*graphs: dict[str, Any] | None) -> None:
    for node in (node for graph in graphs if graph for node in graph["nodes"]):
        if node["kind"] not in ("element", "scalar") or node["op"].startswith(("column_sum", "running_")):
            raise RefusedError(f"{node['op'].replace('_', ' ')}, which is not element by element", 3)
        if any(argument.get("scalar") in (COLUMNS, ROWS, BATCH) for argument in node["arguments"]):
            raise RefusedError("a number that depends on the sizes", 3)


def _signature(path: dict[str, Any]) -> Any:
    """What has to be the same for all paths: dtypes of the results, and which gradients there are."""
    results = [(output["dtype"], output["kind"]) for output in path["forward"]["outputs"]]
    return results, path["backward"] and [output is None for output in path["backward"]["outputs"]]
