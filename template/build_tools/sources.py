"""The sources of an op: which library each goes into, and which architectures it is compiled for.

A .cu file is compiled for every architecture asked for, unless its folder says otherwise: those in `sm80/` for the
ones from 8.0 on; those in `sm90/` for 9.0a alone, where 9.0 or 9.0a is asked for, since no later GPU keeps what is new
there. A file's name can say the same: `x.sm_80+.cu`, `x.sm_90a.cu`. The other files of the op learn from a macro,
HAS_SM_80 or HAS_SM_90A, whether they were compiled (1) or not (0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .architectures import number
from .messages import BuildError


def sources(folder: Path) -> list[Path]:
    """The files to compile of an op, the long ones first: so that no core waits for one that started last."""
    paths = [*folder.glob("*.cpp"), *folder.glob("*.cu"), *folder.glob("sm*/*.cu")]
    return sorted(paths, key=lambda path: (path.suffix != ".cu", -path.stat().st_size, path))


def backend_of(source: Path) -> str:
    """Which library a source goes into."""
    return "cpu" if source.name.startswith("cpu") and source.suffix == ".cpp" else "cuda"


# ---- Architectures --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """The architectures that a source is for: `number` alone, or every one from there on."""

    number: int
    suffix: str = ""
    onwards: bool = False

    @property
    def macro(self) -> str:
        return f"HAS_SM_{self.number}{self.suffix.upper()}"


def mark_of(source: Path) -> Mark | None:
    """What the folder or the name of a source says of its architectures: `sm80/x.cu`, `x.sm_90a.cu`, `x.sm_80+.cu`."""
    if folder := re.fullmatch(r"sm_?(\d+)", source.parent.name):
        number = int(folder[1])
        # From 9.0 on each generation has instructions that no later one keeps: code with them ends in an a.
        return Mark(number, "a") if number >= 90 else Mark(number, onwards=True)
    named = re.search(r"\.sm_(\d+)([af]?)(\+?)$", source.stem)
    if named is None and ".sm_" in source.name:
        raise BuildError(f"{source} names no architecture; such names are x.sm_90a.cu (9.0a alone) and x.sm_80+.cu.")
    return Mark(int(named[1]), named[2], onwards=bool(named[3])) if named else None


def compiled_for(source: Path, asked: list[str]) -> list[str]:
    """The architectures that a .cu file is compiled for, of those asked for."""
    mark = mark_of(source)
    if mark is None:
        return asked
    if mark.onwards:
        return [architecture for architecture in asked if number(architecture) >= mark.number]
    # Code for a family, such as 10.0f, also runs on the later members of its generation.
    last = mark.number - mark.number % 10 + 9 if mark.suffix == "f" else mark.number
    runs = any(mark.number <= number(architecture) <= last for architecture in asked)
    return [f"{mark.number // 10}.{mark.number % 10}{mark.suffix}"] if runs else []


def macros(folder: Path, asked: list[str]) -> list[str]:
    """For an op with files that are marked for an architecture: whether those are compiled."""
    marked = {
        mark.macro: bool(compiled_for(source, asked))
        for source in sources(folder)
        if source.suffix == ".cu" and (mark := mark_of(source))
    }
    return [f"-D{macro}={int(compiled)}" for macro, compiled in sorted(marked.items())]
