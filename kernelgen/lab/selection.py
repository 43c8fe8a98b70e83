"""A project with the ops that a verb of the lab works on."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.scaffold import project
from kernelgen.scaffold.names import did_you_mean
from kernelgen.scaffold.schema.parser import parse
from kernelgen.toolchain.python import find_python


@dataclass(frozen=True)
class Selection:
    """A project, the Python to run it with, and ops of it."""

    root: Path
    package: str
    python: Path
    ops: list[str]

    def request(self, work: str, **more: Any) -> dict[str, Any]:
        """A request to `worker_process.run`."""
        return {"work": work, "project": str(self.root), "package": self.package, "ops": self.ops, **more}


def select(folder: Path, python: Path | None, names: Sequence[str]) -> Selection:
    """The ops of these names, or all that have a lab.py, of the project that a folder lies in.

    Raises:
        LabError: there is no such project or op, an op has no lab.py, or no Python with torch was found.
    """
    try:
        home = project.find(folder)
        python = find_python(home.root, python)
    except KernelgenError as error:
        raise LabError(str(error)) from None
    folders = {file.parent.name: file.parent for file in sorted(home.package.glob("ops/*/__init__.py"))}
    described = [name for name, folder in folders.items() if (folder / "lab.py").is_file()]
    for name in names:
        if name not in folders:
            raise LabError(f"{home.root} has no op {name!r}. {did_you_mean(name, folders)}".rstrip())
        if name not in described:
            raise LabError(_without_lab(home, folders[name]))
    if not described:
        raise LabError(
            f"No op of {home.root} has a lab.py, which the lab needs; `kernelgen add-op` adds an op with one."
        )
    return Selection(home.root, home.package.name, python, list(dict.fromkeys(names)) or described)


def _without_lab(home: project.Project, folder: Path) -> str:
    """Why the lab does not work on an op without a lab.py, and what to do."""
    if _is_query(folder / "__init__.py"):
        tests = home.relative(folder)
        return (
            f"{folder.name} takes and returns no tensor, so there is nothing to fuzz or to measure; its own tests "
            f"compare what it returns: `pytest {tests}`."
        )
    file = home.relative(folder / "lab.py")
    return f"{folder.name} has no {file}, which describes an op to the lab; `kernelgen update` brings one."


def _is_query(module: Path) -> bool:
    """Whether no operator of an op takes or returns a tensor."""
    try:
        statements = ast.parse(module.read_text(encoding="utf-8")).body
        assigned = [(ast.unparse(s.targets[0]), s.value) for s in statements if isinstance(s, ast.Assign)]
        schemas = ast.literal_eval(dict(assigned)["SCHEMAS"])
        return bool(schemas) and all(parse(schema).is_constant for schema in schemas.values())
    except (OSError, SyntaxError, KeyError, ValueError, KernelgenError):  # What is wrong there the build says.
        return False
