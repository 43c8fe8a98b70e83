"""Starts a process that judges without what a project can put in its way.

Python imports `sitecustomize` when it starts, and other modules by their names, from any folder of `sys.path`. An
editable install has the project's `src` there.
"""

import os
import site
import sys
from collections.abc import Sequence
from types import ModuleType


def start(projects: Sequence[str]) -> None:
    """Does what Python was told to leave out by `-S`, but for `sitecustomize`; and takes these projects' folders out of
    `sys.path`. An environment that lies in a project stays."""
    for name in ("sitecustomize", "usercustomize"):
        sys.modules[name] = ModuleType(name)
    if sys.flags.no_site:
        site.main()
    sys.path[:] = [folder for folder in sys.path if _lies_in(folder, sys.prefix) or not _lie_in_any(folder, projects)]


def _lie_in_any(folder: str, projects: Sequence[str]) -> bool:
    return any(_lies_in(folder, project) for project in projects)


def _lies_in(folder: str, parent: str) -> bool:
    folder, parent = os.path.realpath(folder), os.path.realpath(parent)
    return os.path.commonpath([folder, parent]) == parent
