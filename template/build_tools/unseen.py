"""Changes that Ninja does not see: it compares times, and `cp -p`, `mv` and `rsync -a` keep those of a file."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection
from pathlib import Path

from .files import write
from .project import Project
from .snapshot import state

RECORD = "files.json"


def changed(project: Project, folder: Path) -> list[str]:
    """The files that are others than at the last build into the folder, and are said to be older than that."""
    record = folder / RECORD
    try:
        recorded, written = json.loads(record.read_text(encoding="utf-8")), record.stat().st_mtime_ns
    except (OSError, ValueError):
        return []
    now = _states(project)
    return [file for file in now if file in recorded and now[file] != recorded[file] and now[file][0] < written]


def remove_outdated(project: Project, folder: Path, ninja: str) -> None:
    """Removes the objects that may have been compiled from such files, and records the files as they are now."""
    if files := changed(project, folder):
        command = [ninja, "-f", str(folder / "build.ninja"), "-t", "deps"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        # Of objects of other settings Ninja says nothing: they go, too.
        current = _without(listed, files)
        for path in folder.rglob("*.o"):
            if str(path) not in current:
                path.unlink()
    write(folder / RECORD, json.dumps(_states(project)) + "\n")
    note_time(folder)


def _without(listed: str, files: Collection[str]) -> set[str]:
    """The objects, as Ninja lists them with what each was compiled from, that no such file is among."""
    objects, target = set(), ""
    for line in listed.splitlines():
        if line.strip() in files:
            objects.discard(target)
        elif line and not line.startswith(" "):
            target = line.partition(": #deps")[0]
            objects.add(target)
    return objects


def note_time(folder: Path) -> None:
    """The files were read until now."""
    os.utime(folder / RECORD)


def _states(project: Project) -> dict[str, list[int]]:
    states = {}
    for folder, _, names in os.walk(project.source):
        for path in (Path(folder, name) for name in names if not name.endswith((".py", ".pyc", ".so"))):
            if written := state(path):
                states[str(path)] = written
    return states
