"""Tensors whose last dimension is cut into parts of equal sizes: kernels read and write each part as an operand.

`cut` of a tensor or result says how many `parts` there are, and whether they take turns (`in_turns`), element by
element.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from kernelgen.scaffold.formula.lines import as_cpp, free_name

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_HALVES_IN_TURNS = ("even", "odd")
# What the stamped sources append to the name of an operand.
SUFFIXES = (
    "",
    "_operand",
    "_number",
    "_numbers",
    "_row",
    "_data",
    "_loaded",
    "_vector",
    "_vectors",
    "_reader",
    "_totals",
    "_turns",
)


def with_cut(value: dict[str, Any], cut: Mapping[str, Any] | None) -> dict[str, Any]:
    """A tensor or result with how it is cut, where it is."""
    return value | {"cut": dict(cut)} if cut and cut["parts"] > 1 else value


def part_names(
    tensors: Sequence[Mapping[str, Any]], traced: Sequence[Sequence[Any]], taken: Container[str]
) -> dict[tuple[str, int], str]:
    """The C++ names of the parts of tensors, by the tensor's name and the part: those of the variables that hold them.

    Args:
        traced: the name of the variable of parts of an argument that have one: [argument, part, name].
        taken: names that none of them can have, whatever the sources append.
    """
    held = {(argument, part): name for argument, part, name in traced}
    names: dict[tuple[str, int], str] = {}
    for tensor in tensors:
        for part in range(tensor["cut"]["parts"] if "cut" in tensor else 0):
            plain = f"{tensor['cpp'].rstrip('_')}_{_ordinal(part, tensor['cut'])}"
            own = as_cpp(held[tensor["name"], part]) if (tensor["name"], part) in held else plain
            choices = (own, f"{tensor['cpp'].rstrip('_')}_{own}", plain)
            chosen = next((name for name in choices if _is_free(name, [*taken_by(names)], taken)), None)
            names[tensor["name"], part] = chosen or free_name(plain, taken)
    return names


def taken_by(names: Mapping[tuple[str, int], str]) -> set[str]:
    """What the sources make of names."""
    return {name + suffix for name in names.values() for suffix in SUFFIXES}


def _is_free(name: str, own: Container[str], taken: Container[str]) -> bool:
    return not any(name + suffix in taken or name + suffix in own for suffix in SUFFIXES)


def _ordinal(part: int, cut: Mapping[str, Any]) -> str:
    if cut["in_turns"] and cut["parts"] == 2:
        return _HALVES_IN_TURNS[part]
    return _ORDINALS[part] if part < len(_ORDINALS) else f"part_{part + 1}"


def note_used(tensors: Sequence[dict[str, Any]], names: Mapping[tuple[str, int], str], read: Container[str]) -> None:
    """Notes in each tensor whether a formula reads it, or one of its parts."""
    for tensor in tensors:
        own = [name for (of, _), name in names.items() if of == tensor["name"]] or [tensor["cpp"]]
        tensor["used"] = any(name in read for name in own)


def operands(
    tensors: Sequence[Mapping[str, Any]], names: Mapping[tuple[str, int], str], read: Container[str]
) -> list[dict[str, Any]]:
    """What kernels read: each tensor, or its parts. `at` is the tensor's place among all. A kernel loads all parts that
    take turns where the formula reads one of them: they lie in the same memory."""
    every = []
    for place, tensor in enumerate(tensors):
        own = [{**operand, "used": operand["cpp"] in read} for operand in _parts(tensor, place, names)]
        is_read = any(operand["used"] for operand in own)
        every += [{**operand, "loaded": is_read if "turns" in operand else operand["used"]} for operand in own]
    return every


def outputs(results: Sequence[Mapping[str, Any]], names: Mapping[tuple[str, int], str]) -> list[dict[str, Any]]:
    """What kernels write: each result, or its parts. `at` is the result's place among all."""
    return [output for place, result in enumerate(results) for output in _parts(result, place, names)]


def first_of_results(traced: Mapping[str, Any]) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """The first part of each output of a graph, and how that output is cut; None where nothing is."""
    if "cuts" not in traced:
        return [(output, None) for output in traced["outputs"]]
    first = 0
    firsts = []
    for cut in traced["cuts"]:
        firsts.append((traced["outputs"][first], cut))
        first += cut["parts"]
    return firsts


def uncut(copy: int | None, written: Sequence[Mapping[str, Any]]) -> int | None:
    """The place of a gradient that is not cut, by that of what kernels write; None where it is a part."""
    return written[copy]["at"] if copy is not None and written[copy]["part"] is None else None


def _parts(value: Mapping[str, Any], place: int, names: Mapping[tuple[str, int], str]) -> list[dict[str, Any]]:
    plain = dict(value) | {"at": place, "tensor": value["cpp"], "part": None}
    if "cut" not in value:
        return [plain]
    turns = {"turns": f"{value['cpp'].rstrip('_')}_turns"} if value["cut"]["in_turns"] else {}
    return [plain | turns | {"cpp": names[value["name"], part], "part": part} for part in range(value["cut"]["parts"])]
