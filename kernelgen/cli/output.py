"""The output of verbs that write: a diff, the files they changed, or a JSON object."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelgen.scaffold.plan import Plan


def note(text: str) -> None:
    """Print a line to stderr, apart from the output itself; nothing if it is empty."""
    if text:
        print(f"kernelgen: {text}", file=sys.stderr)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a line at a terminal for as long as something takes; one that cannot erase it keeps it."""
    shown = sys.stderr.isatty()
    erases = os.environ.get("TERM", "dumb") != "dumb"
    if shown:
        print(f"kernelgen: {text} …", file=sys.stderr, end="" if erases else "\n", flush=True)
    try:
        yield
    finally:
        if shown and erases:
            print("\r\033[K", file=sys.stderr, end="", flush=True)


def finish(plan: Plan, apply: Callable[[], None], *, dry_run: bool, as_json: bool, **facts: Any) -> bool:
    """Apply a plan, or print it in a dry run; `facts` go into the JSON. Returns whether more text may be printed."""
    if not dry_run:
        apply()
    if as_json:
        diff = {"diff": plan.diff()} if dry_run else {}
        print(json.dumps({"applied": bool(plan.changes) and not dry_run} | plan.as_dict() | facts | diff))
    elif dry_run:
        sys.stdout.write(plan.diff())
    else:
        for action in ("create", "update", "delete"):
            for path in plan.paths(action):
                print(f"  {action}  {path}")
    return not (dry_run or as_json)


def steps(lines: list[str]) -> str:
    """What the user does next, as a numbered list."""
    return "\nNext:\n" + "\n".join(f"  {n}. {line}" for n, line in enumerate(lines, 1))
