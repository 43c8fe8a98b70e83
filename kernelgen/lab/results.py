"""What a measurement leaves behind: one JSON object, with the machine that it was taken on.

{"kind", "version", "created", "kernelgen", "environment": {…}, "ceilings": {…}, "cases": […], "failures": […]}. A case
holds every sample, in seconds, so that anything said of it can be worked out again.
"""

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen import __version__
from kernelgen.errors import KernelgenError

KIND = "kernelgen bench"
# Raised whenever a reader of the older form would misread the newer one.
VERSION = 1
# What the op itself is called among the functions of a case; the others are its peers.
OP = "op"

Results = dict[str, Any]


def new(environment: dict[str, Any]) -> Results:
    return {**heading(KIND, VERSION), "environment": environment, "ceilings": {}, "cases": [], "failures": []}


def heading(kind: str, version: int) -> dict[str, Any]:
    """What every file of the lab begins with."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"kind": kind, "version": version, "created": now, "kernelgen": __version__}


def read(path: Path) -> Results:
    """Results of `kernelgen bench` from a file.

    Raises:
        KernelgenError: there is no such file, it holds something else, or results of another version.
    """
    return read_as({KIND: VERSION}, path)


def read_as(versions: Mapping[str, int], path: Path) -> dict[str, Any]:
    """What a verb wrote, if it is of one of these kinds, and of the version that belongs to it.

    Raises:
        KernelgenError: as `read`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelgenError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise KernelgenError(f"{path} is not JSON: {error}.") from error
    kind = found.get("kind") if isinstance(found, dict) else None
    if kind not in versions:
        raise KernelgenError(f"{path} does not hold results of `{'` or `'.join(versions)}`.")
    if found.get("version") != versions[kind]:
        raise KernelgenError(
            f"{path} has version {found.get('version')} of the results' schema, and this kernelgen reads version "
            f"{versions[kind]}; measure again with `{kind}`."
        )
    return found


def write(results: Mapping[str, Any], path: Path) -> None:
    """Whole or not at all: what was there stays if this is interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def key(case: dict[str, Any]) -> str:
    """What a case is called in tables, and matched by: op, case, dtype, and whether it is the backward."""
    return " · ".join([case["op"], case["case"], case["dtype"], *["backward"] * bool(case.get("backward"))])


def flops_per_s(rate: float) -> str:
    """A rate with the unit that suits it."""
    return f"{rate / 1e12:.3g} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GFLOP/s"


def seconds(value: float) -> str:
    """A time as text, in the unit that fits."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"


def machine(environment: dict[str, Any]) -> str:
    """The device that was measured, by its name: times taken on two names say nothing of each other."""
    if gpu := environment.get("gpu"):
        return gpu["name"]
    cores = environment["cores"]
    return f"{environment['cpu']}, {cores} core{'s' * (cores != 1)}"


def baseline(root: Path, environment: dict[str, Any], op: str) -> Path:
    """Where a project keeps the results of an op on a device."""
    folder = re.sub(r"[^a-z0-9]+", "-", machine(environment).lower()).strip("-")
    return root / "baselines" / folder / f"{op}.json"


def of_op(results: Results, op: str) -> Results:
    """The part that one op has in some results."""
    parts = {name: [part for part in results[name] if part["op"] == op] for name in ("cases", "failures")}
    return {**results, **parts}
