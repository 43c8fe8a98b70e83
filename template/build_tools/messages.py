"""What a build says: notes on the way, and the sentence that it stops with."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

# Takes one sentence that a person should read and that stops nothing.
Note = Callable[[str], None]


class BuildError(Exception):
    """Why there can be no build: one sentence with its cure. `errors` are the compilers', where they were read."""

    def __init__(self, text: str, errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(text)
        self.errors = list(errors)


class MachineError(BuildError):
    """The machine lacks what a build needs: the sources are not at fault."""


def sentence(error: BuildError | OSError) -> str:
    """What a person reads of an error: of a full disk or a folder that may not be written, too."""
    if isinstance(error, OSError):
        cannot_write = error.errno in (errno.EROFS, errno.EACCES)
        cure = "; a build writes into the project: copy it to where you may write" if cannot_write else ""
        return f"{error.strerror}: {error.filename or 'while writing'}{cure}."
    return str(error)


def show(line: str, stream: TextIO) -> None:
    """Prints a line. That its reader has gone, as `head` does, is no reason to end a build."""
    try:
        print(line, end="", file=stream, flush=True)
    except BrokenPipeError:
        # Python would print the line once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printer(name: str) -> Note:
    """Prints notes to standard error, each after this name."""

    def note(text: str) -> None:
        show(f"{name}: {text}\n", sys.stderr)

    return note
