"""Means of rows that squares are centred at, to the last bit of the row's elements.

A sum of float32 numbers is rounded, so the mean of equal numbers is off by some last bits. A norm divides what is left
of them by the root of its epsilon, 0.001 or so, where PyTorch's norms, which update a mean, leave nothing. The sum of
the elements centred at such an estimate tells how far off it is: the corrected two-pass algorithm of Chan, Golub and
LeVeque, Algorithms for computing the sample variance, 1983. It is a term more of the pass that adds up the squares.
"""

from __future__ import annotations

from kernelgen.scaffold.formula.graph import FormulaGraph, Name, Node, Value, is_factor


def correct_means(graph: FormulaGraph) -> None:
    """Puts the corrected mean in place of each that squares of a row are centred at. No pass is added: a sum of terms
    that are linear in a centred element is corrected after it."""
    seen: set[int] = set()
    while means := [node for node in graph.nodes() if _is_mean(node) and node.index not in seen]:
        seen.add(means[0].index)
        centred = _centred(graph, means[0])
        if centred is not None and any(_is_sum_of_squares(node, centred) for node in graph.nodes()):
            _correct(graph, means[0], centred)


def _correct(graph: FormulaGraph, mean: Node, centred: Node) -> None:
    def of_row(op: str, *arguments: Value, name: str | None = None) -> Value:
        return graph.node(op, arguments, "float", "row", name)

    total = of_row("row_sum", centred)
    correction = of_row("div", total, mean.arguments[1], name="correction")
    corrected = of_row("corrected_mean", mean, correction, name=f"corrected_{mean.name or 'mean'}")
    replaced: dict[int, Value] = {mean.index: corrected}
    for node in graph.nodes():
        if _is_sum_of_squares(node, centred):
            replaced[node.index] = of_row("corrected_squares", node, correction, total)
        elif node.op == "row_sum" and is_factor(node.arguments[0], centred):
            others = graph.without(node.arguments[0], centred)
            if not _depends(others, mean):
                replaced[node.index] = of_row("corrected_sum", node, correction, of_row("row_sum", others))
    graph.replace(replaced)


def _is_mean(node: Node) -> bool:
    if node.op != "div" or node.kind != "row":
        return False
    total, count = node.arguments
    is_sum = isinstance(total, Node) and total.op == "row_sum" and total.arguments[0].kind == "element"
    return is_sum and isinstance(count, Name) and count.text == "columns"


def _centred(graph: FormulaGraph, mean: Node) -> Node | None:
    """The elements that it is the mean of, less the mean."""
    elements = mean.arguments[0].arguments[0]
    return next((node for node in graph.nodes() if node.op == "sub" and node.arguments == (elements, mean)), None)


def _is_sum_of_squares(node: Node, value: Node) -> bool:
    squares = node.arguments[0] if node.op == "row_sum" else None
    return isinstance(squares, Node) and squares.op == "mul" and squares.arguments == (value, value)


def _depends(value: Value, node: Node) -> bool:
    pending = [value]
    while pending:
        other = pending.pop()
        if isinstance(other, Node):
            if other.index == node.index:
                return True
            pending += other.arguments
    return False
