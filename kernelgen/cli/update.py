"""`kernelgen update`."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.cli import output
from kernelgen.cli.parser import Parser
from kernelgen.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from kernelgen.scaffold.update.plan import Update


# How many files a line names; --json lists them all.
_SHOWN = 8


def run(arguments: list[str]) -> int:
    parser = Parser("update", "Bring a project to the newest template, keeping what was edited.")
    parser.add_argument("--to", metavar="REF", help="a tag, branch or commit of the template (default: the newest)")
    text = "change the answer to one question"
    parser.add_argument("--data", action="append", default=[], metavar="NAME=VALUE", help=text)
    ending = parser.add_mutually_exclusive_group()
    text = "end an update with conflicts, once they are resolved"
    ending.add_argument("--continue", dest="finish", action="store_true", help=text)
    ending.add_argument("--abort", action="store_true", help="undo an update with conflicts")
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)
    if (options.finish or options.abort) and (options.to or options.data or options.dry_run):
        raise UsageError("--continue and --abort end the last update; leave the other options out.")

    from kernelgen.scaffold import new, project
    from kernelgen.scaffold.update import plan, unfinished

    with project.writing(options.project, unmerged=options.finish or options.abort) as home:
        if options.finish or options.abort:
            return _end(home.root, options)
        unfinished.check(home.root)
        update = plan.plan(home, options.to, new.read_data(options.data, None), output.note)
        return _finish(update, options)


def _end(root: Path, options: argparse.Namespace) -> int:
    from kernelgen.scaffold.update import unfinished

    files = unfinished.abort(root) if options.abort else unfinished.finish(root)
    if options.json:
        print(json.dumps({"root": str(root), "aborted": options.abort, "conflicts": files}))
    elif options.abort:
        print("The update is undone.")
    else:
        print("The conflicts are resolved. Next: build and test, then git add --all && git commit")
    return 0


def _finish(update: "Update", options: argparse.Namespace) -> int:
    root = update.plan.root
    output.note("\nkernelgen: ".join(_remarks(update)))
    printing = output.finish(update.plan, update.apply, dry_run=options.dry_run, as_json=options.json, **update.facts)
    if printing:
        same = not update.plan.changes
        what = f"is {update.after}, and has nothing new" if same else f"was {update.before} and is {update.after}"
        print(f"\nThe template {what}.")
    if not update.conflicts:
        return 0
    if not options.json:
        raise ConflictError(_conflicts(update, root, options.dry_run))
    return ConflictError.exit_code


def _remarks(update: "Update") -> list[str]:
    """What a person should know of a merge that worked."""
    root, lists = update.plan.root, []
    lists.append(("merged with your edits", [_typed(root, path) for path in update.merged]))
    pairs = [f"{_typed(root, old)} → {_typed(root, new)}" for old, new in update.renamed]
    lists.append(("renamed", pairs))
    lists.append(("you deleted it, so it stays deleted", [_typed(root, path) for path in update.skipped]))
    lists.append(("op whose recipe the template no longer has: its folder is yours", update.orphans))
    ignored = [_typed(root, path) for path in update.ignored]
    lists.append(("git ignores it here, so add it with git add --force", ignored))
    return [f"{label}: {_some(items)}" for label, items in lists if items]


def _some(items: list[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _conflicts(update: "Update", root: Path, dry_run: bool) -> str:
    from kernelgen.scaffold.update.unfinished import from_here

    lines = [f"  {_typed(root, path)}: {what}" for path, what in sorted(update.conflicts.items())]
    if dry_run:
        return "\n".join(["These files would be in conflict:", *lines])
    step, files = from_here(root, sorted(update.conflicts))
    return "\n".join(
        [
            "These files are in conflict:",
            *lines,
            f"Next: choose between the marked lines, {step}git add {files} (or git rm), then kernelgen update "
            "--continue; kernelgen update --abort undoes the update.",
            *([f"Only, git's index could not be marked: {update.unmarked}"] if update.unmarked else []),
        ]
    )


def _typed(root: Path, path: str) -> str:
    """A file of the project as it is named from the current folder."""
    return os.path.relpath(root / path, Path.cwd().resolve())
