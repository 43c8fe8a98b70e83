"""The files that a verb creates, updates and deletes: shown as a diff or as data, and applied all or none."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError


@dataclass(frozen=True)
class Change:
    """A file's old and new content; None where the file does not exist."""

    path: str
    old: bytes | None
    new: bytes | None
    executable: bool = False

    @property
    def action(self) -> str:
        if self.old is None:
            return "create"
        return "delete" if self.new is None else "update"


@dataclass
class Plan:
    """The changes of a verb to the files below `root`."""

    root: Path
    changes: list[Change] = field(default_factory=list)

    def set(self, path: str, new: bytes | None, executable: bool = False) -> None:
        """Plan that the file at `path` (relative, with '/') holds `new`, or with None, that it is deleted."""
        old = read(self.root / path)
        if old != new:
            self.changes.append(Change(path, old, new, executable))

    def paths(self, action: str) -> list[str]:
        return sorted(change.path for change in self.changes if change.action == action)

    def as_dict(self) -> dict[str, Any]:
        return {"root": str(self.root)} | {a: self.paths(a) for a in ("create", "update", "delete")}

    def diff(self) -> str:
        """The plan as a diff that `git apply` takes."""
        return "".join(_diff(change) for change in sorted(self.changes, key=lambda change: change.path))

    def apply(self) -> None:
        """Make all changes, or leave everything as it was.

        Every new file is first written to a scratch folder, where a full disk or Ctrl-C does no harm. Then files
        are only renamed, and if a rename fails, those before it are undone.

        Raises:
            ConflictError: a file has changed since it was planned, or lies outside `root`.
            OSError: a file could not be written, as on a full or read-only disk.
        """
        for change in self.changes:
            self._check(change)
        existing = next(folder for folder in (self.root, *self.root.parents) if folder.is_dir())
        with tempfile.TemporaryDirectory(prefix=".kernelgen-", dir=existing, ignore_cleanup_errors=True) as scratch:
            staged = [self._stage(change, Path(scratch, f"new-{n}")) for n, change in enumerate(self.changes)]
            with ExitStack() as undo:
                for n, (change, new) in enumerate(zip(self.changes, staged, strict=True)):
                    self._move(change, new, Path(scratch, f"old-{n}"), undo)
                undo.pop_all()
        self._prune()

    def _check(self, change: Change) -> None:
        target = self.root / change.path
        if not target.parent.resolve().is_relative_to(self.root.resolve()) or ".." in target.parts:
            raise ConflictError(f"{change.path} would lie outside {self.root}; nothing was written.")
        if target.is_symlink() and change.new is not None:
            raise ConflictError(f"{change.path} is a symbolic link; replace it by a file, then try again.")
        if read(target) != change.old:
            raise ConflictError(f"{change.path} changed while kernelgen ran; nothing was written. Try again.")

    def _stage(self, change: Change, place: Path) -> Path | None:
        if change.new is None:
            return None
        place.write_bytes(change.new)
        if change.old is not None:
            shutil.copymode(self.root / change.path, place)
        elif change.executable:
            mode = place.stat().st_mode
            place.chmod(mode | (mode & 0o444) >> 2)
        return place

    def _move(self, change: Change, new: Path | None, backup: Path, undo: ExitStack) -> None:
        """Each step's undo is registered before the step, in case of an interrupt between the two."""
        target = self.root / change.path
        if change.old is not None:
            undo.callback(_restore, backup, target)
            os.replace(target, backup)
        if new is not None:
            for folder in reversed([f for f in target.parents if not f.exists()]):
                undo.callback(_remove_folder, folder)
                folder.mkdir()
            undo.callback(target.unlink, missing_ok=True)
            os.replace(new, target)

    def _prune(self) -> None:
        """Remove the folders that deletions left empty, or with Python's bytecode alone."""
        for path in self.paths("delete"):
            for folder in (self.root / path).parents:
                if folder == self.root or not folder.is_dir():
                    break
                if any(entry.name != "__pycache__" for entry in folder.iterdir()):
                    break
                shutil.rmtree(folder, ignore_errors=True)


def read(path: Path) -> bytes | None:
    """A file's content (of a symbolic link, its target); None if the file does not exist.

    Raises:
        OSError: the file cannot be read, or is a folder.
    """
    if path.is_symlink():
        return os.fsencode(os.readlink(path))
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _restore(backup: Path, target: Path) -> None:
    if os.path.lexists(backup):
        os.replace(backup, target)


def _remove_folder(folder: Path) -> None:
    with suppress(FileNotFoundError):
        folder.rmdir()


def _diff(change: Change) -> str:
    mode = "100755" if change.executable else "100644"
    mode_line = {"create": f"new file mode {mode}\n", "delete": f"deleted file mode {mode}\n", "update": ""}
    head = f"diff --git a/{change.path} b/{change.path}\n{mode_line[change.action]}"
    if b"\0" in (change.old or b"") + (change.new or b""):
        return head + "Binary files differ\n"
    return head + "".join(_hunks(change))


def _hunks(change: Change) -> Iterator[str]:
    from difflib import unified_diff

    old, new = _lines(change.old), _lines(change.new)
    before = "/dev/null" if change.old is None else f"a/{change.path}"
    after = "/dev/null" if change.new is None else f"b/{change.path}"
    for line in unified_diff(old, new, before, after):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(content: bytes | None) -> list[str]:
    # Not `splitlines`: in a diff, a form feed or a lone carriage return ends no line.
    text = (content or b"").decode("utf-8", errors="replace")
    return [line + "\n" for line in text[:-1].split("\n")] if text.endswith("\n") else _unended(text)


def _unended(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [line + "\n" for line in ended] + ([last] if last else [])
