"""Builds a project's libraries, in about the time that the compiler needs.

The definition of the build is the project's setup.py. It writes a Ninja file and says in `environment.json` what it
looked at. As long as all of that stands as it stood, Ninja is started at once: no setuptools, no torch, not even the
project's Python.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelgen.errors import KernelgenError
from kernelgen.toolchain.lock import locked
from kernelgen.toolchain.python import find_python

SANITIZERS = {"address": "asan", "undefined": "ubsan"}


@dataclass(frozen=True)
class Build:
    """One variant of a project's libraries: where its build is, and the environment it is built in."""

    root: Path
    environment: Mapping[str, str]
    python: Path | None = None

    @property
    def variant(self) -> str:
        """As setup.py has it; what it does not know, it refuses."""
        if sanitizer := SANITIZERS.get(self.environment.get("SANITIZE", "")):
            return sanitizer
        debug = self.environment.get("DEBUG", "").lower() not in ("", "0", "off", "no", "false")
        return "debug" if debug else "release"

    @property
    def folder(self) -> Path:
        return self.root / "build" / self.variant

    def run(
        self, jobs: int | None = None, *, clean: bool = False, verbose: bool = False, quiet: bool = False
    ) -> "Outcome":
        """Bring the libraries up to date; `quiet` keeps standard output free.

        Raises:
            KernelgenError: there is no such build to be had here, or the compiler refused a source.
        """
        start = time.perf_counter()
        with locked(self.folder.with_suffix(".lock")) as lock:
            if clean:
                self._clean()
            facts = self._configuration()
            before = self._times(facts)
            command = [facts["ninja"], "-f", f"build/{self.variant}/build.ninja", "-j", str(jobs or facts["jobs"])]
            if self._run(command + ["-v"] * verbose, facts["cache"], lock, quiet):
                raise KernelgenError("The build failed; the compiler's messages are above.")
            after = self._times(facts)
        made = [path for path in after if after[path] != before[path]]
        return Outcome(self.variant, facts, made, time.perf_counter() - start)

    def _clean(self) -> None:
        for library in self._read("environment.json").get("libraries", []):
            (self.root / library).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configuration(self) -> dict[str, Any]:
        """What environment.json says, after configuring again if anything differs from when it was written."""
        python = find_python(self.root, self.python)
        facts = self._read("environment.json")
        if not facts or self._snapshot(facts, python) != self._read("snapshot.json"):
            self._configure(python)
            facts = self._read("environment.json")
            if not {"depends", "ninja", "objects"} <= facts.keys():
                raise KernelgenError(
                    f"{self.root}/setup.py is not one that this kernelgen can build with; bring it up to date "
                    "with `kernelgen update`, or build with: python setup.py build_ext --inplace"
                )
            (self.folder / "snapshot.json").write_text(json.dumps(self._snapshot(facts, python)))
        return facts

    def _configure(self, python: Path) -> None:
        (self.folder / "snapshot.json").unlink(missing_ok=True)
        command = [str(python), "setup.py", "configure"]
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, stderr=subprocess.PIPE, text=True, check=False
        )
        said = [line.partition(": ")[2] or line for line in done.stderr.splitlines()]
        if done.returncode:
            raise KernelgenError(
                done.stderr if "Traceback" in done.stderr else said[-1] if said else "setup.py failed."
            )
        for line in said:
            note(line)

    def _snapshot(self, facts: dict[str, Any], python: Path) -> dict[str, Any]:
        """How everything stands that setup.py looked at."""
        depends = facts["depends"]
        path = self.environment.get("PATH")
        ops = self.root / "src" / facts["package"] / "ops"
        read = ("__init__.py", "tuned.json")
        sources = sorted(str(path) for path in ops.glob("*/*") if path.name.endswith((".cpp", ".cu", *read)))
        files = [*depends["files"], *(name for name in sources if name.endswith(read)), self.folder / "build.ninja"]
        return {
            "python": str(python),
            "variables": {name: self.environment.get(name) for name in depends["variables"]},
            "programs": {name: shutil.which(name, path=path) for name in depends["programs"]},
            "files": {str(file): _state(self.root / file) for file in files},
            "sources": sources,
            "gpus": sorted(str(device) for device in Path("/dev").glob("nvidia[0-9]*")),
        }

    def _run(self, command: list[str], cache: str | None, lock: IO[str], quiet: bool) -> int:
        """Run Ninja. It and the compilers hold the lock too, so none of them is ever joined by another build."""
        environment = {"CCACHE_DEPEND": "1", **self.environment, "COMPILER_CACHE": cache or ""}
        if cache and Path(cache).name == "sccache":
            # Its server stays on, so it must be no child of a process that holds the lock.
            subprocess.run([cache, "--start-server"], capture_output=True, check=False)
        else:
            environment["NVCC_TIMES"] = "1"  # With sccache, `nvcc -E --time` runs, which crashes (CUDA 13.0).
        out = 2 if quiet else None
        with subprocess.Popen(command, cwd=self.root, env=environment, stdout=out, pass_fds=[lock.fileno()]) as ninja:
            try:
                return ninja.wait()
            except KeyboardInterrupt:
                ninja.terminate()  # It then removes what it left half-written; leaving the block waits for that.
                raise

    def _times(self, facts: dict[str, Any]) -> dict[str, list[int] | None]:
        return {path: _state(self.root / path) for path in (*facts["objects"], *facts["libraries"])}

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return {}


@dataclass(frozen=True)
class Outcome:
    """What a build made: the objects and libraries that were written anew, and how long it took."""

    variant: str
    facts: dict[str, Any]
    made: list[str]
    seconds: float

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
        found = {f"{self.facts['package'].upper()}_VARIANT": self.variant}
        if self.variant == "asan":
            # Its runtime must come before any other library, and so before Python itself; it would keep addresses
            # that CUDA wants, and report what Python itself never frees.
            command = [*shlex.split(self.facts["compiler"]), "-print-file-name=libasan.so"]
            runtime = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            found |= {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0"}
        elif self.variant == "ubsan":
            found["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
        return found

    def usage(self) -> list[str]:
        words = [f"{name}={value}" for name, value in self.variables().items()]
        return [f"use it with: {' '.join(words)} pytest"] if words else []

    def __str__(self) -> str:
        names = " and ".join(Path(path).name for path in self.libraries) or "nothing: this project has no op"
        place = "" if self.variant == "release" else f" in build/{self.variant}"
        asked = " and ".join(self.facts["architectures"])
        what = f"{names}{place}{f' for {asked}' if asked else ''}"
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


def note(line: str) -> None:
    import sys

    print(f"kernelgen: {line}", file=sys.stderr, flush=True)


def _state(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]


def environment(*, arch: str | None = None, debug: bool = False, sanitize: str | None = None) -> dict[str, str]:
    """This process's environment, with what a command line chose in it."""
    chosen = {"TORCH_CUDA_ARCH_LIST": arch, "DEBUG": "1" if debug else None, "SANITIZE": sanitize}
    return {**os.environ, **{name: value for name, value in chosen.items() if value is not None}}
