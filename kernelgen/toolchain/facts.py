"""What a build in a project's Python would use, asked of the project's own setup.py."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError

_INSIDE = Path(__file__).with_name("inside.py")


@dataclass(frozen=True)
class Answer:
    """What setup.py found, what it said about it, and the sentence that it refused with, if it did."""

    value: Any = None
    said: str = ""
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """The answers by what they are about; one that was not given is empty."""

    root: Path
    python: Path | None
    answers: dict[str, Answer]

    def __getitem__(self, name: str) -> Answer:
        return self.answers.get(name, Answer())

    def installed(self, name: str) -> str | None:
        """The version of a package in the project's Python, or None where it is not installed."""
        return (self["installed"].value or {}).get(name)


def gather(root: Path, setup: Path, python: Path) -> Facts:
    """Asks `setup` (a setup.py) in `python`; torch is not imported for it.

    Raises:
        KernelgenError: that Python does not run.
    """
    command = [str(python), "-c", _INSIDE.read_text(encoding="utf-8"), str(setup)]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=60)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        said = (getattr(problem, "stderr", None) or getattr(problem, "strerror", None) or "").strip().splitlines()
        why = f" ({said[-1]})" if said else ""
        raise KernelgenError(f"{python} does not run as a Python{why}; name another with --python.") from problem
    return Facts(root, python, {name: _answer(answer) for name, answer in found.items()})


def _answer(raw: dict[str, Any]) -> Answer:
    # setup.py begins what it says with the package's name, as a build's output needs it.
    said, error = (re.sub(r"^\w+: ", "", raw[name], flags=re.MULTILINE) for name in ("said", "error"))
    return Answer(raw["value"], said, error)
