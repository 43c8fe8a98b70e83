"""Whether anything that `configure` looked at has changed. If not, its build definition holds and Ninja can start."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from . import environment
from .configuration import Configuration
from .files import write
from .instantiations import instantiate_line
from .project import Project
from .request import Request
from .sources import architectures_line

RECORD = "snapshot.json"


def is_current(project: Project, request: Request, configuration: Configuration) -> bool:
    try:
        recorded = json.loads((request.folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return recorded == take(project, request, configuration)


def changed_in_project(project: Project, request: Request, configuration: Configuration) -> str:
    """What of the project a recorded configuration no longer describes: a file, or a word for it; "" if nothing."""
    try:
        recorded = json.loads((request.folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "the build definition"
    now = take(project, request, configuration)
    files = (file for file in now["files"] if not Path(file).is_absolute())
    if changed := [file for file in files if now["files"][file] != recorded["files"].get(file)]:
        return changed[0]
    words = {"request": "which ops there are", "sources": "which sources there are", "kernels": "an instantiate line"}
    return next((word for key, word in words.items() if now[key] != recorded[key]), "")


def record(project: Project, request: Request, configuration: Configuration) -> None:
    write(request.folder / RECORD, json.dumps(take(project, request, configuration)) + "\n")


def forget(request: Request) -> None:
    (request.folder / RECORD).unlink(missing_ok=True)


def take(project: Project, request: Request, configuration: Configuration) -> dict[str, Any]:
    """The state of everything that a configuration depends on. Of a source, that is its path and its line of
    instantiations; Ninja looks at the rest of it."""
    ops = project.source / "ops"
    programs = [shlex.split(configuration.compiler)[0], "nvcc", *environment.COMPILER_CACHES]
    tools = {program: shutil.which(program) for program in programs}
    files = [
        *("setup.py", *sorted(Path("build_tools").glob("*.py"))),
        *(path for pattern in ("*/__init__.py", "*/tuned.json") for path in sorted(ops.glob(pattern))),
        *(request.folder / "build.ninja", *configuration.watched, *filter(None, tools.values())),
    ]
    kernels = sorted(path for pattern in ("*/*.cu", "*/sm*/*.cu") for path in ops.glob(pattern))
    return {
        "request": [[op.name for op in request.ops], list(request.backends), request.tuned],
        "python": sys.executable,
        "variables": {name: os.environ.get(name) for name in (*environment.VARIABLES, "PATH")},
        "tools": tools,
        "files": {str(file): state(Path(file)) for file in files},
        "sources": sorted(str(path) for path in ops.glob("*/*.cpp")),
        "kernels": {str(path): [instantiate_line(path), architectures_line(path)] for path in kernels},
        "include": [str(folder) for folder in project.include_folders],
        "gpus": sorted(str(device) for device in Path("/dev").glob("nvidia[0-9]*")),
    }


def state(path: Path) -> list[int] | None:
    """When a file was written, in nanoseconds, and its size in bytes; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]
