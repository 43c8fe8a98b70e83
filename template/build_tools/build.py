"""A build: configures if that is needed, and runs Ninja."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from . import snapshot, unseen, variant
from .configuration import Configuration, read_configuration
from .diagnostics import errors, refusal_of_the_machine
from .lock import locked
from .messages import BuildError, MachineError, Note, show
from .project import Project
from .request import Request, whole_project

# What Ninja prints where every target is up to date; kernelgen says so itself, if at all.
NOTHING_TO_DO = "ninja: no work to do.\n"


@dataclass(frozen=True)
class Report:
    """What a build did. `built` holds the paths of the objects and libraries that it wrote."""

    configuration: Configuration
    built: list[str]


def build(
    project: Project,
    request: Request,
    note: Note,
    *,
    backends: Sequence[str] = ("cpu", "cuda"),
    jobs: int | None = None,
    clean: bool = False,
    verbose: bool = False,
    quiet: bool = False,
) -> Report:
    """Brings the libraries up to date, and goes straight to Ninja where nothing that configuring looks at has changed.

    Args:
        backends: which of the libraries that the request makes.
        jobs: compiler processes at once; None: by cores and memory.
        clean: forget what was built before.
        verbose: show the commands; quiet: keep standard output free, and print to standard error.

    Raises:
        BuildError: there can be no such build here, or a compiler refused a source.
    """
    with locked(request.folder, note) as lock:
        if clean:
            _remove(request)
        configuration = _configuration(project, request, note)
        unseen.remove_outdated(project, request.folder, configuration.ninja)
        outputs = [*configuration.objects, *configuration.libraries]
        before = {path: snapshot.state(Path(path)) for path in outputs}
        command = [configuration.ninja, "-f", str(request.folder / "build.ninja")]
        command += ["-j", str(jobs or configuration.jobs), *(["-v"] if verbose else [])]
        command += libraries(request, configuration, backends)
        failed, lines = run_ninja(command, configuration.cache, lock, quiet=quiet)
        unseen.note_time(request.folder)
        if failed:
            reason = refusal_of_the_machine(lines)
            text = f": {reason}" if reason else "; the compiler's messages are above."
            kind = MachineError if reason else BuildError
            raise kind(f"the native build failed{text}", errors(lines))
        built = [path for path in outputs if snapshot.state(Path(path)) != before[path]]
    return Report(configuration, built)


def libraries(request: Request, configuration: Configuration, backends: Sequence[str]) -> list[str]:
    """The libraries of these backends that a build definition makes: Ninja's targets."""
    return [path for path in configuration.libraries if path in {str(request.library(backend)) for backend in backends}]


def _configuration(project: Project, request: Request, note: Note) -> Configuration:
    """The configuration on disk, rewritten first if anything that it depends on has changed."""
    configuration = read_configuration(request.folder)
    if configuration is None or not snapshot.is_current(project, request, configuration):
        from .configure import configure  # Importing it takes as long as a build with nothing to do.

        snapshot.forget(request)
        notes: list[str] = []  # Kept back until configuring succeeds: beside a refusal they distract.
        configuration = configure(project, request, notes.append)
        snapshot.record(project, request, configuration)
        for text in notes:
            note(text)
    return configuration


def run_ninja(
    command: Sequence[str], cache: str | None, lock: IO[str], *, quiet: bool = False
) -> tuple[int, list[str]]:
    """Runs Ninja; returns its exit code and, where it shows no progress in place on a terminal, what it printed.

    Ninja and the compilers inherit the lock, so no other build starts while one of them still runs.
    """
    in_place = not quiet and sys.stdout is not None and sys.stdout.isatty()
    pipes: dict[str, Any] = {} if in_place else {"stdout": subprocess.PIPE, "text": True, "errors": "replace"}
    lines: list[str] = []
    with subprocess.Popen(command, env=ninja_environment(cache), pass_fds=[lock.fileno()], **pipes) as ninja:
        try:
            for line in ninja.stdout or ():
                if line == NOTHING_TO_DO:
                    continue
                show(line, sys.stderr if quiet else sys.stdout)
                lines.append(line)
            return ninja.wait(), lines
        except KeyboardInterrupt:
            # Ninja removes what is half-written; the lock is released after that.
            ninja.terminate()
            ninja.communicate()
            raise


def ninja_environment(cache: str | None) -> dict[str, str]:
    """The environment for build.ninja's commands: which compiler cache to use, and whether nvcc runs as itself."""
    # ccache reads the dependencies that the compiler writes, rather than preprocess everything a second time.
    variables = {"CCACHE_DEPEND": "1", **os.environ, "COMPILER_CACHE": cache or ""}
    if cache and Path(cache).name == "sccache":
        # Its server outlives the build, so a process that holds the lock must not start it.
        subprocess.run([cache, "--start-server"], capture_output=True, check=False)
    else:
        # sccache runs nvcc's steps itself: `nvcc -E --time` crashes then (CUDA 13.0), and does not find its files.
        variables["NVCC_DIRECT"] = "1"
    return variables


def clean(project: Project, note: Note) -> None:
    """Removes everything that builds wrote: the objects and libraries of every variant."""
    for name in variant.NAMES:
        folder = Path("build") / name
        if folder.is_dir():
            with locked(folder, note):
                shutil.rmtree(folder)
    for backend in ("cpu", "cuda"):
        (project.source / f"_{backend}.so").unlink(missing_ok=True)


def _remove(request: Request) -> None:
    shutil.rmtree(request.folder, ignore_errors=True)
    for backend in request.backends:
        request.library(backend).unlink(missing_ok=True)


def build_project(project: Project, note: Note) -> Configuration:
    """Builds the variant that the environment asks for."""
    return build(project, whole_project(project, variant.find_variant()), note).configuration
