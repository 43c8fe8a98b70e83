"""Writes the values of an op's tuned.json, for the devices that are built for, as headers that its sources include.

tuned.json maps a GPU's compute capability or a CPU's name to an entry

    {"values": {NAME: number or bool}, "shapes": {CLASS OF SHAPES: {NAME: number or bool}}}

`tuned/cpu/OP.h` holds the values for the CPU of this machine, `tuned/cuda/OP.h` those for the architectures that are
compiled for. Without the file, the defaults in the sources stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .architectures import number
from .machine import cpu_name
from .messages import BuildError, Note

Entries = Mapping[str, Mapping[str, Any]]


def tuned_entries(folder: Path) -> Entries:
    """What an op's tuned.json holds, by compute capability or by the name of a CPU; nothing where there is no file.

    Raises:
        BuildError: the file is not of the form above.
    """
    path = folder / "tuned.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        tables = [table for entry in entries.values() for table in _tables(entry).values()]
        sound = all(type(value) in (int, bool) for table in tables for value in table.values())
    except (ValueError, AttributeError, TypeError):
        sound = False
    if not sound:
        raise BuildError(
            f"{path} is damaged: it should map a GPU's compute capability or a CPU's name to "
            "{'values': {NAME: whole number or bool}}; delete it to have the defaults."
        )
    return entries


def tuning_headers(op: str, entries: Entries, architectures: list[str], note: Note) -> dict[str, str]:
    """The text of the headers by backend. Entries for devices that are not built for are left out, with a note."""
    gpus = {key: entry for key, entry in entries.items() if _is_capability(key)}
    cpus = {key: entry for key, entry in entries.items() if key not in gpus}
    numbers = {number(architecture) for architecture in architectures}
    for_gpus = {key: entry for key, entry in gpus.items() if number(key) in numbers}
    for_cpu = {key: entry for key, entry in cpus.items() if key == cpu_name()}
    for present, chosen, device in ((cpus, for_cpu, cpu_name()), (gpus, for_gpus, ", ".join(architectures))):
        if present and device and not chosen:
            note(f"{op}/tuned.json is for {', '.join(present)}, not for {device}: the defaults stand.")
    return {"cpu": tuning_header(op, for_cpu), "cuda": tuning_header(op, for_gpus)}


def tuning_header(op: str, entries: Entries) -> str:
    """A C++ function that calls another one with the values that are right for the device it runs on.

    The values are members of a type, not macros: a kernel for several architectures is compiled once for each, but the
    host code that launches it only once, and the two have to agree on the size of a block. The entry of a compute
    capability holds on that GPU; one under any other key holds wherever the library runs.
    """
    structs: list[str] = []
    body, fallback = [], ["  return f(Defaults());"]
    for key, entry in sorted(entries.items()):
        choice = _choice(entry, structs)
        if _is_capability(key):
            body += [f"  if (compute_capability() == {number(key)}) {{", *(f"  {line}" for line in choice), "  }"]
        else:
            fallback = choice
    parts = [
        f"// Written by build_tools from {op}/tuned.json.\n#pragma once",
        *(['#include "compute_capability.h"'] if body else []),
        f"namespace tuned::{op} {{",
        *structs,
        "\n".join(
            [
                "// Calls f with Defaults, or with the values tuned for this device and for Defaults' class of shapes.",
                "template <typename Defaults, typename F>",
                "auto visit(F&& f) {",
                *body,
                *fallback,
                "}",
            ]
        ),
        f"}}  // namespace tuned::{op}",
    ]
    return "\n\n".join(parts) + "\n"


def _choice(entry: Mapping[str, Any], structs: list[str]) -> list[str]:
    """The statements that choose among an entry's classes of shapes; the types that they name go to `structs`."""
    classes, otherwise = [], "return f(Defaults());"
    for shapes, values in sorted(_tables(entry).items()):
        if not values:
            continue
        name = f"Values{len(structs)}"
        structs.append(_struct(name, values))
        if shapes:
            condition = f"if constexpr (Defaults::shapes == {json.dumps(shapes)})"
            classes.append(f"{condition} return f({name}<Defaults>());")
        else:
            otherwise = f"return f({name}<Defaults>());"
    # One chain of else-ifs, so that no class of shapes compiles kernels with the values of another.
    return [f"  {'else ' * (position > 0)}{line}" for position, line in enumerate([*classes, otherwise])]


def _struct(name: str, values: Mapping[str, Any]) -> str:
    # The type is the default's own, and a name that has no default is an error.
    members = [
        f"  static constexpr decltype(Defaults::{tunable}) {tunable} = {json.dumps(value)};"
        for tunable, value in sorted(values.items())
    ]
    return "\n".join(["template <typename Defaults>", f"struct {name} : Defaults {{", *members, "};"])


def _tables(entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of one entry by the class of shapes that they are for; "" for all others."""
    return {"": entry.get("values", {}), **entry.get("shapes", {})}


def _is_capability(key: str) -> bool:
    return re.fullmatch(r"\d+\.\d", key) is not None
