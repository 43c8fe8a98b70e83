"""The sources of an op: which library each goes into, and which architectures it is compiled for.

A .cu file is compiled for every chosen architecture, unless its folder says otherwise. Files in `sm80/` are compiled
for those from 8.0 on. Files in `sm90/` are compiled for 9.0a alone, if 9.0 or 9.0a is chosen: later GPUs lack the
instructions that 9.0a adds. A file's name can say the same: `x.sm_80+.cu`, `x.sm_90a.cu`. A line in the file goes
before both: `// architectures: 7.5+`, in a file of `sm80/` that has code for 7.5 as well. A macro, HAS_SM_75, HAS_SM_80
or HAS_SM_90A, tells the op's other files whether they were compiled (1) or not (0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .architectures import number
from .messages import BuildError


def sources(folder: Path) -> list[Path]:
    """An op's files to compile: kernels first, long ones first, so that no core waits for one that started last."""
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


def architectures_line(source: Path) -> str | None:
    """What follows `// architectures:` in a .cu file, if it has such a line."""
    if source.suffix != ".cu" or not source.is_file():
        return None
    line = re.search(r"^// architectures:(.*)$", source.read_text(encoding="utf-8"), re.MULTILINE)
    return line[1].strip() if line else None


def mark_of(source: Path) -> Mark | None:
    """What a source, its folder or its name says of its architectures: `sm80/x.cu`, `x.sm_90a.cu`, `x.sm_80+.cu`."""
    line = architectures_line(source)
    if line is not None:
        match = re.fullmatch(r"(\d+)\.(\d)\+", line)
        if match is None:
            raise BuildError(
                f"{source}: '// architectures: {line}' says no architecture to begin with; write it as in 7.5+."
            )
        return Mark(int(match[1] + match[2]), onwards=True)
    if folder := re.fullmatch(r"sm_?(\d+)", source.parent.name):
        number = int(folder[1])
        # From 9.0 on each generation has instructions that no later one keeps: code with them ends in an a.
        return Mark(number, "a") if number >= 90 else Mark(number, onwards=True)
    match = re.search(r"\.sm_(\d+)([af]?)(\+?)$", source.stem)
    if match is None and ".sm_" in source.name:
        raise BuildError(f"{source} names no architecture; such names are x.sm_90a.cu (9.0a alone) and x.sm_80+.cu.")
    return Mark(int(match[1]), match[2], onwards=bool(match[3])) if match else None


def compiled_for(source: Path, architectures: list[str]) -> list[str]:
    """The architectures that a .cu file is compiled for, given the chosen ones."""
    mark = mark_of(source)
    if mark is None:
        return architectures
    if mark.onwards:
        return [architecture for architecture in architectures if number(architecture) >= mark.number]
    # Code for a family, such as 10.0f, also runs on the later members of its generation.
    last = mark.number - mark.number % 10 + 9 if mark.suffix == "f" else mark.number
    runs = any(mark.number <= number(architecture) <= last for architecture in architectures)
    return [f"{mark.number // 10}.{mark.number % 10}{mark.suffix}"] if runs else []


def macros(folder: Path, architectures: list[str]) -> list[str]:
    """The flags that define HAS_SM_… as 1 or 0 for each mark of the op's files: whether those are compiled."""
    marked = {
        mark.macro: bool(compiled_for(source, architectures))
        for source in sources(folder)
        if source.suffix == ".cu" and (mark := mark_of(source))
    }
    return [f"-D{macro}={int(compiled)}" for macro, compiled in sorted(marked.items())]
