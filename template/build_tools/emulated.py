"""What `kernelgen` compiles a library for an emulated GPU from, as data. It needs no CUDA toolkit.

The library runs the CUDA sources on CPU tensors, so that kernels are tested on a machine without a GPU. It is a variant
of the project, in build/emulated-ARCHITECTURE, and kernelgen compiles it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import machine, unseen
from .configure import write_headers
from .messages import Note
from .objects import Object, emulated_objects
from .ops import find_ops
from .project import Project
from .request import Request
from .schema_header import schemas
from .toolkit import find_ninja, find_torch
from .variant import RELEASE


def describe(project: Project, folder: Path, architecture: str, note: Note) -> dict[str, Any]:
    """Writes the headers that the sources include into the folder; returns the objects and what they are compiled with.

    Raises:
        BuildError: torch or Ninja is missing, or a source asks for what cannot be built.
    """
    torch = find_torch(project.oldest_torch)
    request = Request(find_ops(project), RELEASE, folder, folder)
    write_headers(request, [architecture], note)
    ninja = find_ninja()
    unseen.remove_outdated(project, folder, ninja)
    return {
        "package": project.package,
        "torch": {"home": str(torch.home), "version": torch.version, "target": project.torch_target_version},
        "ninja": ninja,
        "jobs": machine.jobs(),
        "include": [str(path) for path in (*project.include_folders, request.generated)],
        "schemas": {name: schema for op in request.ops for name, schema in schemas(op.init).items()},
        "objects": [_as_data(file) for file in emulated_objects(project, request, architecture)],
    }


def _as_data(file: Object) -> dict[str, Any]:
    paths = {"path": str(file.path), "source": str(file.source)}
    return {**paths, "label": file.label, "flags": list(file.flags), "is_kernel": file.is_kernel}
