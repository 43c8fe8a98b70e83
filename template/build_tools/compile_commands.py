"""compile_commands.json: how each source is compiled, for clangd and other tools that read C++."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from . import ninja
from .files import write
from .objects import Object
from .project import Project
from .request import Request

FILE = Path("compile_commands.json")


def write_compile_commands(project: Project, request: Request, tools: ninja.Tools, objects: Sequence[Object]) -> None:
    """Writes the file into the project's root, in the format of Clang's JSON compilation database."""
    cxx = [*shlex.split(tools.compiler), *ninja.cxx_flags(project, request, tools)]
    nvcc = [str(tools.toolkit.nvcc), *ninja.nvcc_flags(project, request, tools)] if tools.toolkit else []
    entries = [
        {
            "directory": str(Path.cwd()),
            "file": str(file.source),
            "output": str(file.path),
            "arguments": [
                *(nvcc if file.is_kernel else cxx),
                *map(str, file.flags),
                *("-c", str(file.source), "-o", str(file.path)),
            ],
        }
        for file in objects
    ]
    write(FILE, json.dumps(entries, indent=1) + "\n")
