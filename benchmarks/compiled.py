"""The kernels that a project's last build compiled, and the compile time of each source."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelgen.toolchain import resources


def compiled(project: Path, ops: tuple[str, ...]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The kernels of `ops` in the last build, and by source the seconds that it took to compile."""
    folder = project / "build" / "release"
    configuration = json.loads((folder / "environment.json").read_text())
    folders = tuple(f"/ops/{op}/" for op in ops)
    objects = configuration["objects"].items()
    sources = {
        name: source
        for name, source in objects
        if resources.is_kernel_object(name) and any(folder in source for folder in folders)
    }
    kernels = resources.read(project, SimpleNamespace(configuration={**configuration, "objects": sources}))
    lines = [line.split("\t") for line in (folder / ".ninja_log").read_text().splitlines() if "\t" in line]
    seconds = {
        sources[target]: (int(end) - int(start)) / 1e3 for start, end, _, target, *_ in lines if target in sources
    }
    return [kernel.as_dict() for kernel in kernels], seconds
