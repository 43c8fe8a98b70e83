"""What recipes know of a function that was traced to pointwise operators alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import neighbour_reads, neighbours, parts
from kernelgen.scaffold.formula.expressions import INTEGERS, header_of
from kernelgen.scaffold.formula.graph import COORDINATES, FormulaGraph
from kernelgen.scaffold.formula.paths import body, exponent
from kernelgen.scaffold.formula.pointwise_gradient import backward
from kernelgen.scaffold.formula.scalars import Scalars
from kernelgen.scaffold.formula.values import (
    TAKEN,
    coordinates,
    drawn_between,
    dtypes_of,
    named_parts,
    names_read,
    plain,
    scalar_of,
    tested,
    value_of,
)


def pointwise(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """The formula of a function of this schema (its entry) that was traced to pointwise operators alone.

    Raises:
        KernelgenError: a result that is joined of parts is not of floating-point numbers.
    """
    assumption, outputs = traced["assumption"], parts.first_of_results(traced["paths"][0]["forward"])
    tensors = _tensors(schema, assumption)
    results = [
        parts.with_cut(value_of(result, output["dtype"]) | {"of": None}, cut)
        for result, (output, cut) in zip(schema["returns"], outputs, strict=True)
    ]
    if any("cut" in result and result["dtype"] == "bool" for result in results):
        raise KernelgenError("a result that is joined of parts and of truth values")
    part_names = named_parts(schema, traced["paths"][0]["forward"], [*tensors, *results])
    arguments = {a["name"]: a["cpp"] for a in schema["arguments"]}
    parameters = arguments | part_names
    taken = [*TAKEN, *arguments.values(), *(result["cpp"] for result in results)]
    read_at = neighbour_reads.names([path["forward"] for path in traced["paths"]], arguments, taken)
    parameters |= read_at
    graphs = [(path["flags"], FormulaGraph(path["forward"], parameters)) for path in traced["paths"]]
    read = names_read(graph for _, graph in graphs)
    parts.note_used(tensors, part_names | read_at, read)
    scalars = [scalar_of(a, traced["paths"]) for a in schema["arguments"] if a["kind"] == "other"]
    written = parts.outputs(results, part_names)
    names = [
        *COORDINATES.values(),
        *parameters.values(),
        *(result["cpp"] for result in results),
        *(output["cpp"] for output in written),
    ]
    exponent_of_forward = exponent(graph for _, graph in graphs)
    computed = Scalars([scalar["cpp"] for scalar in scalars], [*TAKEN, *names])
    for _, graph in graphs:
        computed.take(graph)
    forward = body(graphs, arguments, [*names, *computed.names()], written)
    facts = {
        "dtypes": dtypes_of(traced) if any(tensor["dtype"] == "float" for tensor in tensors) else ["float32"],
        **({"tested": tested(assumption, dtypes_of(traced))} if assumption["wide_alone"] else {}),
        "broadcasts": assumption["broadcasts"],
        "tensors": tensors,
        "scalars": scalars,
        "results": results,
        "forward": forward,
        "exponent": exponent_of_forward,
        "operations": max(len(path["forward"]["nodes"]) for path in traced["paths"]),
        "composed": assumption["composed"],
        "twice": assumption["twice"],
        "derivative": assumption["derivative"],
        **({"constants": assumption["constants"]} if assumption["constants"] else {}),
        **({"underived": assumption["underived"]} if assumption.get("underived") else {}),
        "backward": backward(schema, traced["paths"], tensors, scalars, results, arguments, part_names, computed),
    }
    computed.note(facts, names_read(graph for _, graph in graphs))
    if any(node.dtype in INTEGERS and not node.op.startswith("to_") for _, graph in graphs for node in graph.nodes()):
        facts["integers"] = True
    facts |= header_of([*forward, *(facts["backward"] or {"lines": []})["lines"]])
    if "square" in assumption:
        facts |= {"square": assumption["square"], "coordinates": coordinates(read)}
    if "neighbours" in assumption:
        facts |= {"square": False, "coordinates": neighbours.conditions(read), "neighbours": assumption["neighbours"]}
        is_smaller = max(assumption["neighbours"]["border"]) > 0
        shifted = neighbour_reads.reads(tensors, read_at, read, arguments if is_smaller else ())
        facts |= {"shifted": shifted, "bounded": neighbour_reads.tensors_of(shifted)}
    if "cuts" in assumption:
        facts |= {"operands": parts.operands(tensors, part_names, read), "outputs": written}
        facts |= {key: assumption[key] for key in ("no_columns", "no_rows", "exact")}
        facts |= {"matrices": True} if assumption.get("matrices") else {}
    return plain(facts)


def _tensors(schema: Mapping[str, Any], assumption: Mapping[str, Any]) -> list[dict[str, Any]]:
    dtypes, cuts, numbers = assumption["dtypes"], assumption.get("cuts") or {}, assumption.get("numbers", ())
    return [
        parts.with_cut(value_of(argument, dtypes[argument["name"]]), cuts.get(argument["name"]))
        | {"place": place, "between": drawn_between(argument["name"], assumption)}
        | ({"dropped": True} if argument["name"] in numbers else {})
        for place, argument in enumerate(schema["arguments"])
        if argument["kind"] == "tensor"
    ]
