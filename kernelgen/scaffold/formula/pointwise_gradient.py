"""The gradient of a pointwise function: an operator of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula import parts
from kernelgen.scaffold.formula.gradient_parts import parts_of_gradient, parts_of_grads
from kernelgen.scaffold.formula.graph import COORDINATES, Graph
from kernelgen.scaffold.formula.paths import body, exponent
from kernelgen.scaffold.formula.scalars import Scalars
from kernelgen.scaffold.formula.values import (
    FLOATING,
    coordinates,
    names_of_grads,
    names_read,
    needed_flags,
    of_other_dtype,
    scalar_of,
    schema_text,
    unchanged,
    value_of,
    with_free_names,
)
from kernelgen.scaffold.schema.parser import parse


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
    if paths[0]["backward"] is None:
        return None
    floating = [tensor for tensor in tensors if tensor["dtype"] == "float"]
    outputs = [output for output, _ in parts.first_of_results(paths[0]["backward"])]
    inputs = [tensor for tensor, output in zip(floating, outputs, strict=True) if output is not None]
    if not inputs:
        return None
    differentiable = [i for i, result in enumerate(results) if result["dtype"] in FLOATING]
    grads = names_of_grads(results, differentiable, schema["arguments"])
    entry = with_free_names(parse(schema_text(schema, tensors, scalars, grads, inputs)).entry())
    words = {a["name"]: a["cpp"] for a in entry["arguments"]}
    parameters = {name: words[name] for name in parameters}
    named = dict(zip(differentiable, (words[grad] for grad in grads), strict=True))
    places_of = {argument["name"]: argument for argument in entry["arguments"]}
    dtype_of = {tensor["name"]: tensor["dtype"] for tensor in tensors}
    dtype_of_grad = {grad: results[i]["dtype"] for grad, i in zip(grads, differentiable, strict=True)}
    cut_of = {tensor["name"]: tensor.get("cut") for tensor in tensors}
    cut_of |= {grad: results[i].get("cut") for grad, i in zip(grads, differentiable, strict=True)}
    read_by_kernel = [
        parts.with_cut(value_of(places_of[name], (dtype_of | dtype_of_grad)[name]), cut_of[name])
        for name in (*grads, *dtype_of)
    ]
    gradients = [
        parts.with_cut(value_of(result, "float") | {"of": tensor["name"]}, cut_of[tensor["name"]])
        for result, tensor in zip(entry["returns"], inputs, strict=True)
    ]
    result_of = {grad: results[i]["name"] for grad, i in zip(grads, differentiable, strict=True)}
    names_of_parts = parts_of_gradient(entry, read_by_kernel, gradients, part_names, result_of)
    of_grads = parts_of_grads(differentiable, grads, names_of_parts)
    graphs = []
    for path in paths:
        graph = Graph(path["backward"], {**parameters, **names_of_parts}, {**named, **of_grads})
        graph.outputs = [value for value in graph.outputs if value is not None]
        graphs.append((path["flags"], graph))
    exponent_of_backward = exponent(graph for _, graph in graphs)
    own_scalars = [scalar_of(places_of[scalar["name"]], paths) for scalar in scalars]
    for _, graph in graphs:
        computed.take(graph, {words[scalar["name"]]: scalar["cpp"] for scalar in scalars})
    read = names_read(graph for _, graph in graphs)
    written = parts.outputs(gradients, names_of_parts)
    same_as = of_other_dtype(unchanged([graph for _, graph in graphs], list(named.values())), results)
    copies = _copies([graph for _, graph in graphs])
    for gradient, flag in zip(gradients, needed_flags(entry, inputs), strict=True):
        same = copy = None
        if "cut" not in gradient:
            place = next(i for i, output in enumerate(written) if output["tensor"] == gradient["cpp"])
            same, copy = same_as[place], parts.uncut(copies[place], written)
        gradient |= {"needed": flag, "same_as": same, "copy_of": copy}
    for tensor in read_by_kernel:
        own = [name for (of, _), name in names_of_parts.items() if of == tensor["name"]] or [tensor["cpp"]]
        tensor["used"] = any(name in read for name in own)
    operands = parts.operands(read_by_kernel, names_of_parts, read) if "cuts" in paths[0]["backward"] else None
    _note_needs(operands or read_by_kernel, [graph for _, graph in graphs], written, gradients)
    names = [
        *COORDINATES.values(),
        *words.values(),
        *(gradient["cpp"] for gradient in gradients),
        *names_of_parts.values(),
        *computed.names(),
    ]
    facts = {
        "schema": entry,
        "grads": [
            {key: tensor[key] for key in tensor if key != "used"} | {"kind": "element", "used": tensor["used"]}
            for tensor in read_by_kernel[: len(grads)]
        ],
        "tensors": read_by_kernel,
        "scalars": own_scalars,
        "gradients": gradients,
        "places": [tensor["place"] for tensor in inputs],
        "exponent": exponent_of_backward,
        "operations": max(len(path["backward"]["nodes"]) for path in paths),
        "lines": body(graphs, parameters, names, written),
    }
    facts["coordinates"] = coordinates(read)
    if computed.names():
        facts["formula_scalars"] = computed.of_formula(own_scalars, read)
    if operands is not None:
        facts |= {"operands": operands, "outputs": written}
    return facts


def _note_needs(
    operands: Sequence[dict[str, Any]],
    graphs: Sequence[Graph],
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


def _copies(graphs: Sequence[Graph]) -> list[int | None]:
    """For each gradient, the place of the first one that is the same on every path; None where it is itself."""
    values = list(zip(*(graph.outputs for graph in graphs), strict=True))
    first = [values.index(value) for value in values]
    return [place if place != i else None for i, place in enumerate(first)]
