"""What to build: which ops, for which backends, in which variant, with which tuned values, into which folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .ops import Op, find_ops
from .project import Project
from .variant import RELEASE, Variant


@dataclass(frozen=True)
class Request:
    """One build definition.

    Args:
        ops: what to compile.
        variant: the flags.
        folder: for build.ninja, the objects and what is generated for the compilers.
        library_folder: for the libraries.
        backends: which libraries, of "cpu" and "cuda".
        tuned: entries in place of those in each op's tuned.json.
    """

    ops: Sequence[Op]
    variant: Variant
    folder: Path
    library_folder: Path
    backends: Sequence[str] = ("cpu", "cuda")
    tuned: Mapping[str, Any] | None = None

    @property
    def generated(self) -> Path:
        return self.folder / "generated"

    def library(self, backend: str) -> Path:
        return self.library_folder / f"_{backend}.so"


def whole_project(project: Project, variant: Variant) -> Request:
    """Every op. The release libraries go into the package, where import finds them; the others stay in build/.

    Waits are for kernels, so a perturbed build has no CPU library.
    """
    library_folder = project.source if variant == RELEASE else variant.folder
    backends = ("cuda",) if variant.perturbation else ("cpu", "cuda")
    return Request(find_ops(project), variant, variant.folder, library_folder, backends)


def single_op(
    op: Op, variant: Variant, folder: Path, backends: Sequence[str], tuned: Mapping[str, Any] | None = None
) -> Request:
    """One op in a folder of its own, libraries included: the project's own build is not touched."""
    return Request([op], variant, folder, folder, backends, tuned)
