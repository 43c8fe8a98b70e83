"""The options that the lab's verbs share, and a progress bar."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelgen.cli.emulated import DEVICE, add_gpu, measures_time
from kernelgen.cli.output import note
from kernelgen.cli.parser import Parser, whole
from kernelgen.errors import KernelgenError, LabError

if TYPE_CHECKING:
    from kernelgen.lab.selection import Selection


def add_options(parser: Parser, *, ops: str | int = "*", emulated: bool = False) -> None:
    """The options that every verb of the lab takes; `ops` says how many ops, as argparse's nargs does, and `emulated`
    whether the verb works on the emulated GPU."""
    text = "the op" if ops == 1 else "the ops (default: all that have a lab.py)"
    parser.add_argument("ops", nargs=ops, metavar="OP", help=text)
    parser.add_project()
    parser.add_python()
    text = "where to run (default: cuda where there is a GPU, else cpu)"
    if emulated:
        parser.add_argument("--device", choices=("cpu", "cuda", DEVICE), help=text)
        add_gpu(parser)
    else:
        parser.add_argument("--device", choices=("cpu", "cuda"), type=measures_time, help=text)


def add_no_build(parser: Parser) -> None:
    text = "do not build first: refuse where a source changed since the last build"
    parser.add_argument("--no-build", action="store_true", help=text)


def add_blocks(group: Any, least: int = 1) -> None:
    """How much evidence two versions that take turns are to give."""
    from kernelgen.lab.pair import BLOCKS

    text = f"units of evidence for each case (default: {BLOCKS['cuda']}, on the CPU {BLOCKS['cpu']})"
    group.add_argument("--blocks", type=whole(least), metavar="N", help=text)


def find(options: argparse.Namespace) -> "Selection":
    """The project and the ops that the options name."""
    from kernelgen.lab.selection import select

    return select(options.project, options.python, options.ops)


def find_for_device(options: argparse.Namespace) -> "Selection":
    """The same, for a verb that runs the ops.

    Raises:
        NoGpuError: they are to run on a GPU, and there is none.
        KernelgenError: a revision that the options name cannot be read.
    """
    from kernelgen.toolchain import current

    selection = find(options)
    _require_revisions(selection, options)
    if options.device == "cuda":
        current.require_gpu(selection.python)
    return selection


def _require_revisions(selection: "Selection", options: argparse.Namespace) -> None:
    """Refuses revisions that there are not before anything is built.

    Raises:
        KernelgenError: as `revision.find`.
    """
    from kernelgen.lab.trust import WORKING_TREE
    from kernelgen.toolchain import revision

    for name in ("against", "trust"):
        value = getattr(options, name, None)
        # `profile --against` takes a file, too.
        if value not in (None, WORKING_TREE) and not value.endswith(".json"):
            revision.find(selection.root, value)


def bring_up_to_date(selection: "Selection", options: argparse.Namespace) -> None:
    """Builds what is stale and runs on the device; with --no-build, refuses it.

    Raises:
        LabError: it does not build; or something is stale, and --no-build was given.
    """
    from kernelgen.toolchain import current

    variable = f"{selection.package.upper()}_VARIANT"
    if os.environ.get(variable, "release") == "release":
        try:
            current.bring_up_to_date(selection.root, selection.python, options.device, note, build=not options.no_build)
        except KernelgenError as error:
            raise LabError(str(error), error.details) from error


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
