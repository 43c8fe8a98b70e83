"""What a build in a project's Python would use, as the project's own build_tools say."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import build_tools


@dataclass(frozen=True)
class Answer:
    """A value that build_tools found, their notes about it, and the error that ended the search, or ""."""

    value: Any = None
    notes: str = ""
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """The answers by subject; a subject without one has an empty answer."""

    root: Path
    python: Path | None
    answers: dict[str, Answer]

    def __getitem__(self, name: str) -> Answer:
        return self.answers.get(name, Answer())

    def installed(self, name: str) -> str | None:
        """The version of a package in the project's Python, or None where it is not installed."""
        return (self["installed"].value or {}).get(name)


def gather(root: Path, tools: Path, python: Path) -> Facts:
    """Asks the build_tools in the folder `tools`, in that Python; torch is not imported for it.

    Raises:
        OlderLayoutError: there are no build_tools; KernelgenError: that Python does not run.
    """
    try:
        answers = build_tools.ask(tools, python, "facts", timeout_s=60)
    except (build_tools.OlderLayoutError, build_tools.NoPythonError):
        raise
    except (KernelgenError, OSError, subprocess.SubprocessError) as problem:
        why = str(getattr(problem, "strerror", None) or problem)
        raise KernelgenError(f"{python} does not run as a Python ({why}); name another with --python.") from problem
    return Facts(
        root,
        python,
        {name: Answer(raw["value"], "\n".join(raw["notes"]), raw["error"]) for name, raw in answers.items()},
    )
