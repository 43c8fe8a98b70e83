"""The record of a build definition, from which a later build can tell whether it still holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from .files import write

RECORD = "environment.json"


@dataclass(frozen=True)
class Configuration:
    """A build definition as it was written.

    Args:
        architectures: what the kernels are compiled for; empty without CUDA.
        objects: the label of each object, by its path.
        libraries: their paths.
        ninja, compiler: commands; cache: a command or None.
        jobs: compiler processes at once.
        watched: the files outside of the project that the definition depends on.
    """

    package: str
    architectures: list[str]
    objects: dict[str, str]
    libraries: list[str]
    ninja: str
    jobs: int
    cache: str | None
    compiler: str
    watched: list[str]


def write_configuration(folder: Path, configuration: Configuration) -> None:
    write(folder / RECORD, json.dumps(asdict(configuration), indent=1) + "\n")


def read_configuration(folder: Path) -> Configuration | None:
    """What was last written to a folder, if anything was, and by these very build tools."""
    try:
        return Configuration(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
