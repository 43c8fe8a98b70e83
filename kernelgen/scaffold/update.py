"""Brings a project to a newer template, through copier's own three-way merge.

The merge runs in a clone of the project. Its result reaches the project as a plan, all or none.
"""

import contextlib
import io
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.scaffold import git
from kernelgen.scaffold.plan import Plan, read
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.render import parse_yaml
from kernelgen.scaffold.template import ANSWERS_FILE


@dataclass
class Update:
    """The plan of an update; `conflicts` are the files that a person has to merge."""

    plan: Plan
    top: Path
    before: str
    after: str
    conflicts: list[str] = field(default_factory=list)
    _stages: bytes = b""
    _blobs: list[bytes] = field(default_factory=list)

    def apply(self) -> None:
        """Apply the plan, and mark the conflicts in git's index, as copier does.

        Raises:
            ConflictError, OSError: as `Plan.apply`.
        """
        self.plan.apply()
        for blob in self._blobs:
            git.git(self.top, "hash-object", "-w", "--stdin", stdin=blob)
        if self._stages:
            git.git(self.top, "update-index", "-z", "--index-info", stdin=self._stages)


def update(project: Project) -> Update:
    """Merge the newest template into a clone of the project, and plan the same changes for the project.

    Raises:
        KernelgenError: the project does not name its template, has uncommitted changes, or copier failed.
    """
    source = _check_source(project)
    top = _check_clean(project.root)
    below = project.root.relative_to(top)
    with tempfile.TemporaryDirectory(prefix="kernelgen-update-") as scratch:
        clone = Path(scratch, "clone")
        git.git(top, "clone", "--quiet", "--shared", "--", str(top), str(clone))
        _run_copier(clone / below, source)
        return _planned(project, top, clone, below)


def _check_source(project: Project) -> str:
    source, file = project.answers.get("_src_path"), project.root / ANSWERS_FILE
    local = isinstance(source, str) and (Path(source).expanduser().is_dir() or not any(c in source for c in ":@"))
    if not source or "_commit" not in project.answers:
        missing = "_commit: v…" if source else "_src_path: git+https://…/kernelgen.git"
        raise KernelgenError(f"{file} does not say what this project was stamped from; add the line `{missing}`.")
    if local and not Path(source).expanduser().is_absolute():
        raise KernelgenError(f"`_src_path: {source}` in {file} is relative; write the template's whole address there.")
    return source


def _check_clean(root: Path) -> Path:
    """The root of the project's repository; refuses one without commits, or with uncommitted changes."""
    try:
        top = Path(git.text(root, "rev-parse", "--show-toplevel"))
        git.text(root, "rev-parse", "--verify", "HEAD")
    except git.GitError as error:
        raise KernelgenError(
            f"An update merges with git, and {root} has no commit: git init && git add -A && git commit"
        ) from error
    if git.text(root, "status", "--porcelain", "--", str(root)):
        raise KernelgenError(f"{root} has uncommitted changes; commit or stash them (git stash -u), then try again.")
    return top


def _run_copier(project: Path, source: str) -> None:
    import copier
    from copier.errors import CopierError
    from plumbum import ProcessExecutionError

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            copier.run_update(project, vcs_ref=_pinned(source), defaults=True, overwrite=True, quiet=True)
    except ProcessExecutionError as error:
        messages = [line for line in error.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        raise KernelgenError(
            f"The update stopped, and nothing was changed: {(messages or [str(error.argv)])[0]}"
        ) from error
    except (CopierError, ValueError, TypeError) as error:
        raise KernelgenError(f"The update stopped, and nothing was changed: {error}") from error


def _pinned(source: str) -> str | None:
    """HEAD of a local checkout without tags: by default copier would stamp its uncommitted changes too."""
    folder = Path(source).expanduser()
    if not folder.is_dir() or git.text_or("", folder, "tag"):
        return None
    return git.text_or("", folder, "rev-parse", "HEAD") or None


def _planned(project: Project, top: Path, clone: Path, below: Path) -> Update:
    changed = git.git(clone, "diff", "--name-only", "--no-renames", "-z", "HEAD").split(b"\0")
    # The clone was fresh: whatever git does not know, ignored or not, was made by the update.
    added = git.git(clone, "ls-files", "--others", "-z").split(b"\0")
    plan = Plan(project.root)
    for path in sorted({os.fsdecode(name) for name in changed + added if name}):
        file = clone / path
        executable = file.is_file() and os.access(file, os.X_OK)
        plan.set(Path(path).relative_to(below).as_posix(), read(file), executable)
    stages = git.git(clone, "ls-files", "--unmerged", "-z")
    entries = [entry.partition(b"\t") for entry in stages.split(b"\0") if entry]
    conflicts = sorted({os.fsdecode(path) for _, _, path in entries})
    after = parse_yaml((clone / below / ANSWERS_FILE).read_bytes())["_commit"]
    update = Update(plan, top, str(project.answers["_commit"]), str(after), conflicts)
    if conflicts:
        forget = b"".join(b"0 " + b"0" * 40 + b"\t" + os.fsencode(path) + b"\0" for path in conflicts)
        update._stages = forget + stages
        update._blobs = [git.git(clone, "cat-file", "blob", entry.split()[1].decode()) for entry, _, _ in entries]
    return update
