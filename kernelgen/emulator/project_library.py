"""A project's library for an emulated GPU: build/emulated-ARCHITECTURE/_cpu.so.

It is a variant of the project, whose CUDA kernels are registered for CPU tensors. Ninja compiles what changed:
build.ninja follows from what the project's build_tools say of its sources.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelgen.emulator import compiler, instances, runtime
from kernelgen.emulator.compiler import HERE, EmulatorError
from kernelgen.emulator.gpus import Gpu
from kernelgen.emulator.lock import locked
from kernelgen.emulator.ninja_file import ninja_file, torch_flags
from kernelgen.files import write_atomically
from kernelgen.toolchain import build_tools

# Those of nvcc's flags that say what to compile, rather than how.
SHARED_FLAGS = re.compile(r"-[DUI].+|-isystem.+|-include.+")
WITH_VALUE = ("-D", "-U", "-I", "-isystem", "-include")


@dataclass(frozen=True)
class EmulatedBuild:
    """What a build did. `compiled` holds the labels of the objects that it wrote, `linked` says whether the library is
    new; `files` counts all objects."""

    package: str
    gpu: Gpu
    library: Path
    compiled: list[str]
    linked: bool
    files: int
    seconds: float

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to run this library."""
        return {f"{self.package.upper()}_VARIANT": self.gpu.variant}

    def as_dict(self) -> dict[str, Any]:
        facts = {"variant": self.gpu.variant, "libraries": [str(self.library)], "compiled": self.compiled}
        return {**facts, "files": self.files, "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        library = f"{self.library} for the emulated GPU {self.gpu.architecture}"
        if not self.linked:
            return f"nothing to do: {library} is up to date ({self.seconds:.2f} s)"
        return f"built {library} in {self.seconds:.1f} s ({len(self.compiled)} of {self.files} files compiled)"


def build(
    root: Path,
    python: Path,
    gpu: Gpu,
    *,
    jobs: int | None = None,
    clean: bool = False,
    verbose: bool = False,
    quiet: bool = False,
) -> EmulatedBuild:
    """Brings the library up to date.

    Args:
        root: the project; `python`: its Python.
        jobs: compiler processes at once; None: by cores and memory.
        clean: forget what was built before.
        verbose: show the commands; quiet: keep standard output free, and show no progress.

    Raises:
        KernelgenError: a compiler, a header or a symbol is missing, or a source cannot be compiled.
    """
    start = time.perf_counter()
    folder = Path("build") / gpu.variant
    library = folder / "_cpu.so"
    with locked(root / folder.with_name(f"{folder.name}.lock")) as lock:
        if clean:
            shutil.rmtree(root / folder, ignore_errors=True)
        project = build_tools.ask(root, python, "objects", str(folder), gpu.build_architecture)
        packages = Path(project["torch"]["home"]).parent
        tools = compiler.find(packages)
        glue = torch_flags(project)
        parts = [*runtime.device_objects(tools), *runtime.torch_objects(tools, glue)]
        _write(root / folder / "generated" / "emulated_project.cpp", _project_source(project, gpu))
        objects = list(instances.objects(_portable(project["objects"]), root, project["include"]))
        _write(root / folder / "build.ninja", ninja_file(project, gpu, folder, tools, objects, parts))
        before_library = _state(root / library)
        before = {file.path: _state(root / file.path) for file in objects}
        command = [project["ninja"], "-f", str(folder / "build.ninja"), "-j", str(jobs or project["jobs"])]
        command += ["-v"] if verbose else []
        _run_ninja(command, root, lock, quiet=quiet)
        linked = _state(root / library) != before_library
        compiled = [file.label for file in objects if _state(root / file.path) != before[file.path]]
    seconds = time.perf_counter() - start
    return EmulatedBuild(project["package"], gpu, library, compiled, linked, len(objects), seconds)


def _run_ninja(command: list[str], root: Path, lock: IO[str], *, quiet: bool) -> None:
    """Runs Ninja, which inherits the lock, as its compilers do: no other build starts while one of them still runs."""
    # The commands run this package, wherever it is installed.
    path = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    output = sys.stderr if quiet else sys.stdout
    pipes = {"stdout": subprocess.PIPE, "text": True, "errors": "replace"}
    with subprocess.Popen(command, cwd=root, env=environment, pass_fds=[lock.fileno()], **pipes) as ninja:
        try:
            for line in ninja.stdout or ():
                if line != "ninja: no work to do.\n":
                    print(line, end="", file=output, flush=True)
        except KeyboardInterrupt:
            ninja.terminate()  # It removes what is half-written.
            ninja.communicate()
            raise
    if ninja.returncode:
        raise EmulatorError("The build for the emulated GPU failed; the messages are above.")


def _write(path: Path, text: str) -> None:
    """Writes a file, unless it holds this text: what depends on it is compiled again only if it has changed."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


# ---- What is compiled -----------------------------------------------------------------------------------------


def _portable(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of a build; of nvcc's flags only the macros and include folders."""
    return [{**file, "flags": _shared(file["flags"])} if file["is_kernel"] else file for file in files]


def _shared(flags: list[str]) -> list[str]:
    kept = []
    for i, flag in enumerate(flags):
        if SHARED_FLAGS.fullmatch(flag):
            kept.append(flag)
        elif flag in WITH_VALUE:
            kept += flags[i : i + 2]
    return kept


def _project_source(project: Mapping[str, Any], gpu: Gpu) -> str:
    schemas = [f"    {{{json.dumps(op)}, {json.dumps(schema)}}}," for op, schema in project["schemas"].items()]
    return "\n".join(
        [
            "// Written by kernelgen.",
            '#include "project.h"',
            "namespace emulated_project {",
            f"const int kCapability = {gpu.capability};",
            f'const char* const kArchitecture = "{gpu.architecture}";',
            "const Schema kSchemas[] = {",
            *schemas,
            "    {nullptr, nullptr}};",
            f"const int kSchemaCount = {len(schemas)};",
            "}  // namespace emulated_project",
            "",
        ]
    )
