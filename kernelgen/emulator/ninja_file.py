"""build.ninja of a project's library for an emulated GPU: a rule each for kernels, for the glue and for linking."""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgen.emulator import compile
from kernelgen.emulator.compiler import HERE, TORCH_GLUE, Compiler
from kernelgen.emulator.gpus import Gpu
from kernelgen.emulator.instances import Object
from kernelgen.emulator.precompiled import glue_header
from kernelgen.emulator.torch_names import names_folder

GLUE_FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-w", "-DUSE_CUDA")


def torch_flags(project: Mapping[str, Any]) -> list[str]:
    """Those of what includes PyTorch's headers."""
    torch = project["torch"]
    return [f"-DTORCH_TARGET_VERSION={torch['target']}", "-isystem", f"{torch['home']}/include", f"-I{TORCH_GLUE}"]


def architecture_flags(gpu: Gpu) -> list[str]:
    """Those that say which GPU a kernel is compiled for."""
    number = gpu.capability * 10
    specific = [f"-D__CUDA_ARCH_FEAT_SM{gpu.capability}_ALL=1", f"-D__CUDA_ARCH_SPECIFIC__={number}"]
    return [f"-DEMULATED_CUDA_ARCH={number}", *(specific if gpu.architecture.endswith("a") else [])]


def ninja_file(
    project: Mapping[str, Any], gpu: Gpu, folder: Path, tools: Compiler, objects: list[Object], parts: list[Path]
) -> str:
    """The text of build.ninja.

    Args:
        project: what build_tools say of the project, as its command `objects` prints it.
        folder: where it is built, relative to the project's root.
        parts: objects of the emulated device and of its glue with PyTorch, which all projects share.
    """
    include = [f"-I{path}" for path in project["include"]]
    kernel_flags = [*architecture_flags(gpu), f"-DOP_NAMESPACE={project['package']}", *include]
    every_glue = [*GLUE_FLAGS, *torch_flags(project), "-isystem", str(tools.headers)]
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
    # The kernels first: of a function that several objects have, the first is taken, and theirs report what they read.
    ordered = sorted([*objects, _project_object(folder)], key=lambda file: not file.is_kernel)
    needed = {True: " ".join(map(_escaped, compile.RULES)), False: _escaped(f"{header}.gch")}
    lines += [line for file in ordered for line in _build_lines(file, needed[file.is_kernel])]
    inputs = " ".join(_escaped(path) for path in [*(file.path for file in ordered), *parts])
    lines.append(f"build {_escaped(folder / '_cpu.so')}: link {inputs} | {_escaped(HERE / 'link.py')}")
    return "\n".join(lines) + "\n"


def _project_object(folder: Path) -> Object:
    """That of what kernelgen writes for the project."""
    source = str(folder / "generated" / "emulated_project.cpp")
    return Object(f"{folder}/emulated_project.o", source, source, False, [])


def _build_lines(file: Object, needed: str) -> list[str]:
    own = [*file.flags, *(word for instance in file.instances for word in ("--instance", *instance))]
    rule = "kernel" if file.is_kernel else "glue"
    build = f"build {_escaped(file.path)}: {rule} {_escaped(file.source)} | {needed}"
    return [build, f"  own_flags = {_quoted(*own)}", f"  label = {file.label}"]


def _quoted(*words: object) -> str:
    return shlex.join(str(word) for word in words).replace("$", "$$")


def _escaped(path: object) -> str:
    return re.sub(r"([$ :])", r"$\1", str(path))


def _wrapped() -> list[str]:
    """The functions of PyTorch that torch_glue puts its own in the place of."""
    text = (TORCH_GLUE / "wrapped.cpp").read_text(encoding="utf-8")
    names = re.findall(r"\b__wrap_(\w+)\(|\bWRAP\(\s*\w+,\s*(\w+),", text)
    return sorted({first or second for first, second in names})
