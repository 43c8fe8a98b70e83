"""Reads a compiler's errors from what a build prints."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from typing import Any

PATTERNS = (
    # g++ and clang: FILE:LINE:COLUMN: error: MESSAGE
    re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<message>.*)"),
    # nvcc: FILE(LINE): error #NUMBER: MESSAGE
    re.compile(r"(?P<file>\S[^()]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)"),
    # ptxas, which knows lines of PTX alone
    re.compile(r"(?P<message>ptxas (?:fatal|error) *: .*)"),
    re.compile(r"ptxas \S+, line \d+; (?P<message>(?:fatal|error) *: .*)"),
    # the linker
    re.compile(r".*?(?P<message>undefined reference to .*|multiple definition of .*)"),
)
FAILED = re.compile(r"FAILED: (?:\[code=\d+\] )?(?P<object>\S+)")
# A disk that is full or read-only, a folder of another user, and memory that ran out.
OF_THE_MACHINE = re.compile(
    "|".join(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOMEM)))
    + "|Killed signal terminated program|virtual memory exhausted"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


def errors(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The errors in the output of Ninja, in their order: `file`, `line`, `column` and `message`; and `object`, what was
    being made. What a tool does not say is None."""
    listed: list[dict[str, Any]] = []
    target = None
    for line in lines:
        text = COLOUR.sub("", line).rstrip()
        if failed := FAILED.match(text):
            target = failed["object"]
        elif match := next(filter(None, (pattern.match(text) for pattern in PATTERNS)), None):
            error = {"object": target, **_place(match.groupdict()), "message": match["message"].strip()}
            if error not in listed:
                listed.append(error)
    return listed


def refusal_of_the_machine(lines: Iterable[str]) -> str | None:
    """The line by which a compiler says what the machine refused it, such as room on the disk; None without one."""
    return next((text for line in lines if OF_THE_MACHINE.search(text := COLOUR.sub("", line).strip())), None)


def _place(groups: dict[str, str | None]) -> dict[str, Any]:
    line, column = groups.get("line"), groups.get("column")
    return {"file": groups.get("file"), "line": line and int(line), "column": column and int(column)}
