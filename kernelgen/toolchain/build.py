"""Builds a project's libraries, in about the time that the compiler needs.

The project's own build_tools do it, in the project's Python. This is their client: it says what to build, and what was
built.
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
    """One variant of a project's libraries, as its environment asks for it."""

    root: Path
    environment: Mapping[str, str]
    python: Path | None = None

    def run(
        self, jobs: int | None = None, *, clean: bool = False, verbose: bool = False, quiet: bool = False
    ) -> "Outcome":
        """Bring the libraries up to date; `quiet` keeps standard output free.

        Raises:
            KernelgenError: there is no such build to be had here, or the compiler refused a source.
        """
        start = time.perf_counter()
        switches = {"--clean": clean, "--verbose": verbose, "--quiet": quiet}
        options = [name for name, wanted in switches.items() if wanted]
        options += ["-j", str(jobs)] if jobs else []
        report = build_tools.build(self.root, find_python(self.root, self.python), options, self.environment)
        return Outcome(report["variant"], report["configuration"], report["made"], time.perf_counter() - start)


@dataclass(frozen=True)
class Outcome:
    """What a build made: the objects and libraries that were written anew, and how long it took."""

    variant: str
    facts: dict[str, Any]
    made: list[str]
    seconds: float

    @property
    def folder(self) -> Path:
        """Where the objects are, relative to the project."""
        return Path("build") / self.variant

    @property
    def libraries(self) -> list[str]:
        return self.facts["libraries"]

    @property
    def compiled(self) -> list[str]:
        return [self.facts["objects"][path] for path in self.made if path in self.facts["objects"]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "architectures": self.facts["architectures"],
            "libraries": self.libraries,
            "linked": [path for path in self.made if path in self.libraries],
            "compiled": self.compiled,
            "files": len(self.facts["objects"]),
            "seconds": round(self.seconds, 3),
        }

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to run this variant; the release one needs nothing."""
        if self.variant == "release":
            return {}
        variables = {f"{self.facts['package'].upper()}_VARIANT": self.variant}
        if self.variant == "asan":
            # Its runtime must come before any other library, and so before Python itself; it would keep addresses
            # that CUDA wants, and report what Python itself never frees.
            command = [*shlex.split(self.facts["compiler"]), "-print-file-name=libasan.so"]
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
        architectures = " and ".join(self.facts["architectures"])
        what = f"{names}{place}{f' for {architectures}' if architectures else ''}"
        if not self.made:
            return f"nothing to do: {what} up to date ({self.seconds:.2f} s)"
        share = f"{len(self.compiled)} of {len(self.facts['objects'])} files compiled"
        return f"built {what} in {self.seconds:.1f} s ({share})"


def find_root(start: Path) -> Path:
    """The project that `start` lies in. Parses no answers file: a build that has nothing to do should be done at once.

    Raises:
        KernelgenError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".copier-answers.yml").is_file() and (folder / "setup.py").is_file():
            return folder
    from kernelgen.scaffold import project

    return project.find(start).root  # which knows what to say


def environment(*, arch: str | None = None, debug: bool = False, sanitize: str | None = None) -> dict[str, str]:
    """This process's environment, with what a command line chose in it."""
    chosen = {"TORCH_CUDA_ARCH_LIST": arch, "DEBUG": "1" if debug else None, "SANITIZE": sanitize}
    return {**os.environ, **{name: value for name, value in chosen.items() if value is not None}}
