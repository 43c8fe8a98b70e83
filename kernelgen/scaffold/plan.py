"""The files that a verb creates, updates and deletes: shown as a diff or as data, and applied all or none."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError
from kernelgen.scaffold import journal
from kernelgen.scaffold.journal import LINK, Change, look
from kernelgen.scaffold.template import ANSWERS_FILE


@dataclass
class Plan:
    """The changes of a verb to the files below `root`."""

    root: Path
    changes: list[Change] = field(default_factory=list)

    def set(self, path: str, new: bytes | None, executable: bool | None = None, link: bool = False) -> None:
        """Plan that the file at `path` (relative, with '/') holds `new`, or with None, that it is deleted.

        Without `executable`, a file that exists keeps its mode.
        """
        old = look(self.root / path)
        old_mode = old.mode if old else "100644"
        plain = old_mode if executable is None and old_mode != LINK else "100755" if executable else "100644"
        mode = LINK if link else plain
        if (old and old.content) != new or (new is not None and old and old_mode != mode):
            self.changes.append(Change(path, old.content if old else None, new, old_mode, mode))

    def paths(self, action: str) -> list[str]:
        return sorted(change.path for change in self.changes if change.action == action)

    def as_dict(self) -> dict[str, Any]:
        return {"root": str(self.root)} | {a: self.paths(a) for a in ("create", "update", "delete")}

    def diff(self) -> str:
        """The plan as a diff that `git apply` takes."""
        from kernelgen.scaffold.patch import patch

        return "".join(patch(change) for change in sorted(self.changes, key=lambda change: change.path))

    def apply(self, keep: dict[str, Any] | None = None) -> None:
        """Make all changes, or leave everything as it was; `keep` as `journal.write` takes it.

        Raises:
            ConflictError: a file has changed since it was planned, or lies outside `root`.
            OSError: a file could not be written, as on a full or read-only disk.
        """
        for change in self.changes:
            self._check(change)
        journal.write(self.root, sorted(self.changes, key=_turn), keep)

    def _check(self, change: Change) -> None:
        target = self.root / change.path
        if not target.parent.resolve().is_relative_to(self.root.resolve()) or ".." in target.parts:
            raise ConflictError(f"{change.path} would lie outside {self.root}; nothing was written.")
        if target.is_symlink() and change.new is not None and change.mode != LINK:
            raise ConflictError(f"{change.path} is a symbolic link; replace it by a file, then try again.")
        if target.is_dir() and not target.is_symlink() and change.new is not None and not self._emptied(target):
            raise ConflictError(f"{change.path} is a folder, where a file would be written; move it away.")
        content = look(target)
        if (content and content.content) != change.old:
            raise ConflictError(f"{change.path} changed while kernelgen ran; nothing was written. Try again.")

    def _emptied(self, folder: Path) -> bool:
        """Whether this plan deletes every file of a folder."""
        deleted = {self.root / path for path in self.paths("delete")}
        return all(path in deleted or path.is_dir() for path in folder.rglob("*"))


def read(path: Path) -> bytes | None:
    """A file's content (of a symbolic link, its target); None if there is no file.

    Raises:
        OSError: the file cannot be read.
    """
    file = look(path)
    return file.content if file else None


def _turn(change: Change) -> tuple[bool, bool]:
    """Deletions make room for what replaces them, and the record of what was stamped is written last."""
    return change.path == ANSWERS_FILE, change.new is not None
