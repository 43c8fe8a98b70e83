"""The gradient of a function with reductions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import parts, rows
from kernelgen.scaffold.formula.gradient_operator import GradientOperator, differentiated, entry_of, grads_of
from kernelgen.scaffold.formula.gradient_parts import parts_of_gradient, parts_of_grads
from kernelgen.scaffold.formula.graph import FormulaGraph, Name, Node, Value
from kernelgen.scaffold.formula.lines import free_name
from kernelgen.scaffold.formula.means import correct_means
from kernelgen.scaffold.formula.row_values import (
    accesses,
    graph_of_rows,
    inputs_of,
    inputs_of_rows,
    late,
    resident_threads,
    sums_resident_threads,
)
from kernelgen.scaffold.formula.saved_numbers import SavedNumber, saved_numbers
from kernelgen.scaffold.formula.saved_results import reading_results
from kernelgen.scaffold.formula.scalars import Scalars
from kernelgen.scaffold.formula.totals import take_totals
from kernelgen.scaffold.formula.values import (
    needed_flags,
    of_other_dtype,
    scalar_of,
    unchanged,
    value_of,
)


def backward(
    schema: Mapping[str, Any],
    path: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, str],
    part_names: Mapping[tuple[str, int], str],
    forward: FormulaGraph,
    computed: Scalars,
) -> tuple[dict[str, Any] | None, list[SavedNumber]]:
    """What the templates know of the gradient, an operator of its own, and the numbers that the forward saves for it.
    Notes in `computed` what it computes of scalars."""
    inputs = differentiated(path, tensors)
    if not inputs:
        return None, []
    operator = _operator(schema, path, tensors, scalars, results, parameters, inputs, None if part_names else forward)
    words, places = operator.words(), operator.places()
    given = _given(operator, results)
    read_by_kernel = [*given, *_own(places, tensors)]
    gradients = _gradients(operator.entry, inputs)
    result_of = {grad: results[i]["name"] for grad, i in operator.pairs()}
    names_of_parts = parts_of_gradient(operator.entry, read_by_kernel, gradients, part_names, result_of)
    graph = _graph_of(operator, parameters, names_of_parts)
    computed.avoid(words.values())
    own_scalars = [scalar_of(places[scalar["name"]], [path]) for scalar in scalars]
    computed.take(graph, {words[scalar["name"]]: scalar["cpp"] for scalar in scalars})
    of_formula = computed.of_formula(own_scalars, graph.names()) if computed.names() else None
    names = [*words.values(), *names_of_parts.values(), *(result["cpp"] for result in operator.entry["returns"])]
    names += computed.names()
    totals, terms = take_totals(graph, [*names, *parameters.values()])
    read = graph.names()
    parts.note_used(read_by_kernel, names_of_parts, read)
    written = parts.outputs(gradients, names_of_parts)
    _note_unchanged(gradients, graph, written, operator, results)
    operands = parts.operands(read_by_kernel, names_of_parts, read) if names_of_parts else read_by_kernel
    of_elements = [tensor for tensor in inputs if tensor["kind"] == "element"]
    summed = _summed(of_elements)
    facts = {
        "schema": operator.entry,
        "grads": given,
        "tensors": read_by_kernel,
        "scalars": own_scalars,
        **({"formula_scalars": of_formula} if of_formula is not None else {}),
        "gradients": gradients,
        "reads": operator.reads,
        "places": [tensor["place"] for tensor in inputs],
        **_kernel(graph, operands, written, (totals, terms), names, len(path["backward"]["nodes"]), summed),
    }
    if names_of_parts:
        facts |= {"operands": operands, "outputs": written, "summed_tensors": summed}
        facts["summed"] = _summed_of_parts(summed, of_elements)
    return facts, operator.saved


def _kernel(
    graph: FormulaGraph,
    operands: Sequence[Mapping[str, Any]],
    written: Sequence[Mapping[str, Any]],
    sums: tuple[Sequence[str], list[Value]],
    names: Sequence[str],
    operations: int,
    summed: int,
) -> dict[str, Any]:
    """The lines of a row, and what decides how its kernel is launched. `sums`: the names of the sums over all rows, and
    their terms."""
    totals, terms = sums
    kinds = [(output["cpp"], output["kind"]) for output in written]
    row_inputs = [*inputs_of_rows(operands), *((name, "total") for name in totals)]
    lines_of_rows = rows.lines(graph, inputs_of(operands), kinds, row_inputs, names)
    return {
        "operations": operations,
        "reductions": rows.reductions(lines_of_rows),
        "summed": summed,
        "late": late(graph, operands),
        "accesses": accesses(graph, operands),
        "resident": resident_threads(graph, operands, operations),
        "sums_resident": sums_resident_threads(graph, operands, summed.bit_count()),
        "lines": lines_of_rows,
        "holds": rows.holds(lines_of_rows),
        "totals": _backward_totals(graph, totals, terms, operands, names),
    }


@dataclass(frozen=True)
class _Operator(GradientOperator):
    """With the names of the results that it reads, at the places `reads`; the numbers that the forward saves for it;
    and its trace."""

    read_results: list[str]
    reads: list[int]
    saved: list[SavedNumber]
    traced: Mapping[str, Any]


def _operator(
    schema: Mapping[str, Any],
    path: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, str],
    inputs: Sequence[Mapping[str, Any]],
    forward: FormulaGraph | None,
) -> _Operator:
    """The operator, given what the graph of the forward saves, if there is one."""
    differentiable, grads = grads_of(schema, results)
    names_of_results = [free_name(result["name"], [*parameters, *grads]) for result in results]
    traced, reads = reading_results(path["backward"], path["forward"], names_of_results)
    read_results = [names_of_results[i] for i in reads]
    taken = {value[key] for value in (*results, *schema["arguments"]) for key in ("name", "cpp")}
    saved = _saved(traced, forward, parameters, names_of_results, taken.union(grads)) if forward is not None else []
    given = [*grads, *read_results, *(number.name for number in saved)]
    entry = entry_of(schema, tensors, scalars, given, inputs)
    return _Operator(entry, grads, differentiable, read_results, reads, saved, traced)


def _given(operator: _Operator, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What it is given of the forward: gradients, results and saved numbers."""
    places = operator.places()
    names, of_results = [*operator.grads, *operator.read_results], [*operator.differentiable, *operator.reads]
    of_forward = [
        parts.with_cut(value_of(places[name], _dtype_of_grad(results[i])), results[i].get("cut"))
        | {"kind": results[i]["kind"], "shape": "rows"}
        for name, i in zip(names, of_results, strict=True)
    ]
    saved = [value_of(places[n.name], "saved") | {"kind": n.kind, "shape": "rows"} for n in operator.saved]
    return [*of_forward, *saved]


def _own(places: Mapping[str, Mapping[str, Any]], tensors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The arguments of the forward."""
    return [
        parts.with_cut(value_of(places[tensor["name"]], tensor["dtype"]), tensor.get("cut"))
        | {key: tensor[key] for key in ("kind", "shape", "dims") if key in tensor}
        for tensor in tensors
    ]


def _gradients(entry: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        parts.with_cut(value_of(result, "float"), tensor.get("cut"))
        | {"of": tensor["name"], "needed": flag, "kind": tensor["kind"]}
        for result, tensor, flag in zip(entry["returns"], inputs, needed_flags(entry, inputs), strict=True)
    ]


def _graph_of(
    operator: _Operator, parameters: Mapping[str, str], names_of_parts: Mapping[tuple[str, int], str]
) -> FormulaGraph:
    """The graph of the gradient, which is given the saved numbers."""
    words = operator.words()
    own_names = {name: words.get(name, cpp) for name, cpp in parameters.items()}
    own_names |= {name: words[name] for name in operator.read_results} | names_of_parts
    of_grads = parts_of_grads(operator.differentiable, operator.grads, names_of_parts)
    named = {i: words[grad] for grad, i in operator.pairs()}
    graph = _graph(operator.traced, own_names, named | of_grads)
    graph.replace({n.index: Name(words[n.name], "float", n.kind) for n in operator.saved})
    correct_means(graph)
    return graph


def _note_unchanged(
    gradients: Sequence[dict[str, Any]],
    graph: FormulaGraph,
    written: Sequence[Mapping[str, Any]],
    operator: _Operator,
    results: Sequence[Mapping[str, Any]],
) -> None:
    """Notes for each gradient the given one that it equals, if there is one."""
    words = operator.words()
    same_as = of_other_dtype(unchanged([graph], [words[grad] for grad in operator.grads]), results)
    for gradient in gradients:
        place = next(i for i, output in enumerate(written) if output["tensor"] == gradient["cpp"])
        gradient["same_as"] = None if "cut" in gradient else same_as[place]


def _graph(traced: Mapping[str, Any], parameters: Mapping[Any, str], grads: Mapping[Any, str]) -> FormulaGraph:
    graph = graph_of_rows(traced, parameters, grads)
    graph.outputs = [_before_column_sum(output) for output in graph.outputs if output is not None]
    return graph


def _saved(
    traced: Mapping[str, Any],
    forward: FormulaGraph,
    parameters: Mapping[str, str],
    results: Sequence[str],
    taken: set[str],
) -> list[SavedNumber]:
    """The numbers that the forward saves: of a graph with the forward's names, whose nodes have the same indices as
    those of one with other names. `taken`: names of arguments, results and their gradients."""
    names = {name: f"result {name}" for name in results} | dict(parameters)
    draft = _graph(traced, names, {place: f"gradient {place}" for place in range(len(results))})
    return saved_numbers(draft, forward, set(parameters.values()), taken.union(results, parameters.values()))


def _dtype_of_grad(result: Mapping[str, Any]) -> str:
    """Of rows of float32, the kernel has tensors of float32 alone: _row_wise.py casts the others."""
    return "float" if result["kind"] == "element" else result["dtype"]


def _summed(inputs: Sequence[Mapping[str, Any]]) -> int:
    """A bit for each gradient that the kernel adds up over the rows, where the tensor is a vector."""
    return sum(1 << i for i, t in enumerate(inputs) if t["shape"] not in ("rows", "spread") and "cut" not in t)


def _summed_of_parts(summed: int, inputs: Sequence[Mapping[str, Any]]) -> int:
    """The bits of `_summed` by what a kernel writes: of a tensor that is cut, its parts."""
    bits = first = 0
    for i, tensor in enumerate(inputs):
        bits |= (summed >> i & 1) << first
        first += tensor["cut"]["parts"] if "cut" in tensor else 1
    return bits


def _backward_totals(
    graph: FormulaGraph,
    totals: Sequence[str],
    terms: list[Value],
    tensors: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> dict[str, Any] | None:
    """Sums over all rows that gradients depend on: the function of a row that adds to them, and what it reads."""
    if not totals:
        return None
    graph.outputs = terms
    read = graph.names()
    tensors = [{**tensor, "used": tensor["cpp"] in read} for tensor in tensors]
    kinds = [(name, "term") for name in totals]
    body = rows.lines(graph, inputs_of(tensors), kinds, inputs_of_rows(tensors), names)
    facts = {
        "late": late(graph, tensors),
        "accesses": accesses(graph, tensors),
        "reductions": rows.reductions(body),
    }
    return {"count": len(totals), "tensors": tensors, "lines": body, **facts}


def _before_column_sum(output: Value) -> Value:
    """The terms of a sum over the rows: the gradient of a vector, which is summed in Python."""
    if isinstance(output, Node) and output.op == "column_sum":
        return output.arguments[0]
    if output.kind == "column":
        raise KernelgenError("a gradient that is computed of a sum over the rows")
    return output
