"""Fuzzes ops of a project until each has failed once."""

import sys
from pathlib import Path
from typing import Any

from kernelgen.cli.fuzz import ENVIRONMENT
from kernelgen.lab import process


def hunt(root: Path, ops: list[str], *, device: str = "cpu", seed: int = 1, **more: Any) -> dict[str, str]:
    """What fuzz finds wrong with each op first, or "" where it finds nothing. More goes into the request."""
    found = dict.fromkeys(ops, "")

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "failure":
            found[event["op"]] = found[event["op"]] or f"{event['check']}: {event['case']}"
        elif event["event"] == "lost":
            found[event["op"]] = found[event["op"]] or f"{event['reason']}: {event['case']}"
        elif event["event"] == "skipped":
            raise AssertionError(event["message"])

    request = {"work": "fuzz", "project": str(root), "package": root.name.replace("-", "_"), "ops": ops}
    request |= {"seed": seed, "device": device, "fail_fast": True, "environment": ENVIRONMENT, **more}
    assert process.run(Path(sys.executable), request, on_event, limit_s=60)
    return found
