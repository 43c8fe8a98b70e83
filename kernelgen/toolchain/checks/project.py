"""The project: its record of ops against its folders, and its libraries against its sources and torch."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelgen.toolchain.finding import Finding, error, ok, warning

SOURCES = {"cpu": ("cpu*.cpp", "*.h"), "cuda": ("*.cu", "*.cuh", "cuda*.cpp", "*.h")}
BUILD = "kernelgen build"


@dataclass(frozen=True)
class CheckedProject:
    """A project's folder, its package's folder, and the names of the ops that its answers file records."""

    root: Path
    package: Path
    recorded_ops: list[str]


def check(project: CheckedProject, python: Path | None) -> Iterator[Finding]:
    yield from _record(project)
    yield from _libraries(project, python)


def _record(project: CheckedProject) -> Iterator[Finding]:
    folders = {init.parent.name for init in project.package.glob("ops/*/__init__.py")}
    recorded, answers = set(project.recorded_ops), ".copier-answers.yml"
    for name in sorted(recorded - folders):
        folder = project.package / "ops" / name
        checkout = f"git checkout -- {shlex.quote(str(folder))}"
        if folder.is_dir():
            text = f"ops/{name} has no __init__.py, so it is no op: it is not built and cannot be called."
            yield warning("ops", text, f"{checkout}/__init__.py, or kernelgen remove-op {name} --force")
        else:
            text = f"{answers} lists the op {name}, and there is no folder ops/{name}."
            yield warning("ops", text, f"kernelgen doctor --fix, or {checkout}")
    for name in sorted(folders - recorded):
        text = f"ops/{name} is built, and {answers} does not list it, so no template update reaches it."
        yield warning("ops", text, f"nothing, if you wrote it without kernelgen; else git checkout -- {answers}")
    if recorded == folders:
        yield ok("ops", f"{len(folders)}, as {answers} lists them")


def _libraries(project: CheckedProject, python: Path | None) -> Iterator[Finding]:
    present = [backend for backend in SOURCES if (project.package / f"_{backend}.so").is_file()]
    if not present:
        yield warning("libraries", "nothing is compiled yet.", BUILD)
        return
    stale = {backend: newer for backend in present if (newer := _newer(project, backend))}
    for backend, source in stale.items():
        text = f"_{backend}.so is older than {source.relative_to(project.root)}."
        yield warning("libraries", text, BUILD)
    missing = _missing(project, python) if python else {}
    if problem := missing.get("import"):
        folder, run = shlex.quote(str(project.package.parent)), shlex.quote(str(python))
        cure = f"cd {folder} && {run} -c 'import {project.package.name}'"
        yield error("import", f"{project.package.name} does not import: {problem}", cure)
        return
    for backend in present:
        problem = missing.get(backend.upper())
        if problem and problem.startswith("this torch"):
            yield ok("libraries", f"_{backend}.so is not loaded: {problem}")
        elif problem:
            yield error("libraries", f"{problem}.", BUILD)
        elif backend not in stale:
            yield ok("libraries", f"_{backend}.so is as new as its sources and loads")


def _newer(project: CheckedProject, backend: str) -> Path | None:
    """The newest of a library's sources, if it changed after the library was linked."""
    built = (project.package / f"_{backend}.so").stat().st_mtime
    sources = [path for pattern in SOURCES[backend] for path in project.package.rglob(pattern)]
    newest = max([*sources, project.root / "setup.py"], key=lambda path: path.stat().st_mtime)
    return newest if newest.stat().st_mtime > built else None


def _missing(project: CheckedProject, python: Path) -> dict[str, str | None]:
    """What importing the package says of each library; under "import", why it cannot be imported."""
    name = project.package.name
    code = f"import json; from {name} import _library; print(json.dumps(_library.missing))"
    environment = os.environ | {"PYTHONPATH": str(project.package.parent)}
    command = [str(python), "-c", code]
    try:
        done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError) as problem:
        return {"import": str(problem)}
    except ValueError:
        return {"import": (done.stderr.strip().splitlines() or ["no message"])[-1]}
