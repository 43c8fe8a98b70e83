"""The text of build.ninja. Paths in it are relative to the project, where Ninja runs."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import environment
from .messages import BuildError
from .objects import Object
from .project import EVERY_OP, Project
from .request import Request
from .toolkit import Toolkit, Torch

# A script for sed, which drops the lines in which ptxas reports each kernel from what the compiler prints.
PTXAS_REPORT = r"""
/^ptxas info +: (Compiling entry|Function properties|Used [0-9]+ registers|Compile time|[0-9]+ bytes gmem)/d
/^ +[0-9]+ bytes stack frame/d
""".lstrip()


@dataclass(frozen=True)
class Tools:
    """What a build definition is written for. `compiler` is a command; without a toolkit there is no CUDA library."""

    torch: Torch
    toolkit: Toolkit | None
    compiler: str


def ninja_file(project: Project, request: Request, tools: Tools, objects: Sequence[Object]) -> str:
    """The build definition: rules, a statement for each object, and one for each library that has objects."""
    lines = ["ninja_required_version = 1.10", f"builddir = {escaped(request.folder)}"]
    lines += cxx_rules(project, request, tools)
    lines += cuda_rules(project, request, tools) if tools.toolkit else []
    for file in objects:
        lines += _object_statement(file, request)
    for backend in libraries(objects):
        lines += _library_statement(backend, request, [file for file in objects if file.backend == backend])
    return "\n".join(lines) + "\n"


def libraries(objects: Sequence[Object]) -> list[str]:
    """The backends that get a library: those with an object."""
    return [backend for backend in ("cpu", "cuda") if any(file.backend == backend for file in objects)]


def _object_statement(file: Object, request: Request) -> list[str]:
    # An object is compiled again when one of these files changes: see `_write_stamps` in configure.py.
    stamps = {"compiler": True, "torch": not file.is_kernel, "cuda": file.backend == "cuda"}
    needs = " ".join(escaped(request.folder / f"{name}.txt") for name, needed in stamps.items() if needed)
    rule = "nvcc" if file.is_kernel else "cxx"
    return [
        f"build {escaped(file.path)}: {rule} {escaped(file.source)} | {needs}",
        *([f"  own_flags = {quoted(*file.flags)}"] if file.flags else []),
        f"  label = {file.label}",
    ]


def _library_statement(backend: str, request: Request, objects: Sequence[Object]) -> list[str]:
    inputs = " ".join(sorted(escaped(file.path) for file in objects))
    return [
        f"build {escaped(request.library(backend))}: link {inputs}",
        "  libraries = $torch_libraries" + (" $cuda_libraries" if backend == "cuda" else ""),
    ]


# ---- Rules ----------------------------------------------------------------------------------------------------


def cxx_flags(project: Project, request: Request, tools: Tools) -> list[str]:
    """The flags of every object that the C++ compiler makes."""
    return [
        *("-std=c++17", *request.variant.cxx, "-Wall", "-Wextra", "-Wno-unused-parameter"),
        *("-fPIC", "-fvisibility=hidden", f"-DTORCH_TARGET_VERSION={project.torch_target_version}"),
        *_shared_flags(project, request),
        *("-isystem", str(tools.torch.home / "include")),
        *project.cxx_flags.get(EVERY_OP, []),
        *environment.words("CXXFLAGS"),
    ]


def cxx_rules(project: Project, request: Request, tools: Tools) -> list[str]:
    torch_libraries = ["-Wl,--no-as-needed", f"-L{tools.torch.home / 'lib'}", "-ltorch", "-ltorch_cpu"]
    # Where the compiler links libstdc++ statically, its symbols must not mix with those of PyTorch's: the two disagree
    # about locales, and formatting a number crashes.
    link = [*request.variant.link, "-Wl,--exclude-libs,ALL", *environment.words("LDFLAGS")]
    return [
        f"cxx = {quoted(*shlex.split(tools.compiler))}",
        f"cxx_flags = {quoted(*cxx_flags(project, request, tools))}",
        f"link_flags = {quoted(*link)}",
        f"torch_libraries = {quoted(*torch_libraries)}",
        # The compiler cache is left to the environment: with it or without, the command is the same to Ninja,
        # so that installing one does not compile everything again.
        "rule cxx",
        "  command = $$COMPILER_CACHE $cxx -MD -MF $out.d $cxx_flags $own_flags -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = c++  $label",
        # Renaming is atomic, so a process that loads the library sees the old one or the new one, whole.
        "rule link",
        "  command = $cxx -shared $link_flags -o $out.new $in $libraries && mv -f $out.new $out",
        "  description = link $out",
    ]


def nvcc_flags(project: Project, request: Request, tools: Tools) -> list[str]:
    """The flags of every object that nvcc makes."""
    compiler, *further = shlex.split(tools.compiler)
    return [
        # The compiler's whole path, since sccache opens it as a file.
        *("-std=c++17", *request.variant.nvcc, f"-ccbin={shutil.which(compiler)}"),
        # clang names every helper of CUDA's headers that a source does not use; nvcc itself names those of the source.
        "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wno-unused-function",
        *(f"-Xcompiler={flag}" for flag in further),
        *("--expt-relaxed-constexpr", "-Wno-deprecated-gpu-targets"),
        *_shared_flags(project, request),
        *project.nvcc_flags.get(EVERY_OP, []),
    ]


def cuda_rules(project: Project, request: Request, tools: Tools) -> list[str]:
    seed = request.variant.perturbation
    perturbing = [sys.executable, "-m", "build_tools.perturb", seed] if seed else []
    runtime = tools.toolkit.static_runtime
    if runtime is None:
        raise BuildError(
            f"{tools.toolkit.home} has no libcudart_static.a; install `nvidia-cuda-runtime` or a full toolkit."
        )
    return [
        f"nvcc = {quoted(*perturbing, tools.toolkit.nvcc)}",
        f"nvcc_flags = {quoted(*nvcc_flags(project, request, tools))}",
        # The static runtime ties the library to a driver rather than to one file name of libcudart.
        f"cuda_libraries = {quoted(runtime, '-ldl', '-lrt', '-lpthread')}",
        # What ptxas reports of each kernel (registers, shared memory, spills) is kept beside the object, and so is the
        # time of each phase; what else the compiler prints is shown.
        "rule nvcc",
        # Names of symbols hold neither nvcc's process id nor a random number, so that builds of the same sources are
        # the same. sccache bears neither a folder for temporary files nor a record of times: see ninja_environment.
        "  command = rm -f $out.csv; $$COMPILER_CACHE $nvcc -MD -MF $out.d $nvcc_flags $own_flags -Xptxas=-v"
        " -frandom-seed=$out $${NVCC_DIRECT:+--objdir-as-tempdir --time=$out.csv}"
        " --threads=$${NVCC_THREADS:-1} -c $in -o $out 2> $out.txt; status=$$?;"
        f" sed -Ef {quoted(request.folder / 'report.sed')} $out.txt >&2; exit $$status",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = nvcc $label",
    ]


def _shared_flags(project: Project, request: Request) -> list[str]:
    folders = [*project.include_folders, request.generated]
    return [f"-DOP_NAMESPACE={project.package}", *(f"-I{folder}" for folder in folders)]


# ---- Spelling -------------------------------------------------------------------------------------------------


def quoted(*words: object) -> str:
    """Words as one Ninja value that the shell will split again."""
    return shlex.join(str(word) for word in words).replace("$", "$$")


def escaped(path: object) -> str:
    """A path in a Ninja build statement."""
    return re.sub(r"([$ :])", r"$\1", str(path))
