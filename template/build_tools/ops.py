"""The ops of a project: every folder of ops/ that is a package. They are found, never listed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .messages import BuildError
from .project import Project


@dataclass(frozen=True)
class Op:
    """One op: the folder of its sources, and the `__init__.py` that holds its schemas."""

    folder: Path
    init: Path

    @property
    def name(self) -> str:
        return self.folder.name


def find_ops(project: Project) -> list[Op]:
    """The ops, sorted by name.

    Raises:
        BuildError: there is no such package, as after its folder was renamed.
    """
    if not project.source.is_dir():
        raise BuildError(f"there is no folder {project.source}, the package that setup.py names; put it back.")
    return [Op(init.parent, init) for init in sorted((project.source / "ops").glob("*/__init__.py"))]
