"""What has changed since the libraries were built. It starts Ninja, and needs no compiler."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import snapshot, unseen
from .build import libraries
from .configuration import read_configuration
from .project import Project
from .request import Request

# As Ninja explains why it would run a command: an input is newer than the output, which may also be missing.
_NEWER = re.compile(r"ninja explain: .* (?:older than most recent input|input) (\S+)")
_EXPLANATION = re.compile(r"ninja explain: (.*)")


def reason(project: Project, request: Request, backends: Sequence[str]) -> str:
    """Why the libraries of these backends are not what a build would make now, in a clause; "" if they are.

    The machine and the environment are left aside: another compiler on PATH makes no library stale.
    """
    configuration = read_configuration(request.folder)
    if configuration is None:
        return "nothing is built yet"
    wanted = libraries(request, configuration, backends)
    if absent := [library for library in wanted if not Path(library).is_file()]:
        return f"{absent[0]} is not built"
    if changed := snapshot.changed_in_project(project, request, configuration):
        return f"{changed} changed since the last build"
    if files := unseen.changed(project, request.folder):
        return f"{files[0]} changed since the last build"
    command = [configuration.ninja, "-f", str(request.folder / "build.ninja"), "-n", "-d", "explain"]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if match := _NEWER.search(output):
        return f"{match[1]} changed since the last build"
    if match := _EXPLANATION.search(output):
        return match[1]
    return output.strip() if done.returncode else ""
