"""The record of a tuning, as `kernelgen tune --json` prints it and build/tune keeps it: one JSON object."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelgen import __version__
from kernelgen.files import write_atomically
from kernelgen.tune import KIND, VERSION
from kernelgen.tune.errors import DiskFullError, is_disk_full
from kernelgen.tune.request import TuningRequest
from kernelgen.tune.search import SearchStats
from kernelgen.tune.task import Task


def new(request: TuningRequest, task: Task) -> dict[str, Any]:
    options = {name: getattr(request, name) for name in ("backward", "seed", "seeds", "trials", "minutes")}
    facts = {"kind": KIND, "version": VERSION, "kernelgen": __version__, "op": request.op, **task.as_dict()}
    return facts | {"asked": options, "torch": task.torch, "searches": []}


def of_search(shapes: str | None, ended: str, stats: SearchStats, importance: Mapping[str, float]) -> dict[str, Any]:
    """The part of one shape class, as it is when its search ends; why it ended is a sentence."""
    return {"shapes": shapes, "ended": ended, "stats": _figures(stats), "importance": dict(importance)}


def save(path: Path, record: dict[str, Any]) -> None:
    """Stamp a record with the time, and write it whole or not at all.

    Raises:
        DiskFullError: the disk is full.
    """
    record["created"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        write_atomically(path, json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise DiskFullError(path.parent) if is_disk_full(error) else error from error


def _figures(stats: SearchStats) -> dict[str, Any]:
    counts = ("done", "here", "failed", "cached", "jobs", "slots")
    times = ("seconds", "compiling_s", "measuring_s", "verdicts_s")
    return {name: getattr(stats, name) for name in (*counts, *times, "compilers_used", "slots_used")}
