"""An update with conflicts: what is left to resolve, and the way back."""

import os
import shlex
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError, KernelgenError
from kernelgen.scaffold import git, journal
from kernelgen.scaffold.update import repository
from kernelgen.scaffold.update.merge import LABELS

_MARKERS = (f"<<<<<<< {LABELS[0]}".encode(), f">>>>>>> {LABELS[2]}".encode())


def check(root: Path) -> None:
    """Refuse to go on before the conflicts of the last update are resolved; forget an update that was.

    Raises:
        ConflictError: it is not resolved yet.
    """
    if _facts(root) is None:
        return
    raise ConflictError(
        "The last update left conflicts: resolve them, then `kernelgen update --continue`; or undo it by "
        "`kernelgen update --abort`."
    )


def finish(root: Path) -> list[str]:
    """End the update, once no conflict is left; returns the files that were in conflict.

    Raises:
        ConflictError: conflicts are left.
        KernelgenError: no update is unfinished.
    """
    facts = _needed(root)
    marked = [path for path in facts["conflicts"] if _has_markers(root / path)]
    unresolved = sorted({*marked, *(set(repository.unmerged(root)) & set(facts["conflicts"]))})
    beside = [path for path in facts["beside"] if (root / path).exists()]
    if unresolved:
        step, names = from_here(root, unresolved)
        raise ConflictError(f"Not resolved yet: {', '.join(unresolved)}. Then `{step}git add {names}` (or `git rm`).")
    if beside:
        raise ConflictError(f"Delete {', '.join(beside)}, once you have taken over what you want of it.")
    journal.forget_kept(root)
    return facts["conflicts"]


def abort(root: Path) -> list[str]:
    """Undo the update; returns the files that were in conflict.

    Raises:
        ConflictError: files were edited since then that were in no conflict. Nothing was changed.
        KernelgenError: no update is unfinished.
    """
    facts = _needed(root)
    own = {*facts["conflicts"], *facts["beside"]}
    edited = journal.changed_since_kept(root, own)
    if edited:
        raise ConflictError(
            f"{', '.join(edited)}: changed since the update, and would be lost; nothing was undone. Move the changes "
            "away (git stash push -- FILE), then try again."
        )
    repository.check_index(root)
    journal.undo_kept(root, own)
    repository.unmark(root, facts["conflicts"])
    journal.forget_kept(root)  # Last: whoever is killed before can abort again.
    return facts["conflicts"]


def from_here(root: Path, paths: list[str]) -> tuple[str, str]:
    """Where to go first to type commands about a project, empty inside it; and files of it as they are typed there."""
    here, root = Path.cwd().resolve(), root.resolve()
    if here.is_relative_to(root):
        return "", shlex.join(os.path.relpath(root / path, here) for path in paths)
    return f"cd {shlex.quote(os.path.relpath(root, here))} && ", shlex.join(paths)


def _facts(root: Path) -> dict[str, Any] | None:
    """The facts of the unfinished update, unless it was committed or undone with git alone."""
    facts = journal.kept(root)
    if facts is None or (git.text_or("", root, "rev-parse", "HEAD") == facts["head"] and repository.changes(root)):
        return facts
    journal.forget_kept(root)
    return None


def _needed(root: Path) -> dict[str, Any]:
    facts = _facts(root)
    if facts is None:
        raise KernelgenError("No update is unfinished here.")
    return facts


def _has_markers(path: Path) -> bool:
    file = journal.look(path)
    return file is not None and any(line.startswith(_MARKERS) for line in file.content.split(b"\n"))
