"""The two stamps of an update: what the template once made for a project, and what it makes of it now."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold import record, render
from kernelgen.scaffold.project import LAYOUT, Project
from kernelgen.scaffold.render import File, Renderer, parse_yaml
from kernelgen.scaffold.template import ANSWERS_FILE, Template
from kernelgen.scaffold.update import versions
from kernelgen.scaffold.update.merge import renames

# What the renderer knows of Copier's settings; a template with another needs a newer kernelgen.
_SETTINGS = {"_min_copier_version", "_subdirectory", "_answers_file", "_envops", "_exclude"}
_SETTINGS |= {f"_message_{when}_{what}" for when in ("before", "after") for what in ("copy", "update")}


@dataclass(frozen=True)
class Stamps:
    """Both stamps, without the record, by path.

    Args:
        moves: the new path of each file of the old stamp that the template has renamed.
        answers_file: the record that goes with the new stamp.
        orphans: ops whose recipe the template no longer has; they are in neither stamp.
    """

    old: dict[str, File]
    new: dict[str, File]
    moves: dict[str, str]
    answers_file: bytes
    orphans: list[str] = field(default_factory=list)


def stamps(project: Project, before: Template, after: Template, data: Mapping[str, Any]) -> Stamps:
    """Render both; `data` are answers to change.

    Raises:
        KernelgenError: a template cannot be rendered with the project's answers, or needs a newer kernelgen.
    """
    _check_settings(after)
    old = old_stamp(project, before)
    renamed = _renamed_sources(before, after)
    recipes, known = _renamed_recipes(renamed), render.recipes(after.folder)
    ops, orphans = [], []
    for op in project.ops:
        recipe = op["recipe"] if op["recipe"] in known else recipes.get(op["recipe"])
        if recipe in known:
            ops.append(op | {"recipe": recipe} | ({"version": after.commit} if "version" in op else {}))
        else:
            orphans.append(op["name"])
    answers = {name: value for name, value in project.answers.items() if name not in ("_commit", "_src_path")}
    source = {"_src_path": project.answers["_src_path"]} if "_src_path" in project.answers else {}
    renderer = Renderer(after.folder, answers | data | {"ops": ops} | after.stamp() | source, project.root.name)
    new = renderer.everything()
    text = new.pop(ANSWERS_FILE).content
    _check_layout(after, text)
    old = {path: file for path, file in old.items() if file.op not in orphans}
    now = (project.root / ANSWERS_FILE).read_bytes()
    former = Renderer(before.folder, project.answers, project.root.name).answers_file()
    answers_file = record.merged(now, text, keep_ops=False, former=former)
    return Stamps(old, new, _moves(old, new, renamed), answers_file, orphans)


def old_stamp(project: Project, before: Template) -> dict[str, File]:
    """The project as it was stamped; an op that was added at another version, as by a branch, at that version."""
    project.check_recipes(before)
    commit = project.answers.get("_commit")
    foreign = {op["name"]: op["version"] for op in project.ops if op.get("version", commit) != commit}
    files = Renderer(before.folder, project.answers, project.root.name).everything()
    stamp = {path: file for path, file in files.items() if file.op not in foreign and path != ANSWERS_FILE}
    for name, version in foreign.items():
        older = versions.current(project.answers | {"_commit": version})
        stamp |= Renderer(older.folder, project.answers, project.root.name).op(name)
    return stamp


def _check_settings(template: Template) -> None:
    config = parse_yaml((template.folder / "copier.yml").read_bytes())
    unknown = sorted(name for name in config if name.startswith("_") and name not in _SETTINGS)
    if unknown:
        raise KernelgenError(
            f"The template {template.commit} uses {', '.join(unknown)}, which this kernelgen does not know; get a "
            "newer one (pip install --upgrade kernelgen), or use `copier update`."
        )


def _check_layout(template: Template, answers_file: bytes) -> None:
    layout = parse_yaml(answers_file).get("kernelgen_template")
    if not isinstance(layout, int) or layout > LAYOUT:
        raise KernelgenError(
            f"The template {template.commit} is for a newer kernelgen; get it with: pip install --upgrade kernelgen"
        )


def _renamed_sources(before: Template, after: Template) -> dict[str, str]:
    """The template's own files that have another name in the newer version.

    They are looked for among the template's files, not among those of the project: there, the same file of two ops may
    be equal, and an edit of one op would move to the other.
    """
    old, new = _sources(before.folder), _sources(after.folder)
    return renames({path: old[path]() for path in old.keys() - new}, {path: new[path]() for path in new.keys() - old})


def _sources(folder: Path) -> dict[str, Callable[[], bytes]]:
    files = (path for path in (folder / "template").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix(): path.read_bytes for path in files}


def _renamed_recipes(renamed: Mapping[str, str]) -> dict[str, str]:
    """The new name of each recipe whose folder the template has renamed."""
    return {
        before: after
        for source, target in renamed.items()
        if (before := record.recipe_of(source)) and (after := record.recipe_of(target)) and before != after
    }


def _moves(old: Mapping[str, File], new: Mapping[str, File], renamed: Mapping[str, str]) -> dict[str, str]:
    by_source = {(file.source, file.op): path for path, file in new.items()}
    pairs = ((path, by_source.get((renamed.get(file.source, file.source), file.op))) for path, file in old.items())
    moves = {path: target for path, target in pairs if target and target != path}
    return {path: target for path, target in moves.items() if path not in new and target not in old}


def moved_folders(stamps: Stamps) -> dict[str, str]:
    """The new path of each folder that the template has renamed whole, so that the owner's own files go along."""
    staying = {str(folder) for path in stamps.new for folder in PurePosixPath(path).parents}
    targets: dict[str, Counter[str]] = {}
    for path, target in stamps.moves.items():
        before, after = PurePosixPath(path).parent, PurePosixPath(target).parent
        targets.setdefault(str(before), Counter())[str(after)] += 1
    return {before: next(iter(after)) for before, after in targets.items() if len(after) == 1 and before not in staying}
