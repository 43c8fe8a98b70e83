"""The formula of a pointwise function, which may have a path for each choice of its bool arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula.graph import FormulaGraph
from kernelgen.scaffold.formula.lines import lines


def body(
    paths: Sequence[tuple[Mapping[str, bool], FormulaGraph]],
    parameters: Mapping[str, str],
    names: Sequence[str],
    results: Sequence[Mapping[str, Any]],
) -> list[str]:
    """The lines of a formula: under conditions where a bool argument chooses between several."""
    outputs = [result["cpp"] for result in results]
    if len(paths) == 1:
        return lines(paths[0][1], outputs, names)
    bodies = [(flags, lines(graph, outputs, names, indent=4)) for flags, graph in paths]
    if all(body == bodies[0][1] for _, body in bodies):
        return lines(paths[0][1], outputs, names)
    text: list[str] = []
    for i, (flags, body) in enumerate(bodies):
        chosen = " && ".join(("" if value else "!") + parameters[name] for name, value in flags.items())
        condition = f"if ({chosen}) {{" if i == 0 else f"}} else if ({chosen}) {{"
        text.append("} else {" if i == len(bodies) - 1 else condition)
        text += [f"  {line}" for line in body]
    return [*text, "}"]


def exponent(graphs: Iterable[FormulaGraph]) -> str | None:
    """The C++ name of the scalar that exponents of powers are computed of, if there is such a scalar: the first."""
    return min((name for graph in graphs for name in graph.exponents()), default=None)
