"""The argument parser of every verb, and the options that several verbs share."""

import argparse
from pathlib import Path
from typing import NoReturn

from kernelgen.errors import UsageError


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are raised as UsageError instead of printed."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"kernelgen {verb}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def add_project(self) -> None:
        text = "the project, or a folder inside it (default: the current folder)"
        self.add_argument("--project", type=Path, default=Path(), metavar="DIR", help=text)

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def add_writing(self) -> None:
        """The options of every verb that writes files of a project."""
        text = "print what would change, as a diff, and write nothing"
        self.add_argument("--dry-run", action="store_true", help=text)
        self.add_json()
