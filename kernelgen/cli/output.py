"""What a verb that writes says: a diff, the files it touched, or one JSON object."""

import json
import sys
from collections.abc import Callable
from typing import Any

from kernelgen.scaffold.plan import Plan


def note(text: str) -> None:
    """One line beside the output proper."""
    if text:
        print(f"kernelgen: {text}", file=sys.stderr)


def finish(plan: Plan, apply: Callable[[], None], *, dry_run: bool, as_json: bool, **facts: Any) -> bool:
    """Apply a plan, or show it in a dry run; `facts` go into the JSON. Returns whether text may follow."""
    if not dry_run:
        apply()
    if as_json:
        diff = {"diff": plan.diff()} if dry_run else {}
        print(json.dumps({"applied": not dry_run} | plan.as_dict() | facts | diff))
    elif dry_run:
        sys.stdout.write(plan.diff())
    else:
        for action in ("create", "update", "delete"):
            for path in plan.paths(action):
                print(f"  {action}  {path}")
    return not (dry_run or as_json)


def steps(lines: list[str]) -> str:
    """The next things to do, numbered."""
    return "\nNext:\n" + "\n".join(f"  {n}. {line}" for n, line in enumerate(lines, 1))
