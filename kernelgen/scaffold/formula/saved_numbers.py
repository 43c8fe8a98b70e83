"""Numbers that a forward saves for its gradient, so that this computes fewer reductions again.

PyTorch's logsumexp, norms and attention keep a number or two of each row. A result is rounded to the dtype of the
tensors; a saved number has the dtype that sums are computed in, float32 or float64, so the gradient is as exact as if
it had computed the number. It costs little beside a row. A reduction costs more than its arithmetic where the row is
held: all that is loaded waits for it before anything is written.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kernelgen.scaffold.formula.graph import FormulaGraph, Name, Node, Value
from kernelgen.scaffold.formula.lines import as_cpp, free_name, word_of
from kernelgen.scaffold.formula.rows import Part, is_pass

# More of them are not worth the pass that they spare.
MOST = 4


@dataclass(frozen=True)
class SavedNumber:
    """A number of each row, or one of all rows (`kind`: row or total), by its node in the graph of the gradient, and
    in that of the forward."""

    name: str
    kind: str
    index: int
    of_forward: Value


def saved_numbers(
    backward: FormulaGraph, forward: FormulaGraph, inputs: Container[str], taken: Container[str]
) -> list[SavedNumber]:
    """The numbers of which a gradient computes fewer reductions, all of which the forward has; none where it gains
    nothing.

    Args:
        inputs: the names of what both graphs are of.
        taken: names that the numbers cannot have.
    """
    nodes = backward.nodes()
    outputs = [output for output in backward.outputs if output is not None]
    first = _first(outputs, _reductions_of_inputs(nodes, inputs))
    last = [node for node in first if _waits_for_reductions(node, first)]
    # What others are computed of, where that is fewer numbers.
    chosen = min(last, _first(last, {node.index for node in nodes if _is_reduction(node)}), key=len)
    values = {node.index: _in_graph(node, forward, {}) for node in chosen}
    reductions = {node.index for node in forward.nodes() if _is_reduction(node)}
    needed = {node.index for node in Part(list(values.values())).nodes() if _is_reduction(node)}
    spares = _passes(Part(outputs, frozenset(values)).nodes()) < _passes(nodes)
    if not spares or not needed <= reductions or len(chosen) > MOST:
        return []
    saved: list[SavedNumber] = []
    for node in chosen:
        name = free_name(as_cpp(word_of(node)), {*taken, *(number.name for number in saved)})
        saved.append(SavedNumber(name, node.kind, node.index, values[node.index]))
    return saved


def _reductions_of_inputs(nodes: Sequence[Node], inputs: Container[str]) -> set[int]:
    """Numbers that are computed of reductions, and of the forward's inputs alone."""
    own: set[int] = set()
    reduced: set[int] = set()
    for node in nodes:
        of_nodes = [argument for argument in node.arguments if isinstance(argument, Node)]
        of_names = [argument for argument in node.arguments if isinstance(argument, Name)]
        if all(a.index in own for a in of_nodes) and all(a.text in inputs for a in of_names):
            own.add(node.index)
        if _is_reduction(node) or any(a.index in reduced for a in of_nodes):
            reduced.add(node.index)
    return {n.index for n in nodes if n.index in own & reduced and n.kind in ("row", "total") and n.dtype == "float"}


def _first(outputs: Sequence[Value], chosen: Container[int]) -> list[Node]:
    """Those of the nodes `chosen` that a walk from the outputs meets first."""
    met: dict[int, Node] = {}
    seen: set[int] = set()
    pending = [output for output in outputs if isinstance(output, Node)]
    while pending:
        node = pending.pop()
        if node.index in chosen:
            met[node.index] = node
        elif node.index not in seen:
            seen.add(node.index)
            pending += [argument for argument in node.arguments if isinstance(argument, Node)]
    return [met[index] for index in sorted(met)]


def _waits_for_reductions(node: Node, others: Sequence[Node]) -> bool:
    """Whether reductions are needed for it where others are known."""
    known = frozenset(other.index for other in others if other != node)
    return any(_is_reduction(inner) for inner in Part([node], known).nodes())


def _in_graph(value: Value, graph: FormulaGraph, known: dict[int, Value]) -> Value:
    """The same value in another graph of the same inputs."""
    if not isinstance(value, Node):
        return value
    if value.index not in known:
        arguments = tuple(_in_graph(argument, graph, known) for argument in value.arguments)
        known[value.index] = graph.node(value.op, arguments, value.dtype, value.kind, value.name)
    return known[value.index]


def _is_reduction(node: Node) -> bool:
    return is_pass(node) or node.op == "total"


def _passes(nodes: Sequence[Node]) -> int:
    """How many reductions have to wait for each other: others share a pass."""
    levels: dict[int, int] = {}
    for node in nodes:
        below = max((levels.get(a.index, 0) for a in node.arguments if isinstance(a, Node)), default=0)
        levels[node.index] = below + _is_reduction(node)
    return max(levels.values(), default=0)
