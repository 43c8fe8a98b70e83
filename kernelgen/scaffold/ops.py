"""Plans the adding and removing of ops, and says which state each op is in."""

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError, UsageError
from kernelgen.scaffold import git, names
from kernelgen.scaffold.plan import Plan, read
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.render import File, Renderer
from kernelgen.scaffold.template import ANSWERS_FILE

# A backend's file calls this macro until its kernel is written.
NOT_WRITTEN = b"NOT_WRITTEN("
_BACKENDS = {"cpu": "cpu.cpp", "cuda": "cuda.cpp"}


@dataclass(frozen=True)
class Status:
    """An op's state: `pristine`, `edited`, `missing` (no files) or `unrecorded` (files, but no entry)."""

    name: str
    recipe: str | None
    state: str
    backends: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def add(project: Project, entry: dict[str, Any]) -> Plan:
    """Plan an op's files and its entry in the project's `ops`.

    Raises:
        UsageError: the name or the recipe cannot be used, or PyTorch would not see the schema's tensors.
        ConflictError: an op has that name, or files are where its files would be.
        KernelgenError: this machine does not hold the project's template.
    """
    name = entry["name"]
    if "_commit" in project.answers:
        # An update may overtake the branch that the op is added on: merged, the record names another version.
        entry = entry | {"version": project.answers["_commit"]}
    renderer = project.renderer(sorted([*project.ops, entry], key=lambda op: op["name"]))
    check_name(project, name)
    check_recipe(entry["recipe"], renderer)
    schema = entry.get("schema", {})
    if schema.get("takes_tensors") and not schema["dispatches"]:
        raise UsageError(
            f"{schema['text']} takes tensors only in lists that may be None, where PyTorch does not look for a device "
            "or a gradient; take Tensor[], which may be empty."
        )
    _check_modules(project, entry)
    files = renderer.op(name)
    _check_operators(project, name, files)
    plan = Plan(project.root)
    for path, file in files.items():
        plan.set(path, file.content, file.executable)
    plan.set(ANSWERS_FILE, project.answers_file(renderer))
    return plan


def remove(project: Project, name: str, force: bool = False) -> Plan:
    """Plan the removal of an op's files and of its entry, whichever exist.

    Raises:
        UsageError: there is no such op.
        ConflictError: the folder holds files that were edited or that kernelgen did not write; not with `force`.
        KernelgenError: this machine does not hold the project's template.
    """
    recorded = [op["name"] for op in project.ops]
    if name not in recorded and name not in _folders(project):
        raise UsageError(f"There is no op {name!r} here. {names.did_you_mean(name, recorded)}")
    renderer = project.renderer([op for op in project.ops if op["name"] != name])
    if not force and (edited := _edited(project, name, project.renderer())):
        raise ConflictError(
            f"{name} holds files that were edited or that kernelgen did not write: {', '.join(edited)}. "
            f"`kernelgen remove-op {name} --force` deletes them too."
        )
    plan = Plan(project.root)
    for path in _on_disk(project, name):
        plan.set(path, None)
    if name in recorded:
        plan.set(ANSWERS_FILE, project.answers_file(renderer))
    return plan


def statuses(project: Project) -> list[Status]:
    """Every op that the project records or holds, sorted by name.

    Raises:
        KernelgenError: this machine does not hold the project's template.
    """
    renderer = project.renderer()
    recipes = {op["name"]: op["recipe"] for op in project.ops}
    op_names = sorted({*recipes, *_folders(project)})
    return [
        Status(name, recipes.get(name), _state(project, name, renderer), _backends(project, name)) for name in op_names
    ]


def to_write(plan: Plan) -> list[str]:
    """The files of a plan with a kernel to be written: glue that calls NOT_WRITTEN, and the device code beside it."""
    sources = [change for change in plan.changes if change.path.endswith(".cpp")]
    glue = {change.path for change in sources if NOT_WRITTEN in (change.new or b"")}
    folders = {path.rpartition("/")[0] for path in glue}
    device = {change.path for change in plan.changes if change.path.endswith(".cu")}
    return sorted(glue | {path for path in device if path.rpartition("/")[0] in folders})


def kernels(plan: Plan) -> list[str]:
    """The files of a plan that define kernels."""
    sources = [change for change in plan.changes if change.path.endswith((".cu", ".cuh"))]
    return sorted(change.path for change in sources if b"__global__" in (change.new or b""))


def check_recipe(recipe: str, renderer: Renderer) -> None:
    """Refuse a recipe that the template does not have.

    Raises:
        UsageError: there is no such recipe.
    """
    known = renderer.recipes()
    if recipe not in known:
        raise UsageError(f"There is no recipe {recipe!r}. {names.did_you_mean(recipe, known)}")


def check_name(project: Project, name: str) -> None:
    """Refuse a name that no op can have, or that is taken in the project.

    Raises:
        UsageError: no op can be called that.
        ConflictError: an op has that name, or files are where its files would be.
    """
    names.check(name)
    if any(op["name"] == name for op in project.ops):
        raise ConflictError(f"There is already an op {name}; take another name, or `kernelgen remove-op {name}` first.")
    if any(_on_disk(project, name)):
        folder = project.relative(project.op_folder(name))
        raise ConflictError(
            f"{folder} is in the way and belongs to no op; move it away, or `kernelgen remove-op {name} --force`."
        )
    for path in (project.op_folder(name), project.package / name, project.package / f"{name}.py"):
        if path.is_file() or path.is_symlink() or (path.is_dir() and path.parent == project.package):
            raise ConflictError(f"{project.relative(path)} is in the way of an op called {name}; take another name.")


def _check_modules(project: Project, entry: dict[str, Any]) -> None:
    """Refuse a name that the op's own Python modules, or the package's, use for something else."""
    name, neutral = entry["name"], f"{entry['name']}_op"
    # A reference that was taken from a function has the function's name, which is the op's.
    skipped = {f"{neutral}/reference.py"} if entry.get("reference") else set()
    sources = {project.package / "__init__.py": read(project.package / "__init__.py") or b""}
    for path, file in project.renderer([{**entry, "name": neutral}]).op(neutral).items():
        if path.endswith(".py") and not path.endswith(tuple(skipped)):
            sources[project.root / path] = file.content
    for path, source in sources.items():
        with suppress(SyntaxError, ValueError):
            if name in names.global_names(source.decode()):
                raise UsageError(
                    f"{name!r} cannot name this op: {path.name.replace(neutral, name)} uses that name itself. "
                    f"Try {neutral}."
                )


def _check_operators(project: Project, name: str, files: dict[str, File]) -> None:
    """Refuse an op with an operator that another op defines, such as the gradient of one in an op of that name: PyTorch
    takes each once, and the package would not import."""
    init = project.relative(project.op_folder(name) / "__init__.py")
    own = _operators(files[init].content) if init in files else set()
    for other in _folders(project):
        for operator in sorted(own & _operators(read(project.op_folder(other) / "__init__.py") or b"")):
            raise ConflictError(
                f"{name} would define the operator {operator}, which the op {other} defines already; take another name."
            )


def _operators(source: bytes) -> set[str]:
    """The operators that an op's `__init__.py` defines: the keys of its literal SCHEMAS."""
    with suppress(SyntaxError, ValueError):
        for statement in ast.parse(source).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == "SCHEMAS" for target in targets):
                keys = getattr(statement.value, "keys", [])
                return {key.value for key in keys if isinstance(key, ast.Constant)}
    return set()


def _folders(project: Project) -> set[str]:
    """The names of the folders in the package's `ops` that are not empty."""
    ops = project.package / "ops"
    folders = {entry.name for entry in os.scandir(ops) if entry.is_dir()} if ops.is_dir() else set()
    return {name for name in folders if not name.startswith(("_", ".")) and any(_on_disk(project, name))}


def _on_disk(project: Project, name: str) -> Iterator[str]:
    """Every file and symbolic link in an op's folder, except Python's bytecode."""
    for folder, folders, files in os.walk(project.op_folder(name)):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        links = [inner for inner in folders if os.path.islink(os.path.join(folder, inner))]
        yield from (project.relative(Path(folder, file)) for file in sorted(files + links))


def _edited(project: Project, name: str, renderer: Renderer) -> list[str]:
    """The files in an op's folder that differ from what kernelgen stamped; build outputs aside, unless in git."""
    stamped = renderer.op(name)
    paths = list(_on_disk(project, name))
    outputs = {path for path in paths if renderer.excluded(os.path.basename(path))}
    if outputs:
        listed = git.text_or("", project.root, "ls-files", "-z", "--", *(f":(literal){path}" for path in outputs))
        outputs -= set(listed.split("\0"))
    others = (path for path in paths if path not in outputs)
    return [path for path in others if path not in stamped or not _same(project.root / path, stamped[path])]


def _same(path: Path, stamped: File) -> bool:
    # git may check a file out with other line ends than it was committed with.
    return (read(path) or b"").replace(b"\r\n", b"\n") == stamped.content


def _state(project: Project, name: str, renderer: Renderer) -> str:
    existing, stamped = set(_on_disk(project, name)), renderer.op(name)
    if not existing:
        return "missing"
    if not stamped:
        return "unrecorded"
    return "edited" if _edited(project, name, renderer) or stamped.keys() - existing else "pristine"


def _backends(project: Project, name: str) -> list[str]:
    """The backends whose kernel is written."""
    sources = {backend: read(project.op_folder(name) / file) for backend, file in _BACKENDS.items()}
    return [backend for backend, source in sources.items() if source is not None and NOT_WRITTEN not in source]
