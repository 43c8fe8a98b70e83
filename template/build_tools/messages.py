"""What a build says: notes on the way, and the sentence that it stops with."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from typing import Any

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


def printer(name: str) -> Note:
    """Prints notes to standard error, each after this name."""

    def note(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    return note
