"""What a build says: notes on the way, and the sentence that it stops with."""

from __future__ import annotations

import sys
from collections.abc import Callable

# Takes one sentence that a person should read and that stops nothing.
Note = Callable[[str], None]


class BuildError(Exception):
    """Why there can be no build: one sentence with its cure."""


def printer(name: str) -> Note:
    """Prints notes to standard error, each after this name."""

    def note(sentence: str) -> None:
        print(f"{name}: {sentence}", file=sys.stderr, flush=True)

    return note
