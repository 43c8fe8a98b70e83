"""What the lab's verbs share: the options that choose a project and its ops, and a progress bar."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError, LabError


@dataclass(frozen=True)
class Lab:
    """A project, the Python to run it with, and the ops that were asked for: all that have a lab.py if none was."""

    root: Path
    package: str
    python: Path
    ops: list[str]

    def request(self, work: str, **more: Any) -> dict[str, Any]:
        """A request to `kernelgen.lab.process.run`."""
        return {"work": work, "project": str(self.root), "package": self.package, "ops": self.ops, **more}


def add_options(parser: Parser, *, ops: str | int = "*") -> None:
    """The options that every verb of the lab takes; `ops` says how many ops, as argparse's nargs does."""
    text = "the op" if ops == 1 else "the ops (default: all that have a lab.py)"
    parser.add_argument("ops", nargs=ops, metavar="OP", help=text)
    parser.add_project()
    text = "the project's Python (default: $VIRTUAL_ENV's, .venv's, or kernelgen's own if it has torch)"
    parser.add_argument("--python", type=Path, metavar="PYTHON", help=text)
    text = "where to run (default: cuda where there is a GPU, else cpu)"
    parser.add_argument("--device", choices=("cpu", "cuda"), help=text)


def add_blocks(group: Any) -> None:
    """How much evidence two sides that take turns are to give."""
    from kernelgen.lab.pair import BLOCKS

    text = f"units of evidence for each case (default: {BLOCKS['cuda']}, on the CPU {BLOCKS['cpu']})"
    group.add_argument("--blocks", type=int, metavar="N", help=text)


def find(options: argparse.Namespace) -> Lab:
    """The project and the ops that the options name.

    Raises:
        LabError: there is no such project or op, an op has no lab.py, or no Python with torch was found.
    """
    from kernelgen.scaffold import project
    from kernelgen.scaffold.names import did_you_mean
    from kernelgen.toolchain.python import find_python

    try:
        home = project.find(options.project)
        python = find_python(home.root, options.python)
    except KernelgenError as error:
        raise LabError(str(error)) from None
    folders = {file.parent.name: file.parent for file in sorted(home.package.glob("ops/*/__init__.py"))}
    described = [name for name, folder in folders.items() if (folder / "lab.py").is_file()]
    for name in options.ops:
        if name not in folders:
            raise LabError(f"{home.root} has no op {name!r}. {did_you_mean(name, folders)}".rstrip())
        if name not in described:
            file = home.relative(folders[name] / "lab.py")
            raise LabError(f"{name} has no {file}, which describes an op to the lab; `kernelgen update` brings one.")
    if not described:
        raise LabError(f"No op of {home.root} has a lab.py, which describes an op to the lab.")
    return Lab(home.root, home.package.name, python, list(dict.fromkeys(options.ops)) or described)


@contextmanager
def progress(wanted: bool = True) -> Iterator[Callable[[str, float, float | None], None]]:
    """A function `show(text, done, total)` that draws a progress bar on standard error, if that is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield lambda text, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:g}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)
