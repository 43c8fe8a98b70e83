"""`tuned.json` in an op's folder: the values that the build takes in place of the defaults, and why.

    {"9.0": {"values": {…}, "shapes": {CLASS: {…}}, "measured": {…}}, "AMD EPYC …": {…}}

The keys are compute capabilities and names of CPUs. The build reads `values` and `shapes`; `measured` is for people:
where and when, and for each case by how much the time differs from the default's, with the 99% interval. It has a part
for each class of shapes, and for forward and backward where they are tuned apart.
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError

NAME = "tuned.json"


def read(path: Path) -> dict[str, Any]:
    """What there is; nothing where there is no file.

    Raises:
        KernelgenError: it is no such file.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise KernelgenError(f"{path} is not JSON: {error}; delete it to have the defaults.") from error
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise KernelgenError(f"{path} holds no tuned values; delete it to have the defaults.")
    return found


def write(
    path: Path,
    chip: str,
    shapes: str | None,
    values: Mapping[str, Any],
    measured: Mapping[str, Any],
    *,
    backward: bool = False,
    apart: Collection[str] = (),
) -> None:
    """Put values for a chip, and perhaps for one class of shapes, in place of those that were there.

    Args:
        apart: the names that are tuned apart, for the backward if these are for the forward: their values stay.
    """
    found = read(path)
    entry = found.setdefault(chip, {})
    tables, key = (entry, "values") if shapes is None else (entry.setdefault("shapes", {}), shapes)
    others = {name: value for name, value in tables.get(key, {}).items() if name in apart}
    tables[key] = dict(sorted({**others, **values}.items()))
    direction = ("backward" if backward else "forward") if apart else None
    if part := " · ".join(filter(None, (shapes, direction))):
        entry.setdefault("measured", {})[part] = dict(measured)
    else:
        entry["measured"] = dict(measured)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
