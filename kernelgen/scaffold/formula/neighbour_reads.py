"""What kernels read of tensors whose neighbours a formula reads; see neighbours.py."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula.lines import free_name
from kernelgen.scaffold.formula.neighbours import Key, key, words
from kernelgen.scaffold.formula.parts import SUFFIXES


def names(graphs: Iterable[Mapping[str, Any]], cpp: Mapping[Any, str], taken: Iterable[str]) -> dict[Key, str]:
    """The C++ names of the neighbours that graphs read, in the order of the tensors; that at the place itself has the
    tensor's own.

    Args:
        graphs: as traced.
        cpp: the names of the tensors, by what arguments in the graphs call them.
        taken: names that none of them can have, whatever the sources append.
    """
    chosen: dict[Key, str] = {}
    reserved = {name + suffix for name in (*cpp.values(), *taken) for suffix in SUFFIXES}
    for tensor, distances in sorted(
        _read(graphs), key=lambda read: (list(cpp).index(read[0]), bool(words(*read[1])), read[1])
    ):
        where = words(*distances)
        name = free_name("_".join([cpp[tensor].rstrip("_"), *where]), reserved) if where else cpp[tensor]
        reserved |= {name + suffix for suffix in SUFFIXES}
        chosen[tensor, distances] = name
    return chosen


def reads(
    tensors: Sequence[Mapping[str, Any]],
    chosen: Mapping[Key, str],
    read: Container[str],
    is_smaller: Container[str] = (),
) -> list[dict[str, Any]]:
    """What kernels read: each tensor, or its neighbours. `at` is the tensor's place among all.

    Args:
        chosen: the names of neighbours, by the names of tensors.
        is_smaller: the tensors that are smaller than what is computed.
    """
    every = []
    for place, tensor in enumerate(tensors):
        for (name, (lines, columns, wraps, flips)), cpp in chosen.items():
            if name == tensor["name"]:
                is_apart = lines or columns or any(flips) or name in is_smaller
                own = {"shift": [lines, columns], "wraps": wraps} if is_apart else {}
                own |= {"flips": list(flips)} if any(flips) else {}
                plain = {**tensor, "cpp": cpp, "at": place, "tensor": tensor["cpp"], "used": cpp in read}
                every.append(plain | own)
    return every


def tensors_of(every: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tensors that these read; `needed_by` as in reads, where it is in all."""
    tensors: dict[str, list[Mapping[str, Any]]] = {}
    for read in every:
        tensors.setdefault(read["tensor"], []).append(read)
    operands = []
    for cpp, of_tensor in tensors.items():
        used = [read for read in of_tensor if read["used"]]
        operand = {**of_tensor[0], "cpp": cpp, "used": bool(used), "bounded": True}
        for key_of_read in ("shift", "wraps", "flips", "needed_by"):
            operand.pop(key_of_read, None)
        if used and all("needed_by" in read for read in used):
            operand["needed_by"] = list(dict.fromkeys(flag for read in used for flag in read["needed_by"]))
        operands.append(operand)
    return operands


def _read(graphs: Iterable[Mapping[str, Any]]) -> set[Key]:
    every: set[Key] = set()
    for graph in graphs:
        values = [*graph["outputs"], *(argument for node in graph["nodes"] for argument in node["arguments"])]
        for value in values:
            if value is not None and "shift" in value:
                every.add(key(value["grad"] if "grad" in value else value["input"], value))
    return every
