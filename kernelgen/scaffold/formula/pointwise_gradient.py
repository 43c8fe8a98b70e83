"""The gradient of a pointwise function: an operator of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula import neighbour_reads, neighbours, parts
from kernelgen.scaffold.formula.gradient_operator import GradientOperator, differentiated, entry_of, grads_of
from kernelgen.scaffold.formula.gradient_parts import parts_of_gradient, parts_of_grads
from kernelgen.scaffold.formula.graph import COORDINATES, FormulaGraph
from kernelgen.scaffold.formula.paths import body, exponent
from kernelgen.scaffold.formula.scalars import Scalars
from kernelgen.scaffold.formula.values import (
    TAKEN,
    coordinates,
    names_read,
    needed_flags,
    of_other_dtype,
    scalar_of,
    unchanged,
    value_of,
)


def backward(
    schema: Mapping[str, Any],
    paths: Sequence[Mapping[str, Any]],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, str],
    part_names: Mapping[tuple[str, int], str],
    computed: Scalars,
) -> dict[str, Any] | None:
    """The gradient: an operator of its own, whose results are as large as those of the op. Notes in `computed` what it
    computes of scalars."""
    inputs = differentiated(paths[0], tensors)
    if not inputs:
        return None
    differentiable, grads = grads_of(schema, results)
    operator = GradientOperator(entry_of(schema, tensors, scalars, grads, inputs), grads, differentiable)
    words, places = operator.words(), operator.places()
    read_by_kernel, gradients = _given(operator, tensors, results), _gradients(operator.entry, inputs)
    result_of = {grad: results[i]["name"] for grad, i in operator.pairs()}
    names_of_parts = parts_of_gradient(operator.entry, read_by_kernel, gradients, part_names, result_of)
    parameters = {name: words[name] for name in parameters}
    read_at = _neighbours(paths, operator, parameters, gradients)
    graphs = _graphs(paths, operator, parameters, names_of_parts, read_at)
    every = [graph for _, graph in graphs]
    exponent_of_backward = exponent(every)
    own_scalars = [scalar_of(places[scalar["name"]], paths) for scalar in scalars]
    for graph in every:
        computed.take(graph, {words[scalar["name"]]: scalar["cpp"] for scalar in scalars})
    read, written = names_read(every), parts.outputs(gradients, names_of_parts)
    _note_unchanged(gradients, every, written, operator, results, inputs)
    of_tensors = {(_tensor(operator, of), distances): name for (of, distances), name in read_at.items()}
    parts.note_used(read_by_kernel, names_of_parts | of_tensors, read)
    operands = parts.operands(read_by_kernel, names_of_parts, read) if "cuts" in paths[0]["backward"] else None
    shifted = None
    if (border := paths[0]["forward"].get("border")) is not None:
        shifted = neighbour_reads.reads(read_by_kernel, of_tensors, read, operator.grads if min(border) < 0 else ())
    _note_needs(operands or shifted or read_by_kernel, every, written, gradients)
    names = [
        *COORDINATES.values(),
        *words.values(),
        *(gradient["cpp"] for gradient in gradients),
        *names_of_parts.values(),
        *computed.names(),
    ]
    facts = {
        "schema": operator.entry,
        "grads": [
            {key: tensor[key] for key in tensor if key != "used"} | {"kind": "element", "used": tensor["used"]}
            for tensor in read_by_kernel[: len(operator.grads)]
        ],
        "tensors": read_by_kernel,
        "scalars": own_scalars,
        "gradients": gradients,
        "places": [tensor["place"] for tensor in inputs],
        "exponent": exponent_of_backward,
        "operations": max(len(path["backward"]["nodes"]) for path in paths),
        "lines": body(graphs, parameters, names, written),
        "coordinates": coordinates(read),
    }
    if computed.names():
        facts["formula_scalars"] = computed.of_formula(own_scalars, read)
    if shifted is not None:
        facts |= {"shifted": shifted, "bounded": neighbour_reads.tensors_of(shifted)}
        facts |= {"coordinates": neighbours.conditions(read)}
    if operands is not None:
        facts |= {"operands": operands, "outputs": written}
    return facts


def _given(
    operator: GradientOperator, tensors: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What it is given of the forward: gradients of results, and the arguments."""
    places, of_results = operator.places(), [(grad, results[i]) for grad, i in operator.pairs()]
    own = [(tensor["name"], tensor) for tensor in tensors]
    return [
        parts.with_cut(value_of(places[name], value["dtype"]), value.get("cut")) for name, value in (*of_results, *own)
    ]


def _gradients(entry: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        parts.with_cut(value_of(result, "float") | {"of": tensor["name"]}, tensor.get("cut"))
        for result, tensor in zip(entry["returns"], inputs, strict=True)
    ]


def _graphs(
    paths: Sequence[Mapping[str, Any]],
    operator: GradientOperator,
    parameters: Mapping[str, str],
    names_of_parts: Mapping[tuple[str, int], str],
    read_at: Mapping[neighbours.Key, str],
) -> list[tuple[Mapping[str, bool], FormulaGraph]]:
    """The graph of the gradient on each path."""
    words = operator.words()
    named = {i: words[grad] for grad, i in operator.pairs()}
    of_grads = parts_of_grads(operator.differentiable, operator.grads, names_of_parts)
    graphs = []
    for path in paths:
        names = {**parameters, **names_of_parts, **read_at}
        graph = FormulaGraph(path["backward"], names, {**named, **of_grads, **read_at})
        graph.outputs = [value for value in graph.outputs if value is not None]
        graphs.append((path["flags"], graph))
    return graphs


def _neighbours(
    paths: Sequence[Mapping[str, Any]],
    operator: GradientOperator,
    parameters: Mapping[str, str],
    gradients: Sequence[Mapping[str, Any]],
) -> dict[neighbours.Key, str]:
    """The names of the neighbours that the gradient reads, of gradients of results by the results' places."""
    words = operator.words()
    cpp = {i: words[grad] for grad, i in operator.pairs()} | dict(parameters)
    taken = [*TAKEN, *words.values(), *(gradient["cpp"] for gradient in gradients)]
    return neighbour_reads.names([path["backward"] for path in paths], cpp, taken)


def _tensor(operator: GradientOperator, of: int | str) -> str:
    """The name of a tensor of the gradient, by what a graph calls it."""
    return {i: grad for grad, i in operator.pairs()}.get(of, of)


def _note_unchanged(
    gradients: Sequence[dict[str, Any]],
    graphs: Sequence[FormulaGraph],
    written: Sequence[Mapping[str, Any]],
    operator: GradientOperator,
    results: Sequence[Mapping[str, Any]],
    inputs: Sequence[Mapping[str, Any]],
) -> None:
    """Notes for each gradient its flag, the given one that it equals, and an earlier one, if there are such."""
    words = operator.words()
    same_as = of_other_dtype(unchanged(graphs, [words[grad] for grad in operator.grads]), results)
    copies = _copies(graphs)
    for gradient, flag in zip(gradients, needed_flags(operator.entry, inputs), strict=True):
        same = copy = None
        if "cut" not in gradient:
            place = next(i for i, output in enumerate(written) if output["tensor"] == gradient["cpp"])
            same, copy = same_as[place], parts.uncut(copies[place], written)
        gradient |= {"needed": flag, "same_as": same, "copy_of": copy}


def _note_needs(
    operands: Sequence[dict[str, Any]],
    graphs: Sequence[FormulaGraph],
    written: Sequence[Mapping[str, Any]],
    gradients: Sequence[Mapping[str, Any]],
) -> None:
    """Notes `needed_by` in operands that not all gradients read: the flags of those that do."""
    flags = {gradient["cpp"]: gradient["needed"] for gradient in gradients}
    readers: dict[str, set[str]] = {}
    for graph in graphs:
        for output, value in zip(written, graph.outputs, strict=True):
            for name in graph.names_of(value):
                readers.setdefault(name, set()).add(output.get("tensor", output["cpp"]))
    for operand in operands:
        together = [o for o in operands if "turns" in operand and o.get("turns") == operand["turns"]] or [operand]
        of_it = set().union(*(readers.get(o["cpp"], set()) for o in together))
        if of_it and len(of_it) < len(flags):
            operand["needed_by"] = [flags[gradient] for gradient in flags if gradient in of_it]


def _copies(graphs: Sequence[FormulaGraph]) -> list[int | None]:
    """For each gradient, the place of the first one that is the same on every path; None where it is itself."""
    values = list(zip(*(graph.outputs for graph in graphs), strict=True))
    first = [values.index(value) for value in values]
    return [place if place != i else None for i, place in enumerate(first)]
