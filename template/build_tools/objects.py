"""The objects that a build makes: of which source, with which flags of its own, for which library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .architectures import gencode
from .instantiations import instantiations
from .ops import Op
from .project import EVERY_OP, Project
from .request import Request
from .sources import backend_of, compiled_for, macros, sources
from .toolkit import Toolkit


@dataclass(frozen=True)
class Object:
    """An object file. `label` names the object to people; `flags` come after those of every object of its kind."""

    path: Path
    source: Path
    label: str
    flags: Sequence[str] = ()

    @property
    def is_kernel(self) -> bool:
        """Whether nvcc compiles it; else the C++ compiler does."""
        return self.source.suffix == ".cu"

    @property
    def backend(self) -> str:
        return backend_of(self.source)


def list_objects(project: Project, request: Request, toolkit: Toolkit | None, architectures: list[str]) -> list[Object]:
    """Every object of a build for these architectures, op by op."""
    return [file for op in request.ops for file in _objects_of(op, project, request, toolkit, architectures)]


def _objects_of(
    op: Op, project: Project, request: Request, toolkit: Toolkit | None, architectures: list[str]
) -> Iterator[Object]:
    # The macros say what is compiled. The op's folder is on the include path for the files in its sm80/ and sm90/.
    shared = [*macros(op.folder, architectures), f"-I{op.folder}"] if toolkit else []
    for source in sources(op.folder):
        backend = backend_of(source)
        if backend not in request.backends or (backend == "cuda" and not toolkit):
            continue
        if source.suffix == ".cu":
            flags = [*shared, *project.nvcc_flags.get(op.name, [])]
            yield from _kernel_objects(op, source, request, compiled_for(source, architectures), flags)
        else:
            # USE_CUDA reveals the current-stream function of the stable ABI.
            cuda = ["-DUSE_CUDA", "-isystem", str(toolkit.include), *shared] if backend == "cuda" else []
            flags = [*cuda, *project.cxx_flags.get(op.name, [])]
            yield Object(_path(op, source, request, f"{source.name}.o"), source, str(source), flags)


def _kernel_objects(
    op: Op, source: Path, request: Request, architectures: list[str], flags: Sequence[str]
) -> Iterator[Object]:
    """One object for each instantiation of a .cu file; none if it is for none of the chosen architectures."""
    if not architectures:
        return
    code = list(dict.fromkeys(flag for architecture in architectures for flag in gencode(architecture)))
    for instance in instantiations(source):
        # Objects of other architectures have other names and stay, so that going back to them costs one link.
        name = ".".join([*_name_parts(source, instance), "-".join(architectures).replace(".", ""), "o"])
        label = _label(source, instance)
        yield Object(_path(op, source, request, name), source, label, [*code, *_defined(instance), *flags])


def _path(op: Op, source: Path, request: Request, name: str) -> Path:
    return request.folder / op.name / source.relative_to(op.folder).with_name(name)


def _name_parts(source: Path, instance: Mapping[str, str]) -> list[str]:
    return [source.name, *(["-".join(instance.values())] if instance else [])]


def _label(source: Path, instance: Mapping[str, str]) -> str:
    return f"{source} ({', '.join(instance.values())})" if instance else str(source)


def _defined(instance: Mapping[str, str]) -> list[str]:
    return [f"-DINSTANCE_{parameter}={value}" for parameter, value in instance.items()]


def emulated_objects(project: Project, request: Request, architecture: str) -> Iterator[Object]:
    """The objects of every CUDA source for an emulated GPU: the C++ compiler makes all of them, with these flags."""
    for op in request.ops:
        shared = [*macros(op.folder, [architecture]), f"-I{op.folder}"]
        for source in sources(op.folder):
            if source.suffix != ".cu" and backend_of(source) == "cuda":
                flags = [*shared, *project.cxx_flags.get(EVERY_OP, []), *project.cxx_flags.get(op.name, [])]
                yield Object(_path(op, source, request, f"{source.name}.o"), source, str(source), flags)
            elif source.suffix == ".cu" and compiled_for(source, [architecture]):
                flags = [*shared, *project.nvcc_flags.get(EVERY_OP, []), *project.nvcc_flags.get(op.name, [])]
                for instance in instantiations(source):
                    path = _path(op, source, request, ".".join([*_name_parts(source, instance), "o"]))
                    yield Object(path, source, _label(source, instance), [*_defined(instance), *flags])


def unknown_ops(project: Project, ops: Sequence[Op]) -> list[str]:
    """The names in the project's tables of flags that are no op's."""
    known = {EVERY_OP, *(op.name for op in ops)}
    return sorted({*project.cxx_flags, *project.nvcc_flags} - known)
