"""Builds a project's libraries, with little time added to that of the compilers.

The project's own build_tools build, in the project's Python. This module starts them and reads their report.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.toolchain import build_tools
from kernelgen.toolchain.python import find_python


@dataclass(frozen=True)
class Build:
    """A build of a project's libraries; the environment's variables choose its variant and architectures."""

    root: Path
    environment: Mapping[str, str]
    python: Path | None = None

    def run(
        self,
        jobs: int | None = None,
        *,
        backend: str | None = None,
        clean: bool = False,
        verbose: bool = False,
        quiet: bool = False,
    ) -> "Outcome":
        """Bring the libraries up to date, or that of one backend; `quiet` keeps standard output free.

        Raises:
            KernelgenError: such a build is impossible here, or the compiler refused a source.
        """
        start = time.perf_counter()
        switches = {"--clean": clean, "--verbose": verbose, "--quiet": quiet}
        options = [name for name, wanted in switches.items() if wanted]
        options += ["-j", str(jobs)] if jobs else []
        options += ["--backend", backend] if backend else []
        report = build_tools.build(self.root, find_python(self.root, self.python), options, self.environment)
        return Outcome(report["variant"], report["configuration"], report["built"], time.perf_counter() - start)


@dataclass(frozen=True)
class Outcome:
    """What a build did. `configuration` is the record of its definition; `built` holds the paths of the objects and
    libraries that it wrote."""

    variant: str
    configuration: dict[str, Any]
    built: list[str]
    seconds: float

    @property
    def folder(self) -> Path:
        """Where the objects are, relative to the project."""
        return Path("build") / self.variant

    @property
    def libraries(self) -> list[str]:
        return self.configuration["libraries"]

    @property
    def compiled(self) -> list[str]:
        return [self.configuration["objects"][path] for path in self.built if path in self.configuration["objects"]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "architectures": self.configuration["architectures"],
            "libraries": self.libraries,
            "linked": [path for path in self.built if path in self.libraries],
            "compiled": self.compiled,
            "files": len(self.configuration["objects"]),
            "seconds": round(self.seconds, 3),
        }

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to run this variant; the release one needs nothing."""
        if self.variant == "release":
            return {}
        variables = {f"{self.configuration['package'].upper()}_VARIANT": self.variant}
        if self.variant == "asan":
            # The sanitizer's runtime must be loaded before any other library. Its shadow gap takes addresses that CUDA
            # needs, and its leak check reports memory that Python never frees.
            command = [*shlex.split(self.configuration["compiler"]), "-print-file-name=libasan.so"]
            runtime = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            variables |= {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0"}
        elif self.variant == "ubsan":
            variables["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
        return variables

    def usage(self) -> list[str]:
        words = [f"{name}={value}" for name, value in self.variables().items()]
        return [f"use it with: {' '.join(words)} pytest"] if words else []

    def __str__(self) -> str:
        names = " and ".join(Path(path).name for path in self.libraries) or "nothing: this project has no op"
        place = "" if self.variant == "release" else f" in {self.folder}"
        architectures = " and ".join(self.configuration["architectures"])
        libraries = f"{names}{place}{f' for {architectures}' if architectures else ''}"
        if not self.built:
            return f"nothing to do: {libraries} up to date ({self.seconds:.2f} s)"
        share = f"{len(self.compiled)} of {len(self.configuration['objects'])} files compiled"
        return f"built {libraries} in {self.seconds:.1f} s ({share})"


def find_root(start: Path) -> Path:
    """The project that `start` lies in. It parses no answers file, which would slow a build that has nothing to do.

    Raises:
        KernelgenError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".copier-answers.yml").is_file() and (folder / "setup.py").is_file():
            return folder
    from kernelgen.scaffold import project

    return project.find(start).root  # which raises, with the reason


def environment(
    *, arch: str | None = None, debug: bool = False, sanitize: str | None = None, perturb: int | None = None
) -> dict[str, str]:
    """This process's environment, with the command line's choices set in it."""
    chosen = {"TORCH_CUDA_ARCH_LIST": arch, "DEBUG": "1" if debug else None, "SANITIZE": sanitize}
    chosen["PERTURB"] = None if perturb is None else str(perturb)
    return {**os.environ, **{name: value for name, value in chosen.items() if value is not None}}
