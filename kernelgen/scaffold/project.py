"""A stamped project on disk: its root, its answers and its template."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from kernelgen.errors import KernelgenError, UsageError
from kernelgen.scaffold import journal, lock, names, record, template
from kernelgen.scaffold.render import Renderer, parse_yaml, recipes
from kernelgen.scaffold.template import Template

# The newest layout of stamped projects that this kernelgen knows; each project's answers file holds its own.
LAYOUT = 1

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class MissingPackageError(KernelgenError):
    """The folder of the package that the record names is not there."""


@dataclass(frozen=True)
class Project:
    """A project; `root` is the folder of its `.copier-answers.yml`, which holds `answers`."""

    root: Path
    answers: dict[str, Any]

    @property
    def ops(self) -> list[dict[str, Any]]:
        return self.answers["ops"]

    @property
    def package(self) -> Path:
        return self.root / "src" / self.answers["package_name"]

    @cached_property
    def template(self) -> Template:
        """The version of the template that this project was stamped from.

        Raises:
            KernelgenError: this machine does not hold that version.
        """
        return template.recorded(self.answers)

    def recipes(self) -> dict[str, Path]:
        """The folder of each recipe of the project's template, by name.

        Raises:
            KernelgenError: this machine does not hold the project's template.
        """
        return recipes(self.template.folder)

    def op_folder(self, name: str) -> Path:
        return self.package / "ops" / name

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def renderer(self, ops: list[dict[str, Any]] | None = None) -> Renderer:
        """A renderer of this project, with `ops` instead of its own ops.

        Raises:
            KernelgenError: this machine does not hold the project's template, or that has no recipe of one of its ops.
        """
        answers = self.answers if ops is None else self.answers | {"ops": ops}
        self.check_recipes(self.template)
        return Renderer(self.template.folder, answers, self.root.name)

    def check_recipes(self, source: Template) -> None:
        """Refuse a record with an op of a recipe that the template does not have.

        Raises:
            KernelgenError: there is such an op.
        """
        known = recipes(source.folder)
        for op in self.ops:
            if op["recipe"] not in known:
                raise KernelgenError(
                    f"`ops` in {self.root / template.ANSWERS_FILE} says that {op['name']} is of the recipe "
                    f"{op['recipe']!r}, which the template does not have. {names.did_you_mean(op['recipe'], known)}"
                )

    def answers_file(self, renderer: Renderer) -> bytes:
        """The renderer's record, with the comments that the owner wrote into the present one."""
        return record.merged((self.root / template.ANSWERS_FILE).read_bytes(), renderer.answers_file(), keep_ops=True)


def find(start: Path) -> Project:
    """The project that `start` lies in. What a killed command left half written there is undone first.

    Raises:
        KernelgenError: there is none, or this kernelgen cannot work on it.
    """
    root = _root(start)
    journal.recover(root)
    return _open(root, start)


@contextmanager
def writing(start: Path, unmerged: bool = False) -> Iterator[Project]:
    """As `find`, for a verb that writes: no other one writes to the project meanwhile.

    With `unmerged`, the record may hold anything, as in the middle of a merge, and the project has no answers.

    Raises:
        KernelgenError: as `find`.
    """
    root = _root(start)
    with lock.exclusive(root):
        journal.recover_locked(root)
        yield Project(root, {}) if unmerged else _open(root, start)


def _root(start: Path) -> Path:
    if not start.exists():
        raise UsageError(f"There is no folder {start}; name a project with --project.")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / template.ANSWERS_FILE).is_file() or (folder / journal.FOLDER / "journal").is_dir():
            return folder
    return start


def _open(root: Path, start: Path) -> Project:
    if (root / template.ANSWERS_FILE).is_file():
        home = Project(root, _read(root / template.ANSWERS_FILE))
        if not home.package.is_dir():
            raise MissingPackageError(
                f"There is no folder {home.package}, which {template.ANSWERS_FILE} names; put it back. To rename a "
                "package: kernelgen update --data package_name=NAME"
            )
        return home
    raise KernelgenError(
        f"{start.resolve()} is not inside a kernelgen project (no {template.ANSWERS_FILE} there or above); "
        "change into a project, name it with --project, or stamp one with `kernelgen new DIR`."
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes()
        answers = parse_yaml(text)
        key = record.twice(text.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise KernelgenError(
            f"{file} is not valid YAML{line}; if a merge left conflict markers in it, resolve them first."
        ) from error
    layout = answers.get("kernelgen_template") if isinstance(answers, dict) else None
    if not isinstance(layout, int):
        raise KernelgenError(
            f"{file.parent} was stamped from another template than kernelgen's; use `copier update` there."
        )
    if key:
        raise KernelgenError(f"{file} has `{key}:` twice, as after a merge; keep the newer of the two.")
    if layout > LAYOUT:
        raise KernelgenError(
            f"{file.parent} was stamped by a newer kernelgen; get it with: pip install --upgrade kernelgen"
        )
    _check(file, answers)
    return answers


def _check(file: Path, answers: dict[str, Any]) -> None:
    """Check the answers that become paths, since people edit this file."""
    if not _NAME.fullmatch(str(answers.get("package_name"))):
        raise KernelgenError(f"`package_name` in {file} must be lower-case letters, digits and underscores.")
    ops = answers.setdefault("ops", [])
    is_list_of_entries = isinstance(ops, list) and all(isinstance(op, dict) for op in ops)
    if not is_list_of_entries or not all(_NAME.fullmatch(str(op.get(key))) for op in ops for key in ("name", "recipe")):
        raise KernelgenError(
            f"`ops` in {file} must be a list of entries with a `name` and a `recipe`, "
            "both of lower-case letters, digits and underscores."
        )
    op_names = [op["name"] for op in ops]
    for name in op_names:
        if op_names.count(name) > 1:
            raise KernelgenError(
                f"`ops` in {file} lists {name} more than once, as after a merge; delete all but one of its lines."
            )
