"""Exponentials of a row that equal other exponentials divided by their sum, as in log_softmax's gradient.

exp(x - max - log(sum)), where sum is that of exp(x - max), is exp(x - max) / sum: the exponential that the pass of the
sum computes, which a CPU keeps. It is closer, too: the logarithm of a sum has a last bit of its own.

PyTorch's logsumexp takes 0 in place of an infinite max, so that no infinity less an infinity is NaN. Such a row is the
one of which exp(x - 0) may overflow, and its quotient would be NaN where exp(x - log(sum)) is 0. There, exp(x - max)
itself is 0 or NaN as exp(x - log(sum)) is, and exp(max) is the sum. So both are computed of exp(x - max) for all rows.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from kernelgen.scaffold.formula.graph import FormulaGraph, Node, Number, Value


@dataclass(frozen=True)
class _Shift:
    """What elements are shifted by before their exponential: their max, or 0 where `is_infinite` says so."""

    row_max: Node
    is_infinite: Node | None


def share_exponentials(graph: FormulaGraph) -> None:
    """Puts quotients of exponentials and their sums in place of exponentials that have the sum's logarithm."""
    steps = graph.arguments_of_steps()
    nodes = graph.nodes()
    replaced: dict[int, Value] = {}
    for total in nodes:
        term = total.arguments[0] if total.op == "row_sum" else None
        shift = _shift(term.arguments[0]) if _is_exponential(term) else None
        logarithm = next((node for node in nodes if node.op == "log" and node.arguments == (total,)), None)
        if shift is None or logarithm is None or total.index in steps:
            continue
        quotient_terms = Counter(_terms(term.arguments[0]))
        quotient_terms[logarithm] -= 1
        same = [n for n in nodes if _is_exponential(n) and _equal(_terms(n.arguments[0]), quotient_terms)]
        # Of a max that may be infinite, the sum is the one that others are computed of.
        if (same or shift.is_infinite is not None) and not any(node.index in steps for node in same):
            own_sum, quotient = _of_shifted_by_max(graph, term, total, shift)
            replaced |= {total.index: own_sum} | {node.index: quotient for node in same}
    if replaced:
        graph.replace(replaced)
        graph.sum_before_scaling()


def _of_shifted_by_max(graph: FormulaGraph, term: Node, total: Node, shift: _Shift) -> tuple[Value, Value]:
    """The sum, and an exponential over it, by the exponential of what is shifted by the max."""

    def of_row(op: str, *arguments: Value, name: str | None = None) -> Value:
        return graph.node(op, arguments, "float", "row", name)

    elements = term.arguments[0].arguments[0]
    shifted = graph.node("sub", (elements, shift.row_max), "float", "element", None)
    exponential = graph.node("exp", (shifted,), "float", "element", term.name)
    own_sum = of_row("row_sum", exponential, name=total.name)
    inverse = of_row("div", Number(1.0), own_sum, name="inverse")
    if shift.is_infinite is not None:
        inverse = of_row("where", shift.is_infinite, Number(1.0), inverse)
        own_sum = of_row("where", shift.is_infinite, of_row("exp", shift.row_max), own_sum)
    return own_sum, graph.node("mul", (exponential, inverse), "float", "element", None)


def _is_exponential(value: Value | None) -> bool:
    return isinstance(value, Node) and value.op == "exp" and value.kind == "element"


def _shift(shifted: Value) -> _Shift | None:
    """By what elements are shifted, if that is their max."""
    if not isinstance(shifted, Node) or shifted.op != "sub":
        return None
    elements, shift = shifted.arguments
    is_infinite = None
    if isinstance(shift, Node) and shift.op == "where" and shift.arguments[1] == Number(0.0):
        is_infinite, _, shift = shift.arguments
        if not isinstance(is_infinite, Node) or not _says_infinite(is_infinite, shift):
            return None
    is_max = isinstance(shift, Node) and shift.op == "row_amax" and shift.arguments == (elements,)
    return _Shift(shift, is_infinite) if is_max else None


def _says_infinite(condition: Node, value: Value) -> bool:
    if condition.op == "isinf":
        return condition.arguments == (value,)
    magnitude, limit = condition.arguments if condition.op == "eq" else (None, None)
    is_magnitude = isinstance(magnitude, Node) and magnitude.op == "abs" and magnitude.arguments == (value,)
    return is_magnitude and limit == Number(math.inf)


def _terms(value: Value, sign: int = 1) -> Counter[Value]:
    """The terms of a sum or difference, with how often they are added."""
    if isinstance(value, Node) and value.op in ("add", "sub"):
        first, second = value.arguments
        terms = Counter(_terms(first, sign))
        terms.update(_terms(second, -sign if value.op == "sub" else sign))
        return terms
    if isinstance(value, Node) and value.op == "neg":
        return _terms(value.arguments[0], -sign)
    return Counter({value: sign})


def _equal(terms: Counter[Value], others: Counter[Value]) -> bool:
    return all(terms[value] == others[value] for value in (*terms, *others))
