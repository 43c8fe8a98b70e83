"""Fuzzes ops of a project until each has failed once."""

import sys
from pathlib import Path
from typing import Any

from kernelgen.lab import worker_process


def first_failures(root: Path, ops: list[str], *, device: str = "cpu", seed: int = 1, **more: Any) -> dict[str, str]:
    """The first failure of each op, "" where it has none; `more` goes into the request."""
    failures = dict.fromkeys(ops, "")

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "failure":
            failures[event["op"]] = failures[event["op"]] or f"{event['check']}: {event['case']}"
        elif event["event"] == "lost":
            failures[event["op"]] = failures[event["op"]] or f"{event['reason']}: {event['case']}"
        elif event["event"] == "skipped":
            raise AssertionError(event["message"])

    request = {"work": "fuzz", "project": str(root), "package": root.name.replace("-", "_"), "ops": ops}
    request |= {"seed": seed, "device": device, "fail_fast": True, **more}
    assert worker_process.run(Path(sys.executable), request, on_event, limit_s=60)
    return failures
