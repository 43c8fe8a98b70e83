"""Graphs with sums over all rows: what each row adds to them, and what is computed of them."""

from __future__ import annotations

from collections.abc import Iterable

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula.graph import FormulaGraph, Name, Node, Value
from kernelgen.scaffold.formula.lines import free_name
from kernelgen.scaffold.formula.rows import Part

# More pointers than this a kernel does not take.
MOST = 4


def take_totals(graph: FormulaGraph, taken: Iterable[str]) -> tuple[list[str], list[Value]]:
    """Puts a name into the graph in place of each sum over all rows. Returns these names, none of which is `taken`, and
    what a row adds to each.

    Raises:
        KernelgenError: a sum depends on another, or there are too many.
    """
    totals = [node for node in graph.nodes() if node.op == "total"]
    if any(depends_on_totals(node.arguments[0]) for node in totals):
        raise KernelgenError("a sum over all rows of what depends on another such sum")
    if len(totals) > MOST:
        raise KernelgenError(f"more than {MOST} sums over all rows")
    names: list[str] = []
    for node in totals:
        names.append(free_name(node.name or "total", {*names, *taken}))
    graph.replace({node.index: Name(name, "float", "total") for node, name in zip(totals, names, strict=True)})
    return names, [node.arguments[0] for node in totals]


def depends_on_totals(value: Value | None) -> bool:
    """Whether a sum over all rows, or its name, is among the values that this one is computed of."""
    if isinstance(value, Name):
        return value.kind == "total"
    nodes = Part([value] if isinstance(value, Node) else []).nodes()  # Each node once, however many use it.
    return any(
        node.op == "total" or any(isinstance(a, Name) and a.kind == "total" for a in node.arguments) for node in nodes
    )
