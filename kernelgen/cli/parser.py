"""The argument parser of every verb, and the options that several verbs share."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from kernelgen.errors import UsageError

# Of counts; of times in seconds, since the system waits no longer than some weeks; and of seeds, which are multiplied.
MOST, LONGEST_S, LARGEST_SEED = 2**31 - 1, 10**6, 2**53


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """The type of an option that is a whole number from `least` to `most`."""
    return lambda text: int(_within(int, "whole number", text, least, most))


def real(least: float, most: float = LONGEST_S) -> Callable[[str], float]:
    """The type of an option that is a number from `least` to `most`, as neither NaN nor infinity is."""
    return lambda text: _within(float, "number", text, least, most)


def _within(kind: type, words: str, text: str, least: float, most: float) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is no {words} from {least} to {most}")
    return value


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are raised as UsageError instead of printed."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"kernelgen {verb}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def print_help(self, file: Any = None) -> None:
        # argparse's own says nothing of a disk that is full.
        print(self.format_help(), end="", file=file)

    def add_project(self) -> None:
        text = "the project, or a folder inside it (default: the current folder)"
        self.add_argument("--project", type=Path, default=Path(), metavar="DIR", help=text)

    def add_python(self) -> None:
        text = "the project's Python (default: $VIRTUAL_ENV's, .venv's, or kernelgen's own or conda's if it has torch)"
        self.add_argument("--python", type=Path, metavar="PYTHON", help=text)

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def add_writing(self) -> None:
        """The options of every verb that writes files of a project."""
        text = "print what would change, as a diff, and write nothing"
        self.add_argument("--dry-run", action="store_true", help=text)
        self.add_json()
