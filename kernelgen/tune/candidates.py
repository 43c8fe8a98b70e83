"""Compiles configurations of an op into libraries, each for itself and many at once.

Only the sources that read the values in question are compiled again; the other objects are those of the default. Which
ones read them, the compiler says: those that do not compile where the values have no definition. What is made is kept
by a hash of all that went into it, so an unchanged candidate is never compiled twice.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import build_tools, resources
from kernelgen.tune.space import Values

# A name that no struct of defaults has. The value of a template's static member is instantiated only where it is read,
# so this is an error in the sources that read it and in no other (C++17, [temp.inst]).
NOTHING = "Defaults::a_member_that_nothing_defines"


class CompileError(KernelgenError):
    """One candidate does not compile, which costs that candidate alone."""


@dataclass(frozen=True)
class Candidate:
    """A library, what the compiler said of its kernels, and the seconds that compilers worked on it, all together; none
    if it was there already."""

    library: Path
    kernels: list[dict[str, Any]]
    seconds: float


@dataclass
class Compiler:
    """Compiles candidates of one op for one kind of device.

    Args:
        root: the project; `python`: its Python; `names`: the op's tunables.
        shapes: the class of shapes that candidates are for; the default's values stay with all others. None: all.
        chip: the compute capability to compile for; None: what the environment asks for, else that of the GPU here.
        jobs: compilers at once; None: as many as there are cores and memory for.
        limit_s: how long a compilation may take.
    """

    root: Path
    python: Path
    op: str
    kind: str
    names: list[str]
    shapes: str | None = None
    chip: str | None = None
    jobs: int | None = None
    limit_s: float = 600.0
    default: Candidate | None = None
    _running: set[subprocess.Popen] = field(default_factory=set)
    _closed: threading.Event = field(default_factory=threading.Event)

    @property
    def folder(self) -> Path:
        return self.root / "build" / "tune" / f"{self.op}-{self.kind}"

    def prepare(self) -> Candidate:
        """Compiles the default, and learns from it how the others are compiled.

        Raises:
            KernelgenError: the op cannot be built here, or none of its sources reads its tuned values.
        """
        start = time.perf_counter()
        self.facts = self._build_default()
        seconds = time.perf_counter() - start
        self.jobs = self.jobs or _default_jobs(self.kind, self.facts["jobs"])
        self._pool = ThreadPoolExecutor(self.jobs)
        self._learn([self.facts["ninja"], "-f", f"{self._relative}/build.ninja"])
        self.default = self._keep_default(seconds)
        return self.default

    @property
    def at_once(self) -> int:
        """How many candidates to ask for at once, so that each compiler has a source to work on: one more than share
        them, for those that are free while a candidate's last source is compiled, if it has several."""
        return math.ceil(self.jobs / len(self._commands)) + (len(self._commands) > 1)

    def compile(self, values: Values) -> Candidate:
        """The library with these values.

        Raises:
            CompileError: it does not compile; the message is the compiler's first.
            KernelgenError: the disk is full.
        """
        header = self._with({name: json.dumps(value) for name, value in values.items()})
        made = self.folder / "candidates" / self._hash(header.encode())
        if not (made / "kernels.json").is_file():
            return self._make(header, made)
        return Candidate(made / self._library, json.loads((made / "kernels.json").read_text()), 0.0)

    def reopen(self) -> None:
        """Lets compilations begin again."""
        self._closed.clear()

    def close(self) -> None:
        """Ends the compilations that still run, and lets no other begin."""
        self._closed.set()
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    @cached_property
    def sources_version(self) -> str:
        """Another one when anything changes that the op is compiled from, on this machine or on another."""
        digest = hashlib.sha256()
        folder = self.root / "src" / self.facts["package"] / "ops" / self.op
        headers = folder.parents[1] / "include"
        shared = [path for path in headers.rglob("*") if path.is_file()]
        for path in sorted([*folder.glob("*.c*"), *folder.glob("*.h"), *shared]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:12]

    # ---- The default ------------------------------------------------------------------------------------------

    def _build_default(self) -> dict[str, Any]:
        """Builds the op with its default values, in the tuning's own folder; the build's configuration, its `library`,
        and the `header` with a mark in place of each value."""
        environment = {"TORCH_CUDA_ARCH_LIST": "native", **os.environ}
        environment |= {"TORCH_CUDA_ARCH_LIST": self.chip} if self.chip else {}
        environment |= {"USE_CUDA": "1"} if self.kind == "cuda" else {}
        options = ["--op", self.op, "--backend", self.kind, "--folder", self._relative, "--tuned", "{}"]
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch, "report.json")
            done = self._run(
                build_tools.command(self.root, self.python, "--report", str(report), "build", *options), environment
            )
            result = json.loads(report.read_text()) if report.is_file() else {"error": done.stderr.rstrip()}
        if "error" in result:
            # Only compilers print to standard output.
            raise KernelgenError(
                f"{self.op} does not compile as it is:\n{done.stdout}".rstrip() if done.stdout else result["error"]
            )
        configuration = result["configuration"]
        if not configuration["libraries"]:
            raise KernelgenError(f"{self.op} has no library for {self.kind}; see `kernelgen doctor`")
        marks = {name: _mark(name) for name in self.names}
        entry = {"shapes": {self.shapes: marks}} if self.shapes else {"values": marks}
        header = build_tools.tuning_header(self.root, self.python, self.op, entry)
        return {**configuration, "library": configuration["libraries"][0], "header": header}

    def _learn(self, ninja: list[str]) -> None:
        commands = self._run([*ninja, "-t", "commands", self.facts["library"]], None).stdout.splitlines()
        objects = [path for path in self.facts["objects"] if any(f"-o {path}" in command for command in commands)]
        reads = {path: self._run([*ninja, "-t", "deps", path], None).stdout.split("\n") for path in objects}
        including = [path for path in objects if any(line.strip().endswith(self._header) for line in reads[path])]
        if not including:
            raise KernelgenError(
                f'No source of {self.op} for {self.kind} has #include "tuned/{self.kind}/{self.op}.h", so its tunables '
                "reach no kernel; the project's docs/writing-an-op.md shows how they do."
            )
        # The last command links; the others each make one object.
        *compiles, self._link = commands
        self._commands = {path: line for path in including for line in compiles if f"-o {path}" in line}
        read = {line.strip() for path in including for line in reads[path] if line.startswith("    ")}
        read = {path for path in read if not path.endswith(self._header)}
        others = set(objects) - set(including)
        digest = hashlib.sha256("\n".join([*self._commands.values(), self._link]).encode())
        for path in sorted(read | others | {f"{self._relative}/{name}.txt" for name in ("compiler", "torch", "cuda")}):
            file = self.root / path
            digest.update(path.encode() + b"\0" + (file.read_bytes() if file.is_file() else b""))
        self._base = digest.digest()
        readers = self._readers()
        self._commands = {path: line for path, line in self._commands.items() if path in readers}

    def _readers(self) -> list[str]:
        """The objects that read the values which vary, of those whose source includes the header."""
        header = self._with(dict.fromkeys(self.names, NOTHING))
        known = self.folder / "readers" / f"{self._hash(header.encode())}.json"
        if not known.is_file():
            known.parent.mkdir(exist_ok=True)
            with self._scratch(known.parent, header) as scratch:
                tried = {path: self._pool.submit(self._call, one, scratch) for path, one in self._commands.items()}
                (scratch / "found").write_text(json.dumps([path for path, one in tried.items() if _fails(one)]))
                (scratch / "found").replace(known)
        found = json.loads(known.read_text())
        if not found:
            of = f' of a struct whose `shapes` is "{self.shapes}"' if self.shapes else " of what `visit` hands on"
            names = ", ".join(self.names)
            raise KernelgenError(f"No source of {self.op} for {self.kind} reads {names}{of}: there is nothing to tune.")
        return found

    def _keep_default(self, seconds: float) -> Candidate:
        kernels = self._kernels({path: self.root / f"{path}.txt" for path in self._commands})
        made = self.folder / "candidates" / self._hash((self.folder / self._header).read_bytes())
        if not made.is_dir():
            made.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=made.parent))
            shutil.copy(self.root / self.facts["library"], scratch)
            try:
                scratch.rename(made)
            except OSError:  # Another worker has kept the same.
                shutil.rmtree(scratch)
        return Candidate(made / self._library, kernels, seconds)

    # ---- The others -------------------------------------------------------------------------------------------

    @property
    def _relative(self) -> str:
        return self.folder.relative_to(self.root).as_posix()

    @property
    def _library(self) -> str:
        return f"_{self.kind}.so"

    @property
    def _header(self) -> str:
        return f"generated/tuned/{self.kind}/{self.op}.h"

    def _hash(self, header: bytes) -> str:
        return hashlib.sha256(self._base + header).hexdigest()[:20]

    def _with(self, values: Mapping[str, str]) -> str:
        """The header with these values, as C++ spells them."""
        header = self.facts["header"]
        for name, value in values.items():
            header = header.replace(json.dumps(_mark(name)), value)
        return header

    def _make(self, header: str, made: Path) -> Candidate:
        made.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._scratch(made.parent, header) as scratch:
                compiling = [self._pool.submit(self._call, one, scratch) for one in self._commands.values()]
                seconds = sum(_all(compiling)) + self._call(self._link, scratch)
                kernels = self._kernels({path: scratch / f"{Path(path).name}.txt" for path in self._commands})
                (scratch / "kernels.json").write_text(json.dumps(kernels))
                for path in scratch.iterdir():
                    if path.name not in ("kernels.json", self._library):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                with suppress(OSError):  # Another worker has made the same.
                    scratch.rename(made)
                return Candidate(made / self._library, kernels, seconds)
        except OSError as error:
            raise full(self.folder) if is_full(error) else error from error

    @contextmanager
    def _scratch(self, parent: Path, header: str) -> Iterator[Path]:
        """A folder with this header, for the objects that are made with it."""
        scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
        try:
            (scratch / self._header).parent.mkdir(parents=True)
            (scratch / self._header).write_text(header)
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _call(self, command: str, scratch: Path) -> float:
        """Runs one of the default's commands with the header in this folder before the default's, and with the objects
        there; the seconds that it took."""
        place = scratch.relative_to(self.root).as_posix()
        include = f"-I{self._relative}/generated"
        command = command.replace(include, f"-I{place}/generated {include}")
        for path in (*self._commands, self.facts["library"]):
            command = re.sub(re.escape(path) + r"(?![\w])", f"{place}/{Path(path).name}", command)
        start = time.perf_counter()
        done = self._run(["nice", "-n", "19", "sh", "-c", command], _environment())
        if done.returncode:
            raise CompileError(_first_error(done.stdout + done.stderr))
        return time.perf_counter() - start

    def _kernels(self, reports: Mapping[str, Path]) -> list[dict[str, Any]]:
        found = []
        for path, report in reports.items():
            source = self.facts["objects"][path]
            if source.endswith(".cu") and report.is_file():
                found += resources.parse(source, report.read_text())
        return [kernel.as_dict() for kernel in resources.demangled(found)]

    def _run(self, command: list[str], environment: dict[str, str] | None) -> subprocess.CompletedProcess[str]:
        """Runs a command with all that it starts; ends it at the limit, or when the compiler is closed."""
        if self._closed.is_set():
            raise CompileError("the tuning ended")
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise CompileError(f"the compiler took longer than {self.limit_s:g} s") from None
        finally:
            self._running.discard(process)
        if process.returncode and "No space left on device" in out + err:
            raise full(self.folder)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def _all(compiling: list[Future[float]]) -> list[float]:
    """What all of them say, when none is at work any more; the first failure spares those that have not begun."""
    wait(compiling, return_when=FIRST_EXCEPTION)
    for one in compiling:
        one.cancel()
    failed = [one for one in wait(compiling).done if not one.cancelled() and one.exception()]
    return [one.result() for one in failed or compiling]


def _fails(compiling: Future[float]) -> bool:
    try:
        compiling.result()
    except CompileError:
        return True
    return False


def _default_jobs(kind: str, possible: int) -> int:
    """Compilers at once. Where the CPU is what is measured, one core is left to it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(possible, cores - 1)) if kind == "cpu" else possible


def full(where: Path | str) -> KernelgenError:
    return KernelgenError(
        f"The disk is full at {where}: make room and go on with --resume. All trials up to here are kept."
    )


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _mark(name: str) -> str:
    """What stands for a value in the header."""
    return f"@{name}@"


def _environment() -> dict[str, str]:
    """A compiler sees no GPU; and what it makes of so many candidates is of no use to a compiler cache."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COMPILER_CACHE": ""}


def _first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return (found or lines or ["the compiler failed without a word"])[0][:300]
