"""Writes a build definition: build.ninja, the headers that the sources include, and a record of it all."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from . import environment, machine, ninja
from .architectures import choose_architectures, refuse_architecture_flags
from .compile_commands import write_compile_commands
from .configuration import Configuration, write_configuration
from .files import write
from .messages import BuildError, Note
from .objects import list_objects, unknown_ops
from .ops import find_ops
from .project import Project
from .request import Request
from .schema_header import schema_header
from .toolkit import Torch, find_cache, find_compiler, find_ninja, find_toolkit, find_torch, output_of, toolkit_homes
from .tuning_header import tuned_entries, tuning_headers
from .variant import RELEASE


def configure(project: Project, request: Request, note: Note) -> Configuration:
    """Writes build.ninja and what it needs into the request's folder.

    Raises:
        BuildError: a tool is missing, or a setting or a source asks for what cannot be built.
    """
    if sys.platform != "linux":
        raise BuildError("the native libraries are built on Linux; on Windows use WSL, on macOS a Linux container.")
    _check_flags(project)
    torch = find_torch(project.oldest_torch)
    toolkit = find_toolkit(torch, note) if "cuda" in request.backends else None
    architectures = choose_architectures(project, toolkit, note) if toolkit else []
    tools = ninja.Tools(torch, toolkit, find_compiler())
    object_files = list_objects(project, request, toolkit, architectures)
    backends = ninja.libraries(object_files)
    write_headers(request, architectures, note)
    _write_stamps(request.folder, tools)
    write(request.folder / "build.ninja", ninja.ninja_file(project, request, tools, object_files))
    if request.folder == RELEASE.folder:
        write_compile_commands(project, request, tools, object_files)
    for backend in {"cpu", "cuda"} - set(backends):
        request.library(backend).unlink(missing_ok=True)
    configuration = Configuration(
        package=project.package,
        architectures=architectures,
        objects={str(file.path): file.label for file in object_files},
        libraries=[str(request.library(backend)) for backend in backends],
        ninja=find_ninja(),
        jobs=machine.jobs(),
        cache=None if request.variant.perturbation else find_cache(),  # No cache knows what perturb.py does.
        compiler=tools.compiler,
        watched=[str(path) for path in _watched(torch)],
    )
    write_configuration(request.folder, configuration)
    return configuration


def _watched(torch: Torch) -> list[Path]:
    toolkits = [home / "bin" / "nvcc" for home in toolkit_homes(torch)]
    return [torch.home / "version.py", Path(find_ninja()), *toolkits]


def _check_flags(project: Project) -> None:
    refuse_architecture_flags(project)
    if unknown := unknown_ops(project, find_ops(project)):
        raise BuildError(f"setup.py has flags for {', '.join(unknown)}, and there is no such op; correct the name.")


def write_headers(request: Request, architectures: list[str], note: Note) -> None:
    """The headers that sources include as `schemas/OP.h`, `tuned/cpu/OP.h` and `tuned/cuda/OP.h`."""
    for op in request.ops:
        write(request.generated / "schemas" / f"{op.name}.h", schema_header(op.init))
        entries = tuned_entries(op.folder) if request.tuned is None else request.tuned
        for backend, text in tuning_headers(op.name, entries, architectures, note).items():
            write(request.generated / "tuned" / backend / f"{op.name}.h", text)


def _write_stamps(folder: Path, tools: ninja.Tools) -> None:
    """Writes files that objects depend on: versions and settings that no command line shows."""
    compiler = output_of(*shlex.split(tools.compiler), "-dumpfullversion", "-dumpmachine")
    nvcc = output_of(tools.toolkit.nvcc, "--version") if tools.toolkit else ""
    write(folder / "compiler.txt", f"{compiler}{_settings(environment.READ_BY_COMPILER)}\n")
    write(folder / "torch.txt", f"{tools.torch.version}\n")
    write(folder / "cuda.txt", f"{nvcc}{_settings(environment.READ_BY_NVCC)}\n" if tools.toolkit else "")
    write(folder / "report.sed", ninja.PTXAS_REPORT)


def _settings(variables: tuple[str, ...]) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in variables}
