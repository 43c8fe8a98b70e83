"""`tuned.json` in an op's folder: the values that the build takes in place of the defaults, and why.

    {"9.0": {"values": {…}, "shapes": {SHAPE_CLASS: {…}}, "measured": {…}}, "AMD EPYC …": {…}}

The keys are compute capabilities and names of CPUs. The build reads `values` and `shapes`. `measured` is for people: on
what machine and when, and by how much each case's time differs from the default's, with the 99% interval. It has a part
for each shape class, and for forward and backward where these are tuned apart.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kernelgen.files import write_atomically
from kernelgen.tune.errors import TuningError

NAME = "tuned.json"


def read(path: Path) -> dict[str, Any]:
    """The entries of a tuned file, by chip; none if there is no file.

    Raises:
        TuningError: the file holds something else.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise TuningError(f"{path} is not JSON: {error}; delete it to have the defaults.") from error
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise TuningError(f"{path} holds no tuned values; delete it to have the defaults.")
    return entries


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
    """Replace the values of a chip, or of one shape class on it.

    Args:
        apart: the tunables of the other direction, where forward and backward are tuned apart: their values stay.
    """
    entries = read(path)
    entry = entries.setdefault(chip, {})
    tables, key = (entry, "values") if shapes is None else (entry.setdefault("shapes", {}), shapes)
    others = {name: value for name, value in tables.get(key, {}).items() if name in apart}
    tables[key] = dict(sorted({**others, **values}.items()))
    direction = ("backward" if backward else "forward") if apart else None
    if part := " · ".join(filter(None, (shapes, direction))):
        entry.setdefault("measured", {})[part] = dict(measured)
    else:
        entry["measured"] = dict(measured)
    write_atomically(path, json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
