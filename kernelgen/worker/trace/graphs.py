"""The graphs of a function under an assumption about its arguments, and what else recipes have to know of it."""

import math
from dataclasses import replace
from typing import Any

from kernelgen.worker.trace.assumption import Assumption
from kernelgen.worker.trace.check import agrees, check, constants, contiguous, refused_places
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.derivatives import is_derivative, is_differentiable_twice
from kernelgen.worker.trace.domains import refused_numbers, samples
from kernelgen.worker.trace.function import Function, versions, written
from kernelgen.worker.trace.graph import FLOAT8, INTEGERS, firsts
from kernelgen.worker.trace.intervals import between, scaled
from kernelgen.worker.trace.largest import refuse_largest
from kernelgen.worker.trace.neighbour_sizes import shapes_of
from kernelgen.worker.trace.precision import fixed_dtypes, takes_float16, takes_float64
from kernelgen.worker.trace.refusals import (
    UNKNOWN_OPERATOR,
    FinalError,
    OtherRowsError,
    ReducesError,
    RefusedError,
)
from kernelgen.worker.trace.rows import rows
from kernelgen.worker.trace.sizes import (
    broadcasts,
    check_shapes,
    refuse_other_sizes,
    takes_no_rows,
    takes_other_points,
    takes_short_rows,
    vectors,
)
from kernelgen.worker.trace.surroundings import depends_on_dtype, refuse_other_paths
from kernelgen.worker.trace.symbols import BATCH, COLUMNS, ROWS, merge, with_epsilon
from kernelgen.worker.trace.tracing import trace


def graphs_of(assumption: Assumption, function: Function) -> dict[str, Any]:
    """The graphs under an assumption; of other dimensions than it says where the function reduces others."""
    try:
        return _under(assumption, function)
    except OtherRowsError as other:
        counts_from_end = assumption.coordinates or assumption.spreads or assumption.split or assumption.orders
        is_plain = assumption.recipe == "row_wise" and set(assumption.kinds.values()) == {"element"}
        if counts_from_end or assumption.dim or not is_plain:
            other.sums_all = assumption.coordinates and len(other.dims) == assumption.rank
            raise
        try:
            return _under(replace(assumption, dims=other.dims), function)
        except RefusedError as refused:
            reason = other if other.is_of_gradient else refused
            reason.sums_all = len(other.dims) == assumption.rank
            raise reason from refused


def _under(assumption: Assumption, function: Function) -> dict[str, Any]:
    """The graphs, for each choice of the bool arguments."""
    if assumption.recipe == "row_wise":
        _refuse_integers(assumption)
    if assumption.exact and not assumption.any_size:
        refuse_other_sizes(function, assumption)
    values = assumption.sample(0).values
    before = versions(values)
    function.call(*values.values())  # It may not take such arguments: that is known at once.
    if names := written(before, values):
        raise FinalError(f"that it writes to {' and '.join(names)}", 7)
    choices = list(assumption.with_flags())
    if assumption.recipe == "row_wise" and len(choices) > 1:
        raise RefusedError("a bool among the arguments, beside a reduction of rows", UNKNOWN_OPERATOR)
    paths = [_path(choice, function) for choice in choices]
    refuse_other_paths(function, assumption)
    if assumption.split and _has_any_count(function, assumption, paths[0]["forward"]):
        raise RefusedError("groups of which no number in the source says how many there are", 3)
    if len({str(_signature(path)) for path in paths}) > 1:
        raise RefusedError("results or gradients that depend on a bool argument", 3)
    _note_fixed_dtypes(paths, fixed_dtypes(function, assumption))
    held = constants(function, assumption) if paths[0]["backward"] else []
    if _permutes(paths[0]["forward"]):
        _note_copies(paths[0]["forward"], contiguous(function, assumption))
    refused: set[str] = set()
    if assumption.recipe == "pointwise" and not assumption.neighbours:
        for choice, path in zip(choices, paths, strict=True):
            refused |= check_shapes(function, choice, path["forward"])
    exact = all(
        takes_float64(function, choice, path["forward"], path["backward"])
        for choice, path in zip(choices, paths, strict=True)
    )
    drawn_between = between(function, assumption, paths[0]["forward"])
    of_units = scaled(function, assumption, drawn_between)
    facts = {
        **assumption.as_dict(),
        **(_of_cuts(function, assumption, refused) if assumption.cuts is not None else {}),
        **({"neighbours": shapes_of(function, assumption, paths)} if assumption.neighbours else {}),
        **(rows(function, assumption, paths[0]) if assumption.recipe == "row_wise" else {}),
        "twice": not paths[0]["backward"] or is_differentiable_twice(function, assumption),
        "constants": [i for i, is_held in enumerate(held) if is_held],
        "compared": _compared(assumption, paths),
        "ties": function.breaks_ties and any(output["dtype"] == "int" for output in paths[0]["forward"]["outputs"]),
        "derivative": not paths[0]["backward"] or not exact or is_derivative(function, assumption),
        "between": drawn_between,
        "short_rows": assumption.recipe == "row_wise"
        and takes_short_rows(function, assumption, paths[0]["forward"], paths[0]["backward"]),
        "no_rows": "rows" not in refused if assumption.recipe != "row_wise" else takes_no_rows(function, assumption),
        "vectors": vectors(function, assumption) if assumption.recipe == "row_wise" else {},
        "broadcasts": assumption.recipe == "pointwise" and broadcasts(function, assumption),
        "refused_places": refused_places(function, assumption),
        "samples": samples(function, assumption),
        "domains": assumption.domains | refused_numbers(function, assumption) | (of_units or {}),
        "scaled": sorted(of_units or ()),
        "wide_alone": of_units is None and exact,
    }
    half = takes_float16(function, assumption)
    return {"assumption": facts, "takes_float64": exact, "takes_float16": half, "paths": paths}


def _of_cuts(function: Function, assumption: Assumption, refused: set[str]) -> dict[str, Any]:
    any_size = assumption.any_size or takes_other_points(function, assumption)
    return {"no_columns": "columns" not in refused, "any_size": any_size}


def _compared(assumption: Assumption, paths: list[dict[str, Any]]) -> list[str]:
    """The tensors of floating-point numbers that are nothing but compared with whole ones: integers may be meant."""
    uses: dict[str, list[bool]] = {}
    for node in (node for path in paths for node in path["forward"]["nodes"]):
        others = [argument["constant"] for argument in node["arguments"] if "constant" in argument]
        is_whole = node["op"] in ("eq", "ne") and all(math.isfinite(n) and n == int(n) for n in others)
        for argument in node["arguments"]:
            if argument.get("input") and argument["dtype"] == "float":
                uses.setdefault(argument["input"], []).append(is_whole)
    return [name for name, compared in uses.items() if all(compared)]


def _refuse_integers(assumption: Assumption) -> None:
    """Kernels of rows read numbers, beside truth values and places."""
    for name, dtype in assumption.dtypes.items():
        if dtype in INTEGERS.values():
            raise RefusedError(f"{name}, which is of {dtype}, beside numbers or reductions of rows", 2)
    if "float" not in assumption.dtypes.values():
        # Places beside masks are a guess that says little.
        progress = 0 if "int" in assumption.dtypes.values() else 3
        raise RefusedError("rows of which no tensor is of floating-point numbers", progress)


def _path(assumption: Assumption, function: Function) -> dict[str, Any]:
    samples = [assumption.sample(k) for k in range(4)]
    forward = merge([trace(function, sample, "forward") for sample in samples], samples, function.numbers)
    if assumption.recipe == "pointwise":
        _refuse_rows(forward)  # Before the gradient is traced, which takes longer.
    backward = None
    # A result of 8 bits has none that anybody means: PyTorch rounds what comes back through the cast to 8 bits.
    has_gradient = not any(output["dtype"] in FLOAT8.values() for output in forward["outputs"])
    has_gradient = has_gradient and any(output["dtype"] == "float" for output in forward["outputs"])
    has_gradient = has_gradient and "float" in assumption.dtypes.values()
    if has_gradient and function.is_derived and not assumption.composed:
        try:
            cuts = [Cut(**cut) for cut in forward.get("cuts", [])]
            backward = merge(
                [trace(function, sample, "backward", cuts) for sample in samples], samples, function.numbers
            )
        except RefusedError as refused:
            refused.is_of_gradient = True
            raise
    if assumption.recipe == "pointwise":
        _refuse_rows(backward)
        if _permutes(forward):
            raise RefusedError("a result of which the dimensions are arranged in another way", 1)
    elif any(output["kind"] == "scalar" for output in forward["outputs"]):
        raise RefusedError("a result that depends on no tensor", 3)
    elif any(output["kind"] == "column" for output in forward["outputs"]):
        raise RefusedError("a result that is neither of rows nor a number for each row", 3)
    elif any(node["op"] == "column_sum" for node in forward["nodes"]):  # Of gradients, Python adds them up.
        raise RefusedError("a sum over the rows in the function itself", 3)
    elif assumption.split and not _tells_groups(assumption, forward):
        raise RefusedError("groups of which nothing is computed", 1)
    elif assumption.dim and not any(_is_of_rows(node) for node in forward["nodes"]):
        raise RefusedError(f"{assumption.dim}, which is no dimension but decides over the path", 3)
    forward, backward = _checked(assumption, function, forward, backward)
    refuse_largest(function, assumption, forward)
    return {"flags": assumption.flags, "forward": forward, "backward": backward}


def _checked(
    assumption: Assumption, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The graphs, which are the function; with the epsilon of each dtype where they are not with that of float32."""
    try:
        _check(assumption, function, forward, backward)
        return forward, backward
    except RefusedError:
        general = with_epsilon(forward), with_epsilon(backward)
        if general == (forward, backward):
            raise
        _check(assumption, function, *general)
        return general


def _check(
    assumption: Assumption, function: Function, forward: dict[str, Any], backward: dict[str, Any] | None
) -> None:
    """Raises RefusedError where the graphs are not the function, and says why if dtypes tell."""
    try:
        check(function, assumption, forward, backward)
    except RefusedError as refused:
        if reason := depends_on_dtype(function, assumption.sample(0)):
            raise type(refused)(reason, refused.progress) from refused
        raise


def _tells_groups(assumption: Assumption, forward: dict[str, Any]) -> bool:
    """Whether groups are more than elements in another shape: something is computed of each, or given for each, or they
    are a dimension that comes elsewhere in a tensor."""
    is_of_rows = "row" in assumption.kinds.values() or any(node["kind"] == "row" for node in forward["nodes"])
    return is_of_rows or bool(assumption.orders or assumption.cuts) or _permutes(forward)


def _permutes(forward: dict[str, Any]) -> bool:
    return any("order" in output for output in forward["outputs"])


def _has_any_count(function: Function, assumption: Assumption, forward: dict[str, Any]) -> bool:
    """Whether a number that was taken for the groups' is none, because the function takes another number as well."""
    count = assumption.split.count
    if not isinstance(count, int):
        return False
    return agrees(function, replace(assumption, split=replace(assumption.split, count=count + 1)), forward)


def _note_copies(forward: dict[str, Any], are_contiguous: list[bool]) -> None:
    """Notes the permuted results that the function returns as contiguous copies."""
    for output, is_contiguous in zip(firsts(forward), are_contiguous, strict=True):
        output["copied"] = is_contiguous and "order" in output


def _note_fixed_dtypes(paths: list[dict[str, Any]], fixed: list[str | None]) -> None:
    """Notes the dtypes of results that do not follow the arguments'."""
    for path in paths:
        outputs = path["forward"]["outputs"]
        if any(fixed) and "cuts" in path["forward"]:
            raise RefusedError("a result of a dtype of its own, of a function that cuts or joins tensors", 3)
        for output, dtype in zip(outputs, fixed, strict=False):
            if dtype is not None:
                output["dtype"] = dtype


def _is_of_rows(node: dict[str, Any]) -> bool:
    return node["kind"] == "row" or node["op"].startswith("running_")


def _refuse_rows(*graphs: dict[str, Any] | None) -> None:
    for node in (node for graph in graphs if graph for node in graph["nodes"]):
        if node["kind"] not in ("element", "scalar") or node["op"].startswith(("column_sum", "running_")):
            kind = ReducesError if node["op"].startswith("row_") else RefusedError  # Places of a row are no reduction.
            raise kind(f"{node['op'].replace('_', ' ')}, which is not element by element", 1)
        if any(argument.get("scalar") in (COLUMNS, ROWS, BATCH) for argument in node["arguments"]):
            raise RefusedError("a number that depends on the sizes", 3)


def _signature(path: dict[str, Any]) -> Any:
    """What has to be the same for all paths: dtypes of the results, and which gradients there are."""
    results = [(output["dtype"], output["kind"]) for output in path["forward"]["outputs"]]
    return results, path["backward"] and [output is None for output in path["backward"]["outputs"]]
