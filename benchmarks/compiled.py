"""What compiling a project's kernels made, and how long each took: for the benchmarks of kernels."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelgen.toolchain import resources


def compiled(project: Path, ops: tuple[str, ...]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The kernels of these ops in the last build, and the seconds that each source took to compile."""
    folder = project / "build" / "release"
    facts = json.loads((folder / "environment.json").read_text())
    wanted = tuple(f"/ops/{op}/" for op in ops)
    objects = facts["objects"].items()
    sources = {it: source for it, source in objects if source.endswith(".cu") and any(op in source for op in wanted)}
    kernels = resources.read(project, SimpleNamespace(facts={**facts, "objects": sources}))
    lines = [line.split("\t") for line in (folder / ".ninja_log").read_text().splitlines() if "\t" in line]
    seconds = {
        sources[target]: (int(end) - int(start)) / 1e3 for start, end, _, target, *_ in lines if target in sources
    }
    return [kernel.as_dict() for kernel in kernels], seconds
