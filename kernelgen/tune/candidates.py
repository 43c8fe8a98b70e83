"""Compiles configurations of an op into libraries, many at once.

Only the sources that read the tunables are compiled for each; the other objects are those of the default build. Each
library is kept under a hash of all that went into it, so no configuration is compiled twice.
"""

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.cores import usable_cores
from kernelgen.toolchain import resources
from kernelgen.tune.commands import Commands
from kernelgen.tune.default_build import DefaultBuild
from kernelgen.tune.errors import CompileError, DiskFullError, TuningError, is_disk_full
from kernelgen.tune.space import Values

# A name that no struct of defaults has. A template's static member is instantiated only where it is read, so with this
# value the sources that read the member do not compile, and all others do (C++17, [temp.inst]).
UNDEFINED = "Defaults::a_member_that_nothing_defines"


@dataclass(frozen=True)
class Candidate:
    """A configuration's library, the compiler's report of its kernels, and the seconds of all compilers and the linker
    together; 0 if the library was there already."""

    library: Path
    kernels: list[dict[str, Any]]
    seconds: float


class CandidateCompiler:
    """Compiles candidates of one op for one kind of device, cpu or cuda.

    Args:
        root: the project; `python`: its Python; `names`: the op's tunables.
        shapes: the shape class whose values vary; all others keep the default's. None: all vary.
        capability: the compute capability to compile for; None: what the environment asks for, else the GPU here.
        jobs: compilers at once; None: as many as there are cores and memory for.
        limit_s: how long a compilation may take.
    """

    def __init__(
        self,
        root: Path,
        python: Path,
        op: str,
        kind: str,
        names: list[str],
        shapes: str | None = None,
        capability: str | None = None,
        jobs: int | None = None,
        limit_s: float = 600.0,
    ) -> None:
        self.root, self.op, self.kind, self.names, self.shapes = root, op, kind, names, shapes
        self.jobs, self.limit_s = jobs, limit_s
        self.default: Candidate | None = None
        self._commands = Commands(root)
        self._build = DefaultBuild(root, python, op, kind, names, shapes, capability, self._commands)
        self.folder = self._build.folder
        # The commands that a candidate takes, by the object that each makes.
        self.compiles: dict[str, str] = {}

    def prepare(self) -> Candidate:
        """Build the default, and learn from its build how candidates are compiled.

        Raises:
            TuningError: the op cannot be built here, or none of its sources reads its tunables.
        """
        start = time.perf_counter()
        self._build.make(self.limit_s)
        seconds = time.perf_counter() - start
        self.jobs = self.jobs or _default_jobs(self.kind, self._build.facts["jobs"])
        self._pool = ThreadPoolExecutor(self.jobs)
        self.compiles = self._build.compiles
        readers = self._readers()
        self.compiles = {path: command for path, command in self.compiles.items() if path in readers}
        self.default = self._keep_default(seconds)
        return self.default

    @property
    def at_once(self) -> int:
        """How many candidates to compile at once so that every compiler has a source to work on. A candidate of several
        sources leaves compilers idle while its last source is compiled: one candidate more keeps them busy."""
        return math.ceil(self.jobs / len(self.compiles)) + (len(self.compiles) > 1)

    @property
    def sources_version(self) -> str:
        """A hash of the op's sources as they are now."""
        return self._build.sources_version

    def compile(self, values: Values) -> Candidate:
        """The library with these values.

        Raises:
            CompileError: it does not compile; the message is the compiler's first error.
            DiskFullError: the disk is full.
        """
        header = self._build.header_with({name: json.dumps(value) for name, value in values.items()})
        folder = self._folder_of(header)
        if not (folder / "kernels.json").is_file():
            return self._make(header, folder)
        return Candidate(folder / self._library, json.loads((folder / "kernels.json").read_text()), 0.0)

    def reopen(self) -> None:
        """Let compilations begin again."""
        self._commands.reopen()

    def close(self) -> None:
        """End the compilations that run, and let no other begin."""
        self._commands.close()

    def _readers(self) -> list[str]:
        """The objects whose sources read the tunables, of those that include the tuned header."""
        header = self._build.header_with(dict.fromkeys(self.names, UNDEFINED))
        record = self.folder / "readers" / f"{self._hash(header)}.json"
        if not record.is_file():
            record.parent.mkdir(exist_ok=True)
            with self._scratch(record.parent, header) as scratch:
                compiling = {
                    path: self._pool.submit(self._call, command, scratch) for path, command in self.compiles.items()
                }
                unfinished = scratch / record.name
                unfinished.write_text(json.dumps([path for path, future in compiling.items() if _fails(future)]))
                unfinished.replace(record)
        readers = json.loads(record.read_text())
        if not readers:
            where = f' of a struct whose `shapes` is "{self.shapes}"' if self.shapes else " of what `visit` hands on"
            names = ", ".join(self.names)
            raise TuningError(f"No source of {self.op} for {self.kind} reads {names}{where}: there is nothing to tune.")
        return readers

    def _keep_default(self, seconds: float) -> Candidate:
        kernels = self._kernels({path: self.root / f"{path}.txt" for path in self.compiles})
        folder = self._folder_of((self.folder / self._build.header).read_text())
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
            shutil.copy(self.root / self._build.facts["library"], scratch)
            try:
                scratch.rename(folder)
            except OSError:  # Another worker has kept the same.
                shutil.rmtree(scratch)
        return Candidate(folder / self._library, kernels, seconds)

    @property
    def _library(self) -> str:
        return f"_{self.kind}.so"

    def _hash(self, header: str) -> str:
        return hashlib.sha256(self._build.digest + header.encode()).hexdigest()[:20]

    def _folder_of(self, header: str) -> Path:
        """Where the candidate with this tuned header is kept."""
        return self.folder / "candidates" / self._hash(header)

    def _make(self, header: str, folder: Path) -> Candidate:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._scratch(folder.parent, header) as scratch:
                compiling = [self._pool.submit(self._call, command, scratch) for command in self.compiles.values()]
                seconds = sum(_results(compiling)) + self._call(self._build.link, scratch)
                kernels = self._kernels({path: scratch / f"{self._name_of(path)}.txt" for path in self.compiles})
                (scratch / "kernels.json").write_text(json.dumps(kernels))
                for path in scratch.iterdir():
                    if path.name not in ("kernels.json", self._library):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                with suppress(OSError):  # Another worker has made the same.
                    scratch.rename(folder)
                return Candidate(folder / self._library, kernels, seconds)
        except OSError as error:
            raise DiskFullError(self.folder) if is_disk_full(error) else error from error

    @contextmanager
    def _scratch(self, parent: Path, header: str) -> Iterator[Path]:
        """A folder for a candidate's objects, with its tuned header; removed at the end."""
        scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
        try:
            (scratch / self._build.header).parent.mkdir(parents=True)
            (scratch / self._build.header).write_text(header)
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _call(self, command: str, scratch: Path) -> float:
        """Run a command of the default build with the tuned header and the objects of this folder in place of the
        default's; the seconds that it took."""
        folder = scratch.relative_to(self.root).as_posix()
        include = f"-I{self._build.relative}/generated"
        command = command.replace(include, f"-I{folder}/generated {include}")
        for path in (*self.compiles, self._build.facts["library"]):
            command = re.sub(re.escape(path) + r"(?![\w])", f"{folder}/{self._name_of(path)}", command)
        start = time.perf_counter()
        done = self._commands.run(["nice", "-n", "19", "sh", "-c", command], self.limit_s, _environment())
        if done.returncode:
            raise CompileError(_first_error(done.stdout + done.stderr))
        return time.perf_counter() - start

    def _name_of(self, path: str) -> str:
        """The name of a build's file in a candidate's flat folder; sources in sm80/ and sm90/ may share names."""
        return Path(path).relative_to(self._build.relative).as_posix().replace("/", "-")

    def _kernels(self, reports: Mapping[str, Path]) -> list[dict[str, Any]]:
        """The compiler's reports on each kernel of these objects."""
        kernels = []
        for path, report in reports.items():
            if resources.is_kernel_object(path) and report.is_file():
                kernels += resources.parse(self._build.facts["objects"][path], report.read_text())
        return [kernel.as_dict() for kernel in resources.demangled(kernels)]


def _results(compiling: list[Future[float]]) -> list[float]:
    """The results of all, or the first failure; then what has not begun is cancelled, and the rest waited for."""
    wait(compiling, return_when=FIRST_EXCEPTION)
    for future in compiling:
        future.cancel()
    failed = [future for future in wait(compiling).done if not future.cancelled() and future.exception()]
    return [future.result() for future in failed or compiling]


def _fails(compiling: Future[float]) -> bool:
    try:
        compiling.result()
    except CompileError:
        return True
    return False


def _default_jobs(kind: str, possible: int) -> int:
    """Compilers at once. Where candidates are measured on the CPU, one core is left to that."""
    return max(1, min(possible, usable_cores() - 1)) if kind == "cpu" else possible


def _environment() -> dict[str, str]:
    """The compiler's environment: without GPUs, and without a compiler cache, which candidates would only fill."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COMPILER_CACHE": ""}


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return (errors or lines or ["the compiler failed without a message"])[0][:300]
