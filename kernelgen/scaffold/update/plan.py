"""Plans an update: the project and both stamps are merged, and the outcome becomes a plan of the project's files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError, KernelgenError
from kernelgen.scaffold import git, journal, template
from kernelgen.scaffold.plan import Plan
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.template import ANSWERS_FILE, Template
from kernelgen.scaffold.update import repository, versions
from kernelgen.scaffold.update.ends import PROGRAM, Ends, has_crlf
from kernelgen.scaffold.update.merge import SUFFIX, Conflict, Entry, Merged, merge
from kernelgen.scaffold.update.stamps import Stamps, stamps

# The template's version of a file that cannot be merged lies beside the owner's.
BESIDE = ".from-template"


@dataclass
class Update:
    """The plan of an update, and what it comes to.

    Args:
        before, after: the template's versions.
        merged: files that both sides changed, merged.
        renamed: files that the template renamed, with edits or not: pairs of paths.
        skipped: files that the owner deleted and the template changed; they stay deleted.
        ignored: files of the template that git ignores here.
        orphans: ops whose recipe the template no longer has; they are the owner's own from now on.
        conflicts: what happened to each file that a person has to merge.
        unmarked: why git's index could not be marked; empty if it was.
    """

    plan: Plan
    before: str
    after: str
    merged: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    unmarked: str = ""
    _stages: dict[str, dict[int, Entry]] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The outcome as data, the plan aside."""
        summary = {"merged": self.merged, "renamed": self.renamed, "skipped": self.skipped}
        summary |= {"ignored": self.ignored, "orphans": self.orphans}
        versions = {"before": self.before, "after": self.after}
        return versions | {"conflicts": sorted(self.conflicts), "happened": self.conflicts} | summary

    def apply(self) -> None:
        """Apply the plan and mark the conflicts in git's index; they can be undone until they are resolved.

        Raises:
            ConflictError: a file changed meanwhile, or another git command holds the index. Nothing was changed.
            OSError: a file could not be written. Nothing was changed.
        """
        if not self._stages:
            self.plan.apply()
            return
        repository.check_index(self.plan.root)
        beside = [change.path for change in self.plan.changes if change.path.endswith(BESIDE)]
        head = git.text(self.plan.root, "rev-parse", "HEAD")
        self.plan.apply(keep={"head": head, "conflicts": sorted(self.conflicts), "beside": beside})
        try:
            repository.mark(self.plan.root, self._stages)
        except git.GitError as error:
            self.unmarked = str(error)


def plan(
    project: Project,
    ref: str | None = None,
    data: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Update:
    """Plan the update of a project to the newest template, or to the one at `ref`, with the answers `data` changed.

    `tell` is told once the merge, which takes a second or more, begins.

    Raises:
        KernelgenError: the project has uncommitted changes, or its template cannot be reached.
        ConflictError: files that git does not keep are in the way.
        UsageError: there is no such `ref`, question or answer.
    """
    if "_commit" not in project.answers:
        raise KernelgenError(
            f"{project.root / ANSWERS_FILE} does not say which version of the template this project was stamped from; "
            "add the line `_commit: v…`."
        )
    own = repository.examine(project.root)
    before, after = versions.current(project.answers), versions.target(project.answers, ref)
    project.check_recipes(before)
    update = Update(Plan(project.root), str(project.answers.get("_commit")), after.commit)
    if not data and _is_nothing_new(project, before, after):
        update.after = update.before
        return update
    template.remember(after)
    answers = _answers(project, after, data)
    tell(f"Merging the template into {project.root} …")
    both = stamps(project, before, after, answers)
    ends = Ends(project.root, own, both)
    outcome = merge(ends.base, ends.ours, ends.theirs, own.objects)
    _settle(update, ends, outcome)
    update.orphans = both.orphans
    update.ignored = repository.ignored(project.root, update.plan.paths("create"))
    update.plan.set(ANSWERS_FILE, both.answers_file)
    _check_way(update.plan, own, both)
    return update


def _is_nothing_new(project: Project, before: Template, after: Template) -> bool:
    commit = project.answers.get("_commit")
    if any(op.get("version", commit) != commit for op in project.ops):
        return False
    return before.folder == after.folder or _files(before.folder) == _files(after.folder)


def _files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """A template's files: their contents, and whether they are executable."""
    contents = template.contents(folder)
    return {path: (text, bool((folder / path).stat().st_mode & 0o100)) for path, text in contents.items()}


def _answers(project: Project, after: Template, data: Mapping[str, Any] | None) -> dict[str, Any]:
    if not data:
        return {}
    from kernelgen.scaffold import new

    return new.changed_answers(after, project.root.name, project.answers, dict(data))


def _settle(update: Update, ends: Ends, outcome: Merged) -> None:
    """Turn the outcome into changes of the project's files."""
    for conflict in outcome.conflicts.values():
        _settle_conflict(update, ends, conflict, outcome)
    update.renamed = sorted((path, to) for path, to in ends.moves.items() if to in ends.origin)
    update.merged = sorted(path for path in outcome.files if _both_changed(path, ends) and path not in update.conflicts)
    for path in [*outcome.unchanged, *outcome.files]:
        origin = ends.origin.get(path, path)
        if path in outcome.unchanged and origin != path:
            file = journal.look(ends.root / origin)
            _set(update.plan, path, (file.mode, file.content) if file else None)
        elif path in outcome.files:
            mode, content = outcome.files[path]
            before = journal.look(ends.root / origin)
            if before and has_crlf(before.content) and b"\r" not in content:
                content = content.replace(b"\n", b"\r\n")
            _set(update.plan, path, (mode, content))
    remaining = outcome.unchanged | outcome.files.keys()
    for path, origin in ends.origin.items():
        if path not in remaining or origin != path:
            _set(update.plan, origin, None)


def _set(plan: Plan, path: str, entry: Entry | None) -> None:
    if entry is None:
        plan.set(path, None)
    else:
        plan.set(path, entry[1], executable=entry[0] == PROGRAM, link=entry[0] == journal.LINK)


def _both_changed(path: str, ends: Ends) -> bool:
    base = ends.base.get(path)
    return base is not None and ends.ours.get(path) not in (base, None) and ends.theirs.get(path) not in (base, None)


def _settle_conflict(update: Update, ends: Ends, conflict: Conflict, outcome: Merged) -> None:
    """Say what happened, and put into the outcome what lies in the project until a person has decided."""
    path, stages = conflict.path, conflict.stages
    if 2 not in stages and 3 not in stages:
        return
    if 2 not in stages and 1 in stages:
        update.skipped.append(path if path in ends.theirs else path.removesuffix(SUFFIX))
        return
    if conflict.marked:
        outcome.files[path] = conflict.marked
        update.conflicts[path] = (
            "you and the template changed the same lines" if 1 in stages else "you and the template each added it"
        )
    elif path.endswith(SUFFIX) and path not in ends.theirs:
        outcome.files[path] = stages[3]
        update.conflicts[path] = "you have a folder of that name; this is the template's file"
    elif path.endswith("~HEAD") and path not in ends.ours:
        outcome.files[path] = stages[2]
        update.conflicts[path] = "the template has a folder of that name now; this is your file"
    elif 3 not in stages:
        outcome.files[path] = stages[2]
        update.conflicts[path] = "the template deleted it, and you had edited it; it stays until you decide"
    elif 2 not in stages:
        outcome.files[path] = stages[3]
        update.conflicts[path] = "you and the template each renamed it; this is the template's"
    else:
        beside = f"{path}{BESIDE}"
        outcome.files |= {path: stages[2], beside: stages[3]}
        update.conflicts[path] = f"you and the template changed it, and it is no text; the template's is {beside}"
    update._stages[path] = stages


def _check_way(plan: Plan, own: repository.Repository, both: Stamps) -> None:
    """Refuse to touch what git could not bring back: files it ignores or does not know, or is told not to look at.

    Raises:
        ConflictError: such files are in the way.
    """
    hidden = [change.path for change in plan.changes if change.path in own.hidden]
    if hidden:
        raise ConflictError(
            f"git is told not to look at {', '.join(hidden)}, which the template changes; nothing was changed. "
            f"`git update-index --no-skip-worktree --no-assume-unchanged {' '.join(hidden)}`, then commit."
        )
    stamped = {path: file.content for path, file in both.old.items()}
    unknown = [
        change.path
        for change in plan.changes
        if change.old is not None and change.path not in own.files and change.old != stamped.get(change.path)
    ]
    if unknown:
        raise ConflictError(
            f"{', '.join(unknown)}: in the way of the template's, and git does not keep what is there now; nothing was "
            "changed. Move it away, or `git add --force` and commit it."
        )
