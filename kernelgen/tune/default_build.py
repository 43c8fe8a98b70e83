"""The build of one op with its default values, and what it says of how candidates are built.

It is apart from the project's own build: definition, objects and library lie in a folder below build/tune.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.toolchain import build_tools
from kernelgen.tune.commands import Commands
from kernelgen.tune.errors import TuningError


@dataclass
class DefaultBuild:
    """The default build of one op for one kind of device, cpu or cuda.

    Args:
        root: the project; `python`: its Python; `names`: the op's tunables.
        shapes: the shape class whose values vary; all others keep the default's. None: all vary.
        capability: the compute capability to compile for; None: what the environment asks for, else the GPU here.
        commands: runs what is to be run.

    Attributes:
        compiles: the command that makes each object whose source includes the tuned header, by the object's path.
        link: the command that makes the library.
        digest: of all that goes into a candidate but its values.
    """

    root: Path
    python: Path
    op: str
    kind: str
    names: list[str]
    shapes: str | None
    capability: str | None
    commands: Commands
    compiles: dict[str, str] = field(default_factory=dict)
    link: str = ""
    digest: bytes = b""

    @property
    def folder(self) -> Path:
        return self.root / "build" / "tune" / f"{self.op}-{self.kind}"

    @property
    def relative(self) -> str:
        """The folder, from the project."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def header(self) -> str:
        """The tuned header, from the folder."""
        return f"generated/tuned/{self.kind}/{self.op}.h"

    def make(self, limit_s: float) -> None:
        """Build the library with the default values.

        Raises:
            TuningError: the op cannot be built here, or none of its sources includes its tuned header.
        """
        configuration = self._run_build(limit_s)
        if not configuration["libraries"]:
            raise TuningError(f"{self.op} has no library for {self.kind}; see `kernelgen doctor`.")
        marks = {name: _mark(name) for name in self.names}
        entry = {"shapes": {self.shapes: marks}} if self.shapes else {"values": marks}
        header = build_tools.tuning_header(self.root, self.python, self.op, entry)
        self.facts = {**configuration, "library": configuration["libraries"][0], "header": header}
        self._learn([self.facts["ninja"], "-f", f"{self.relative}/build.ninja"], limit_s)

    def header_with(self, values: Mapping[str, str]) -> str:
        """The text of the tuned header with these values, as C++ spells them."""
        header = self.facts["header"]
        for name, value in values.items():
            header = header.replace(json.dumps(_mark(name)), value)
        return header

    @property
    def sources_version(self) -> str:
        """A hash of the sources that the op is compiled from as they are now, the same on every machine."""
        digest = hashlib.sha256()
        folder = self.root / "src" / self.facts["package"] / "ops" / self.op
        for path in sorted([*folder.rglob("*"), *(folder.parents[1] / "include").rglob("*")]):
            if path.suffix == ".h" or path.suffix.startswith(".c"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:12]

    def _run_build(self, limit_s: float) -> dict[str, Any]:
        """Build by the project's build_tools, apart from its own build; the build's configuration."""
        environment = {"TORCH_CUDA_ARCH_LIST": "native", **os.environ}
        environment |= {"TORCH_CUDA_ARCH_LIST": self.capability} if self.capability else {}
        environment |= {"USE_CUDA": "1"} if self.kind == "cuda" else {}
        options = ["--op", self.op, "--backend", self.kind, "--folder", self.relative, "--tuned", "{}"]
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "report.json")
            command = build_tools.command(self.root, self.python, "--report", str(file), "build", *options)
            done = self.commands.run(command, limit_s, environment)
            report = json.loads(file.read_text()) if file.is_file() else {"error": done.stderr.rstrip()}
        if "error" in report:
            # Only compilers print to standard output.
            compilers = f"{self.op} does not compile as it is:\n{done.stdout}".rstrip()
            raise TuningError(compilers if done.stdout else report["error"])
        return report["configuration"]

    def _learn(self, ninja: list[str], limit_s: float) -> None:
        """Read from Ninja by which commands the library was made, and from which files."""

        def ask(*arguments: str) -> list[str]:
            return self.commands.run([*ninja, "-t", *arguments], limit_s).stdout.splitlines()

        *compiles, self.link = ask("commands", self.facts["library"])
        command_of = {path: line for path in self.facts["objects"] for line in compiles if f"-o {path}" in line}
        depends = {path: [line.strip() for line in ask("deps", path) if line.startswith("    ")] for path in command_of}
        including = [path for path, files in depends.items() if any(file.endswith(self.header) for file in files)]
        if not including:
            raise TuningError(
                f'No source of {self.op} for {self.kind} has #include "tuned/{self.kind}/{self.op}.h", so its tunables '
                "reach no kernel; the project's docs/writing-an-op.md shows how they do."
            )
        self.compiles = {path: command_of[path] for path in including}
        read = {file for path in including for file in depends[path] if not file.endswith(self.header)}
        self.digest = self._digest(read | (command_of.keys() - self.compiles.keys()))

    def _digest(self, files: set[str]) -> bytes:
        digest = hashlib.sha256("\n".join([*self.compiles.values(), self.link]).encode())
        for path in sorted(files | {f"{self.relative}/{name}.txt" for name in ("compiler", "torch", "cuda")}):
            file = self.root / path
            digest.update(path.encode() + b"\0" + (file.read_bytes() if file.is_file() else b""))
        return digest.digest()


def _mark(name: str) -> str:
    """What stands for a value in the header."""
    return f"@{name}@"
