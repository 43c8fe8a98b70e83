"""What recipes know of a function with reductions of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import parts, rows
from kernelgen.scaffold.formula.expressions import header_of
from kernelgen.scaffold.formula.graph import FormulaGraph
from kernelgen.scaffold.formula.means import correct_means
from kernelgen.scaffold.formula.row_gradient import backward
from kernelgen.scaffold.formula.row_values import (
    accesses,
    graph_of_rows,
    inputs_of,
    inputs_of_rows,
    late,
    of_rows,
    refuse_rows_beside_parts,
    resident_threads,
)
from kernelgen.scaffold.formula.saved_numbers import SavedNumber
from kernelgen.scaffold.formula.scalars import Scalars
from kernelgen.scaffold.formula.totals import depends_on_totals, take_totals
from kernelgen.scaffold.formula.values import (
    TAKEN,
    drawn_between,
    dtypes_of,
    named_parts,
    plain,
    scalar_of,
    tested,
    value_of,
    with_free_names,
)
from kernelgen.scaffold.schema.parser import parse

# The elements of a row, the rows, and the first size, among the scalars of a trace.
COLUMNS, ROWS, BATCH = "row size", "row count", "batch size"
# What they are called in a formula.
_OF_ROWS = {COLUMNS: "columns", ROWS: "row_count", BATCH: "batch"}
# The kinds and dtypes of results of rows.
_RESULTS = (
    ("element", "float"),
    ("element", "float32"),
    ("element", "int8"),
    ("element", "uint8"),
    ("element", "float8_e4m3fn"),
    ("element", "float8_e5m2"),
    ("row", "float"),
    ("row", "float32"),
    ("row", "int"),
    ("row", "bool"),
    ("total", "float"),
    ("total", "float32"),
)


def row_wise(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a function with reductions of rows.

    Raises:
        KernelgenError: a result is neither of rows nor a number for each row.
    """
    path, assumption = traced["paths"][0], traced["assumption"]
    outputs = parts.first_of_results(path["forward"])
    if any((output["kind"], output["dtype"]) not in _RESULTS for output, _ in outputs):
        raise KernelgenError("a result that is neither of rows nor a number for each row")
    tensors, results = _tensors(schema, assumption), _results(schema, outputs)
    part_names = named_parts(schema, path["forward"], [*tensors, *results])
    parameters = {a["name"]: a["cpp"] for a in schema["arguments"]} | _OF_ROWS
    scalars = [scalar_of(a, traced["paths"]) for a in schema["arguments"] if a["kind"] == "other"]
    names = [*parameters.values(), *part_names.values(), *(result["cpp"] for result in results)]
    computed = Scalars([scalar["cpp"] for scalar in scalars], [*TAKEN, *names])
    graph = graph_of_rows(path["forward"], parameters | part_names)
    gradient, saved, reason = None, [], None
    try:
        gradient, saved = backward(schema, path, tensors, scalars, results, parameters, part_names, graph, computed)
    except KernelgenError as error:
        reason = str(error)
    operator = _operator(schema, saved)
    saved_results = _saved(operator, saved)
    graph.outputs += [number.of_forward for number in saved]
    correct_means(graph)
    computed.take(graph)
    names += computed.names()
    read = graph.names()
    _note_reads(tensors, part_names, graph, assumption["refused_places"])
    is_cut = "cuts" in assumption
    if is_cut:
        refuse_rows_beside_parts(tensors)
    operands = parts.operands(tensors, part_names, read) if is_cut else tensors
    written = parts.outputs(results, part_names)
    kinds = [(output["cpp"], _kind(output)) for output in [*written, *saved_results]]
    totals = _forward_totals(graph, kinds, names)
    forward = rows.lines(graph, inputs_of(operands), kinds, inputs_of_rows(operands), names)
    facts = {
        **_sizes(schema, traced),
        "tensors": tensors,
        "scalars": scalars,
        "results": results,
        "forward": forward,
        "holds": rows.holds(forward),
        "reductions": rows.reductions(forward),
        "late": late(graph, operands),
        "accesses": accesses(graph, operands),
        "operations": len(path["forward"]["nodes"]),
        "resident": resident_threads(graph, operands, len(path["forward"]["nodes"])),
        "totals": totals,
        **_derivatives(assumption),
        **({"operands": operands, "outputs": written} if is_cut else {}),
        **({"operator": operator, "saved": saved_results} if saved else {}),
        "backward": gradient,
    }
    if reason is not None:
        facts["composed"] = reason
    computed.note(facts, read)
    return plain(facts | header_of(_every_line(facts)))


def _tensors(schema: Mapping[str, Any], assumption: Mapping[str, Any]) -> list[dict[str, Any]]:
    cuts = assumption.get("cuts") or {}
    return [
        parts.with_cut(of_rows(argument, assumption), cuts.get(argument["name"]))
        | {"place": place, "between": drawn_between(argument["name"], assumption)}
        for place, argument in enumerate(schema["arguments"])
        if argument["kind"] == "tensor"
    ]


def _results(schema: Mapping[str, Any], outputs: Sequence[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [
        parts.with_cut(value_of(result, output["dtype"]), cut)
        | {"kind": output["kind"], "keeps": output["keeps"], "needed": None}
        for result, (output, cut) in zip(schema["returns"], outputs, strict=True)
    ]


def _note_reads(
    tensors: Sequence[dict[str, Any]],
    part_names: Mapping[tuple[str, int], str],
    graph: FormulaGraph,
    refused_places: Sequence[str],
) -> None:
    """Notes in each tensor whether the formula reads it, and whether it holds places that rows refuse to lack."""
    parts.note_used(tensors, part_names, graph.names())
    checked = graph.checked_places()
    for tensor in tensors:
        tensor["checked"] = tensor["name"] in refused_places and tensor["cpp"] in checked


def _sizes(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """The dtypes and the rows that the op takes."""
    assumption, dtypes = traced["assumption"], dtypes_of(traced)
    return {
        "dtypes": dtypes,
        "tested": tested(assumption, dtypes),
        "short_rows": assumption["short_rows"],
        "no_rows": assumption["no_rows"],
        "rows": _rows(schema, assumption),
    }


def _derivatives(assumption: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the reference's own derivatives."""
    facts = {key: assumption[key] for key in ("composed", "twice", "derivative")}
    facts |= {"constants": assumption["constants"]} if assumption["constants"] else {}
    return facts | ({"underived": assumption["underived"]} if assumption.get("underived") else {})


def _every_line(facts: Mapping[str, Any]) -> list[str]:
    """The lines of C++ of all that is computed."""
    of_backward = facts["backward"] or {"lines": [], "totals": None}
    of_totals = [totals for totals in (facts["totals"], of_backward["totals"]) if totals]
    return [*facts["forward"], *of_backward["lines"], *(line for totals in of_totals for line in totals["lines"])]


def _operator(schema: Mapping[str, Any], saved: Sequence[SavedNumber]) -> dict[str, Any]:
    """The schema's entry of the operator that returns the saved numbers after the function's results."""
    taken = schema["text"].rpartition(" -> ")[0]
    returned = [f"Tensor {name}" for name in (*(r["name"] for r in schema["returns"]), *(n.name for n in saved))]
    return with_free_names(parse(f"{taken} -> ({', '.join(returned)})").entry())


def _saved(operator: Mapping[str, Any], saved: Sequence[SavedNumber]) -> list[dict[str, Any]]:
    """The saved numbers as further results."""
    returns = operator["returns"][len(operator["returns"]) - len(saved) :]
    return [
        value_of(result, "saved") | {"kind": number.kind, "keeps": False, "needed": None}
        for result, number in zip(returns, saved, strict=True)
    ]


def _kind(result: Mapping[str, Any]) -> str:
    """What a result is, as lines of a row know it: `wide` of one that is of float32 whatever the elements are, `saved`
    of one that the gradient alone needs."""
    if result["dtype"] == "saved":
        return f"saved {result['kind']}"
    is_wide = result["dtype"] == "float32" and result["kind"] != "element"
    return f"wide {result['kind']}" if is_wide else result["kind"]


def _forward_totals(graph: FormulaGraph, kinds: list[tuple[str, str]], names: Sequence[str]) -> dict[str, Any] | None:
    """Sums over all rows in results: how many there are, and the lines that compute results of them. In `graph` and
    `kinds`, the results that depend on such sums give way to what each row adds to them."""
    totals, terms = take_totals(graph, names)
    pairs = list(zip(kinds, graph.outputs, strict=True))
    if any(not kind.endswith("total") and depends_on_totals(value) for (_, kind), value in pairs):
        raise KernelgenError("a result of rows that depends on a sum over all rows")
    if not totals:
        return None
    of_totals = [(result, value) for result, value in pairs if result[1].endswith("total")]
    graph.outputs = [value for _, value in of_totals]
    results = [result for result, _ in of_totals]
    lines_of_totals = rows.lines(graph, [], results, [(name, "total") for name in totals], names)
    finish = [re.sub(r"\brow\.", "totals.", line) for line in lines_of_totals]
    kept = [(result, value) for result, value in pairs if not result[1].endswith("total")]
    kinds[:] = [*(result for result, _ in kept), *((name, "term") for name in totals)]
    graph.outputs = [*(value for _, value in kept), *terms]
    return {"count": len(totals), "results": len(results), "lines": finish}


def _rows(schema: Mapping[str, Any], assumption: Mapping[str, Any]) -> dict[str, Any]:
    """The dimensions of a row: as C++ of the op's first tensor, as Python of a rank, in words, and the least and the
    most dimensions of a tensor; tests draw tensors of `drawn` dimensions and more."""
    form, (least, most) = assumption["rows"], assumption["ranks"]
    first = next(a for a in schema["arguments"] if a["kind"] == "tensor")["cpp"]
    text = {"least": least, "most": most, "argument": None, "like": None, "drawn": least}
    text |= {"planes": "square" in assumption, "square": assumption.get("square", False)}
    if "like" in form:
        like = next(a for a in schema["arguments"] if a["name"] == form["like"])
        text |= {"cpp": f"dimensions_from({first}.dim() - {like['cpp']}.dim(), {first})", "python": "(-1,)"}
        return text | {"like": like["name"], "words": f"as many of the last dimensions as {like['name']} has"}
    if "argument" in form:
        argument = next(a for a in schema["arguments"] if a["name"] == form["argument"])
        dim = int(argument["sample"])
        text |= {"cpp": f"{{{argument['cpp']}}}", "python": f"({dim},)", "argument": argument["name"]}
        return text | {"words": f"the dimension {argument['name']}", "drawn": max(least, dim + 1, -dim)}
    if "from" in form:
        dim = form["from"]
        words = "all dimensions" if dim == 0 else f"the dimensions from {dim} on"
        return text | {"cpp": f"dimensions_from({dim}, {first})", "python": f"range({dim}, rank)", "words": words}
    if "but" in form:
        dim = form["but"]
        python = f"(dim for dim in range(rank) if dim != {dim})"
        return text | {"cpp": f"dimensions_but({dim}, {first})", "python": python, "words": f"all dimensions but {dim}"}
    dims = form["dims"]
    listed = ", ".join(map(str, dims))
    of_last = {(-1,): "the last dimension", (-2, -1): "the last two dimensions", (-3, -2, -1): "the last 3 dimensions"}
    words = of_last.get(tuple(dims), f"dimension {listed}" if len(dims) == 1 else f"the dimensions {listed}")
    # Tensors of several rows, where a row takes more than one dimension.
    several = max(least, len(dims) + 1)
    drawn = least if len(dims) == 1 else min(several, most or several)
    python = f"({listed}{',' if len(dims) == 1 else ''})"
    return text | {"cpp": f"{{{listed}}}", "python": python, "words": words, "drawn": drawn}
