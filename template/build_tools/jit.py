"""Compiles one op into a cache, for a process that wants to load it: the package's own jit.py.

A result is kept under a hash of everything it was compiled from, so nothing is compiled twice and nothing stale is
used. The cache is the folder PACKAGE/jit below $XDG_CACHE_HOME (or ~/.cache); delete it at will.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from . import build
from .configuration import Configuration
from .configure import configure
from .files import write
from .lock import locked
from .messages import BuildError, Note
from .ops import Op
from .project import Project
from .request import Request, single_op
from .schema_header import schemas
from .sources import sources
from .variant import find_variant


def compile_op(
    project: Project, folder: Path, imported: Mapping[str, str], backends: Sequence[str], note: Note
) -> Path:
    """The folder in the cache with the libraries of these sources; compiles them if there is none.

    Args:
        folder: an op's folder, or another of the same name with other sources for it.
        imported: the schemas that the process has already defined.

    Raises:
        BuildError: the schemas differ, nothing can be compiled here, or the sources do not compile.
    """
    op = Op(folder, project.source / "ops" / folder.name / "__init__.py")
    if schemas(op.init) != imported:
        raise BuildError(f"the SCHEMAS of {op.name} changed since its import; start Python again to use them")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / project.package / "jit"
    work = cache / "work" / f"{op.name}-{_hash([str(folder.resolve()).encode()])}"
    variant = find_variant()
    request = single_op(op, variant, work / variant.name, backends)
    with locked(work, note):
        while True:
            configuration = configure(project, request, note)
            if not configuration.libraries:
                raise BuildError(f"{op.name} has no sources that can be compiled here; see `kernelgen doctor`")
            inputs = _hash(_inputs(request))
            headers = cache / f"{inputs}.headers"
            if headers.is_file():
                kept = cache / _hash([inputs.encode(), *_contents(json.loads(headers.read_text()))])
                if kept.is_dir():
                    return kept
            _compile(configuration, request, f"{project.package}.jit")
            if inputs == _hash(_inputs(request)):  # If not, a file was saved meanwhile: compile again.
                included = _included(configuration, request)
                write(headers, json.dumps(included))
                return _keep(configuration.libraries, cache / _hash([inputs.encode(), *_contents(included)]))


def _inputs(request: Request) -> Iterator[bytes]:
    """What the libraries depend on, apart from headers: flags, versions, schemas and sources."""
    (op,) = request.ops
    definition = [request.folder / name for name in ("build.ninja", "compiler.txt", "torch.txt", "cuda.txt")]
    return _contents([*definition, request.generated / "schemas" / f"{op.name}.h", *sorted(sources(op.folder))])


def _included(configuration: Configuration, request: Request) -> list[str]:
    """Every file that the compilers read, as they reported it; the paths are relative to the project, or absolute."""
    command = [configuration.ninja, "-f", str(request.folder / "build.ninja"), "-t", "deps"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({line.strip() for line in lines if line.startswith("    ")})


def _contents(files: Iterable[str | Path]) -> Iterator[bytes]:
    for file in map(Path, files):
        yield str(file).encode()
        yield file.read_bytes() if file.is_file() else b""


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:20]


def _compile(configuration: Configuration, request: Request, speaker: str) -> None:
    (op,) = request.ops
    print(f"{speaker}: compiling {op.name} …", end=" ", file=sys.stderr, flush=True)
    start = time.perf_counter()
    command = [configuration.ninja, "-f", str(request.folder / "build.ninja"), "-j", str(configuration.jobs)]
    environment = build.ninja_environment(configuration.cache)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print("failed" if done.returncode else f"{time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    if done.returncode:
        raise BuildError(f"{op.name} does not compile:\n{done.stdout}{done.stderr}")


def _keep(libraries: list[str], kept: Path) -> Path:
    """Copies libraries to their place in the cache: all of them at once, or none."""
    scratch = tempfile.mkdtemp(dir=kept.parent)
    for library in libraries:
        shutil.copy(library, scratch)
    try:
        os.rename(scratch, kept)
    except OSError:  # They are there already.
        shutil.rmtree(scratch)
    return kept
