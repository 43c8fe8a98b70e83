"""What kernels of a traced function need of a template, which may be that of a project of long ago."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def lacking(folder: Path, traced: Mapping[str, Any]) -> str | None:
    """What the template in `folder` lacks to write kernels of a traced function, in words; None if nothing.

    Args:
        traced: the record of the function, as docs/ops-entry.md lists it.
    """
    if "groups" in traced and not (folder / "template/_macros/groups.jinja").exists():
        return "kernels of groups of a dimension"
    functions = traced.get("functions", [])
    for header in [functions] if isinstance(functions, str) else functions:
        if not any(folder.glob(f"template/src/*/include/cpu/{header}")):
            return f"functions of {header}"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("template/_macros/formula*.jinja"))]
    text = "\n".join(texts)
    lacking_macro = next((what for what, macro in _macros(traced) if f"macro {macro}(" not in text), None)
    of_headers = (_lacking_epsilon, _lacking_power, _lacking_scan)
    return lacking_macro or next(filter(None, (lacks(folder, str(traced)) for lacks in of_headers)), None)


def _lacking_epsilon(folder: Path, text: str) -> str | None:
    """The epsilon of a number's dtype is younger than its infinity."""
    headers = folder.glob("template/src/*/include/cpu/common_functions.h")
    is_there = any("kEpsilon" in header.read_text(encoding="utf-8") for header in headers)
    return "the epsilon of a number's dtype" if "math::kEpsilon" in text and not is_there else None


def _lacking_power(folder: Path, text: str) -> str | None:
    """Powers with an exponent that elements share are younger than the other functions of numbers."""
    headers = folder.glob("template/src/*/include/cpu/functions.h")
    is_needed = "math::scalar_power(" in text
    is_there = any("scalar_power(" in header.read_text(encoding="utf-8") for header in headers)
    return "powers with an exponent that elements share" if is_needed and not is_there else None


def _lacking_scan(folder: Path, text: str) -> str | None:
    """Running maxima, minima and log sums are younger than running sums."""
    headers = folder.glob("template/src/*/include/cpu/formula_row.h")
    is_needed = any(f".write_running_{scan}" in text for scan in ("maxima", "minima", "log_sums"))
    is_there = any("write_running_maxima" in header.read_text(encoding="utf-8") for header in headers)
    return "running maxima, minima and log sums" if is_needed and not is_there else None


def _macros(traced: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the kernels need, in words, and the macro of a template that has it."""
    signature = traced.get("signature", {})
    of_codes_alone = all(tensor["dtype"] != "float" for tensor in traced["tensors"])
    if "permuted" in signature or of_codes_alone or "constants" in traced:
        yield "kernels of permuted tensors, of integers alone or with constant results", "headers"
    if "neighbours" in traced:
        yield "kernels that read neighbours of elements", "checks_of_neighbours"
    if "operands" in traced:
        yield "kernels of parts of a dimension", "write_turns"
    if "coordinates" in traced:
        yield "kernels that depend on where an element lies", "coordinates_of_access"
    if _are_integers(traced["results"]):
        yield "results of integers", "scalar_type"
    if _are_integers(traced["tensors"]):
        yield "kernels that read integers", "bytes_of_integers"
    are_repeated = any(tensor.get("shape") == "spread" for tensor in traced["tensors"])
    if are_repeated or traced.get("rows", {}).get("planes", False):
        yield "kernels of rows that know which row they are, or of tensors that are repeated", "shape_in_rows"
    if traced.get("exact", False):
        yield "kernels of points", "words_of_points"
    if {"matrices", "ranks", "flat"} & {*traced, *signature} or any("dropped" in t for t in traced["tensors"]):
        what = "kernels of another dimension that is cut, of points of matrices, or beside numbers"
        yield what, "words_of_tensor"


def _are_integers(values: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some are of integers, and not the places of elements."""
    return any("int" in value["dtype"] and value["dtype"] != "int" for value in values)
