"""Gradients that read a result of the forward, in place of the operators that compute it again.

PyTorch's own derivative of softmax does so (`result` in its derivatives.yaml). A result is rounded to the dtype of the
tensors. A gradient reads it only where it is linear in it, as it is in the incoming gradient: the rounding of one then
weighs as much as that of the other. Where a gradient has its square or its exponential, as PyTorch's derivatives of
tanh and log_softmax do, the rounding would grow, so it computes in float32 what it needs. And it reads a result only
where it is left with fewer reductions: the bytes are the same where it reads the result in place of an input, and a
tensor more is worth two reductions less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Traced = Mapping[str, Any]

# The operators that are linear in some of their arguments, and which of these may depend on the result.
_LINEAR = {"mul": (0, 1), "div": (0,), "neg": (0,), "add": (0, 1), "sub": (0, 1), "where": (1, 2), "row_sum": (0,)}


def reading_results(backward: Traced, forward: Traced, names: Sequence[str]) -> tuple[Traced, list[int]]:
    """A traced gradient that reads results where it gains by it, and the places of these results.

    Args:
        backward, forward: the graphs of one path, as kernelgen/worker/trace/graph.py describes them.
        names: what the results are called as inputs of the gradient.
    """
    if "cuts" in forward:  # Results are known by their parts.
        return backward, []
    values: dict[Any, int] = {}
    of_forward, of_backward = _numbers(forward, values), _numbers(backward, values)
    read = []
    for place, output in enumerate(forward["outputs"]):
        if output["kind"] != "element" or output["dtype"] != "float" or "node" not in output:
            continue
        result = {"input": names[place], "dtype": "float", "kind": "element"}
        same = {node for node, number in enumerate(of_backward) if number == of_forward[output["node"]]}
        replaced = _with_input(backward, same, result)
        reads_more = _inputs(replaced) - _inputs(backward)
        if _is_linear(replaced, result) and _reductions(replaced) + reads_more < _reductions(backward):
            backward = replaced
            read.append(place)
    return backward, read


def _numbers(graph: Traced, values: dict[Any, int]) -> list[int]:
    """A number for the value of each node: the same for nodes, of other graphs too, that compute the same."""
    numbers: list[int] = []
    for node in graph["nodes"]:
        arguments = [
            tuple(sorted((key, numbers[value] if key == "node" else value) for key, value in argument.items()))
            for argument in map(_value, node["arguments"])
        ]
        key = (node["op"], node["dtype"], node["kind"], *arguments)
        numbers.append(values.setdefault(key, len(values)))
    return numbers


def _value(argument: Traced) -> dict[str, Any]:
    """An argument without what becomes of it later."""
    return {key: value for key, value in argument.items() if key != "summed"}


def _with_input(graph: Traced, nodes: set[int], label: Traced) -> Traced:
    """The graph with an input in place of nodes."""

    def replaced(argument: Traced | None) -> Traced | None:
        is_plain = argument is not None and not argument.get("turned")
        return label if is_plain and argument.get("node") in nodes else argument

    rest = [{**node, "arguments": list(map(replaced, node["arguments"]))} for node in graph["nodes"]]
    return {**graph, "nodes": rest, "outputs": list(map(replaced, graph["outputs"]))}


def _needed(graph: Traced) -> list[Traced]:
    """The nodes that the outputs need."""
    reached: set[int] = set()
    pending = [output for output in graph["outputs"] if output is not None]
    while pending:
        node = pending.pop().get("node")
        if node is not None and node not in reached:
            reached.add(node)
            pending += graph["nodes"][node]["arguments"]
    return [graph["nodes"][node] for node in sorted(reached)]


def _is_linear(graph: Traced, label: Traced) -> bool:
    """Whether the graph reads an input, and is linear in each of its elements and in the incoming gradients at once; a
    sum of a row is a number of its own, as that of all others hardly depends on one."""
    needed = {id(node) for node in _needed(graph)}
    of_input: set[int] = set()
    of_gradients: set[int] = set()
    reads = False
    for index, node in enumerate(graph["nodes"]):
        if id(node) not in needed:
            continue
        depends = [argument == label or argument.get("node") in of_input for argument in node["arguments"]]
        has_gradient = ["grad" in argument or argument.get("node") in of_gradients for argument in node["arguments"]]
        if any(has_gradient):
            of_gradients.add(index)
        if not any(depends):
            continue
        reads = reads or label in node["arguments"]
        # What is added to a term with the input has to be as uncertain: 1 - out has lost digits of out.
        is_added = node["op"] in ("add", "sub")
        grows = is_added and not all(d or g for d, g in zip(depends, has_gradient, strict=True))
        is_square = node["op"] == "mul" and all(depends)
        places = {place for place, value in enumerate(depends) if value}
        if grows or is_square or not places <= set(_LINEAR.get(node["op"], ())):
            return False
        if node["kind"] == "element":
            of_input.add(index)
    return reads


def _inputs(graph: Traced) -> int:
    """How many tensors of rows the outputs need."""
    read = {
        (argument.get("input"), argument.get("part"))
        for node in _needed(graph)
        for argument in node["arguments"]
        if "input" in argument and argument["kind"] == "element"
    }
    return len(read)


def _reductions(graph: Traced) -> int:
    return sum(node["op"].startswith("row_") for node in _needed(graph))
