"""The tensors of a function with reductions of rows, and how kernels read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import rows
from kernelgen.scaffold.formula.exponentials import share_exponentials
from kernelgen.scaffold.formula.graph import COORDINATES_OF_ROW, FormulaGraph
from kernelgen.scaffold.formula.values import value_of

# How a row calls what it has one of.
_MEMBERS = {"float": "number", "bool": "flag", "int": "place", "float32": "wide_number", "saved": "saved"}

# The same of what all rows have in common.
_GIVEN = {"float": "given", "float32": "wide_given", "saved": "saved_total"}
# The most operators of a formula whose numbers fit the registers of a thread where a multiprocessor has 1,536 of them.
_LIGHT = 20
# The most tensors whose accesses do where it has 1,024; and the most of them with the sums over the rows, as in
# formula_row.cuh.
_MOST_HELD = 4
_LIGHT_SUMS = 4


def of_rows(argument: Mapping[str, Any], assumption: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor of an op of rows: its elements are read as numbers, those of a mask too."""
    name = argument["name"]
    dtype = assumption["dtypes"][name]
    kind = "row" if assumption["kinds"][name] == "row" else "element"
    shape = "numbers" if kind == "row" else _shape(name, assumption)
    dims = {"dims": list(assumption["spreads"][name])} if shape == "spread" else {}
    if name in assumption.get("orders", {}):
        dims["order"] = assumption["orders"][name]
    return value_of(argument, dtype) | {"kind": kind, "shape": shape} | dims


def graph_of_rows(
    traced: Mapping[str, Any], parameters: Mapping[Any, str], grads: Mapping[Any, str] | None = None
) -> FormulaGraph:
    """The graph of a function of rows, or of its gradient. Its means are not corrected yet: a gradient that reads them
    has those of the forward."""
    graph = FormulaGraph(traced, parameters, grads, COORDINATES_OF_ROW)
    share_exponentials(graph)
    return graph


def inputs_of(tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tensor["cpp"] for tensor in tensors if tensor["kind"] == "element" and tensor["used"]]


def inputs_of_rows(tensors: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The C++ names of what a row has one of, and how the row calls them."""
    chosen = [tensor for tensor in tensors if tensor["kind"] in ("row", "total") and tensor["used"]]
    return [(t["cpp"], _GIVEN[t["dtype"]] if t["kind"] == "total" else _MEMBERS[t["dtype"]]) for t in chosen]


def _shape(name: str, assumption: Mapping[str, Any]) -> str:
    """What a tensor may be: `rows`, a `vector` of the last dimension, `either`, what may be `broadcast`, or `spread`,
    with some of the dimensions."""
    if name in assumption.get("spreads", {}):
        return "spread"
    if assumption["kinds"][name] == "column":
        return "vector"
    return assumption["vectors"].get(name, "rows")


def refuse_rows_beside_parts(tensors: Sequence[Mapping[str, Any]]) -> None:
    """Raises KernelgenError where a tensor that is not cut has to be as large as the parts of others, or may be so only
    in some other way than broadcasting; but of the first, which the others are held against."""
    taken = ("broadcast", "vector", "spread")
    for tensor in tensors[1:]:
        if "cut" not in tensor and tensor["kind"] == "element" and tensor["shape"] not in taken:
            raise KernelgenError(f"the shape of {tensor['name']} beside tensors that are cut into parts")


def late(graph: FormulaGraph, tensors: Sequence[Mapping[str, Any]]) -> int:
    """A bit for each tensor of rows that is read, and only by the last pass, and may be a vector."""
    early = rows.read_by_reductions(graph)
    read = [tensor for tensor in tensors if tensor["kind"] == "element" and tensor["used"]]
    return sum(1 << i for i, t in enumerate(read) if t["shape"] != "rows" and t["cpp"] not in early)


def accesses(graph: FormulaGraph, tensors: Sequence[Mapping[str, Any]]) -> int:
    """How many accesses of a row a thread has registers for, of each tensor that it holds."""
    held = sum(t["kind"] == "element" and t["used"] for t in tensors) - late(graph, tensors).bit_count()
    return 4 if held < 3 else 2


def resident_threads(graph: FormulaGraph, tensors: Sequence[Mapping[str, Any]], operations: int) -> int:
    """How many threads a multiprocessor is to have registers for: some of its blocks load while others compute, and a
    block of a long row alone has nobody to load meanwhile. On an H100, losses of one tensor took 0.87 of their time
    with 1,536, and functions of three or four tensors half of it with 1,024 in place of 512."""
    read = [tensor for tensor in tensors if tensor["kind"] == "element" and tensor["used"]]
    if len(read) == 1 and operations <= _LIGHT:
        return 1536
    return 1024 if len(read) - late(graph, tensors).bit_count() <= _MOST_HELD else 512


def sums_resident_threads(graph: FormulaGraph, tensors: Sequence[Mapping[str, Any]], sums: int) -> int:
    """The same where so many gradients may be sums over the rows: two blocks of the longest rows, if registers last."""
    held = sum(t["kind"] == "element" and t["used"] for t in tensors) - late(graph, tensors).bit_count()
    return 1024 if held + sums <= _LIGHT_SUMS else 512
