"""A project's library for an emulated GPU: build/emulated-ARCHITECTURE/_cpu.so.

It is a variant of the project, whose CUDA kernels are registered for CPU tensors. Ninja compiles what changed:
build.ninja follows from what the project's build_tools say of its sources.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.emulator import compile, compiler, instances, runtime
from kernelgen.emulator.compiler import HERE, TORCH_GLUE, Compiler, EmulatorError
from kernelgen.emulator.gpus import Gpu
from kernelgen.emulator.instances import Object
from kernelgen.emulator.lock import locked
from kernelgen.emulator.precompiled import glue_header
from kernelgen.emulator.torch_names import names_folder
from kernelgen.files import write_atomically
from kernelgen.toolchain import build_tools

# Those of nvcc's flags that say what to compile, rather than how.
SHARED_FLAGS = re.compile(r"-[DUI].+|-isystem.+|-include.+")
GLUE_FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-w", "-DUSE_CUDA")
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
    with locked(root / folder.with_name(f"{folder.name}.lock")):
        if clean:
            shutil.rmtree(root / folder, ignore_errors=True)
        project = build_tools.ask(root, python, "objects", str(folder), gpu.build_architecture)
        packages = Path(project["torch"]["home"]).parent
        tools = compiler.find(packages)
        glue = _torch_flags(project)
        parts = [*runtime.device_objects(tools), *runtime.torch_objects(tools, glue)]
        _write(root / folder / "generated" / "emulated_project.cpp", _project_source(project, gpu))
        objects = list(instances.objects(_portable(project["objects"]), root, project["include"]))
        _write(root / folder / "build.ninja", _ninja_file(project, gpu, folder, tools, objects, parts))
        before_library = _state(root / library)
        before = {file.path: _state(root / file.path) for file in objects}
        command = [project["ninja"], "-f", str(folder / "build.ninja"), "-j", str(jobs or project["jobs"])]
        command += ["-v"] if verbose else []
        _run_ninja(command, root, quiet=quiet)
        linked = _state(root / library) != before_library
        compiled = [file.label for file in objects if _state(root / file.path) != before[file.path]]
    seconds = time.perf_counter() - start
    return EmulatedBuild(project["package"], gpu, library, compiled, linked, len(objects), seconds)


def _run_ninja(command: list[str], root: Path, *, quiet: bool) -> None:
    # The commands run this package, wherever it is installed.
    path = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    output = sys.stderr if quiet else sys.stdout
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as ninja:
        for line in ninja.stdout or ():
            if line != "ninja: no work to do.\n":
                print(line, end="", file=output, flush=True)
    if ninja.returncode:
        raise EmulatorError("the build for the emulated GPU failed; the messages are above.")


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


def _torch_flags(project: Mapping[str, Any]) -> list[str]:
    torch = project["torch"]
    return [f"-DTORCH_TARGET_VERSION={torch['target']}", "-isystem", f"{torch['home']}/include", f"-I{TORCH_GLUE}"]


def architecture_flags(gpu: Gpu) -> list[str]:
    number = gpu.capability * 10
    specific = [f"-D__CUDA_ARCH_FEAT_SM{gpu.capability}_ALL=1", f"-D__CUDA_ARCH_SPECIFIC__={number}"]
    return [f"-DEMULATED_CUDA_ARCH={number}", *(specific if gpu.architecture.endswith("a") else [])]


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


def _wrapped() -> list[str]:
    """The functions of PyTorch that torch_glue puts its own in the place of."""
    text = (TORCH_GLUE / "wrapped.cpp").read_text(encoding="utf-8")
    names = re.findall(r"\b__wrap_(\w+)\(|\bWRAP\(\s*\w+,\s*(\w+),", text)
    return sorted({first or second for first, second in names})


# ---- build.ninja ----------------------------------------------------------------------------------------------


def _ninja_file(
    project: Mapping[str, Any], gpu: Gpu, folder: Path, tools: Compiler, objects: list[Object], parts: list[Path]
) -> str:
    include = [f"-I{path}" for path in project["include"]]
    kernel_flags = [*architecture_flags(gpu), f"-DOP_NAMESPACE={project['package']}", *include]
    every_glue = [*GLUE_FLAGS, *_torch_flags(project), "-isystem", str(tools.headers)]
    glue_flags = [*every_glue, f"-DOP_NAMESPACE={project['package']}", *include]
    header = glue_header([tools.command, *every_glue])
    torch = f"{project['torch']['home']}/lib"
    names = names_folder(tools.command, Path(torch))
    link_flags = ["-Wl,--no-as-needed", f"-L{torch}", f"-Wl,-rpath,{torch}", "-ltorch", "-ltorch_cpu", "-ldl"]
    link_flags += [f"-Wl,--wrap={name}" for name in _wrapped()]
    lines = [
        "ninja_required_version = 1.10",
        f"builddir = {_escaped(folder)}",
        f"python = {_quoted(sys.executable)}",
        f"cxx = {_quoted(tools.command)}",
        f"kernel_flags = {_quoted(*kernel_flags)}",
        f"glue_flags = {_quoted(*glue_flags)}",
        f"link_flags = {_quoted(*link_flags)}",
        "rule kernel",
        "  command = $python -m kernelgen.emulator.compile $out $in $cxx "
        f"{_quoted(tools.headers)} $kernel_flags $own_flags",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = emulated $label",
        "rule glue",
        f"  command = $cxx -MD -MF $out.d -include {_quoted(header)} $glue_flags $own_flags -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = emulated $label",
        "rule link",
        f"  command = $python -m kernelgen.emulator.link $out $cxx {_quoted(names)} $in $link_flags",
        "  description = link $out",
    ]
    sources = " ".join(map(_escaped, compile.RULES))
    project_source = folder / "generated" / "emulated_project.cpp"
    project_object = Object(f"{folder}/emulated_project.o", str(project_source), str(project_source), False, [])
    # The kernels first: of a function that several objects have, the first is taken, and theirs report what they read.
    ordered = sorted([*objects, project_object], key=lambda file: not file.is_kernel)
    for file in ordered:
        rule, needs = ("kernel", sources) if file.is_kernel else ("glue", _escaped(f"{header}.gch"))
        own = [*file.flags, *(word for instance in file.instances for word in ("--instance", *instance))]
        lines.append(f"build {_escaped(file.path)}: {rule} {_escaped(file.source)} | {needs}")
        lines += [f"  own_flags = {_quoted(*own)}", f"  label = {file.label}"]
    inputs = " ".join(_escaped(path) for path in [*(file.path for file in ordered), *parts])
    lines.append(f"build {_escaped(folder / '_cpu.so')}: link {inputs} | {_escaped(HERE / 'link.py')}")
    return "\n".join(lines) + "\n"


def _quoted(*words: object) -> str:
    return shlex.join(str(word) for word in words).replace("$", "$$")


def _escaped(path: object) -> str:
    return re.sub(r"([$ :])", r"$\1", str(path))
