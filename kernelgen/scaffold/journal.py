"""Writes changes to files whole or not at all, even if the process is killed in between.

Everything new is first written to `.kernelgen/journal` in the project, with a list of what is about to happen. Then
each old file is moved there and each new one linked into place. A process that fails undoes its changes by the journal;
after one that was killed, the next verb does so before anything else. Undoing goes by what lies on the disk, so it can
be interrupted too, and leaves alone what somebody else has written since.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import ConflictError, KernelgenError
from kernelgen.scaffold.lock import exclusive, unstoppable

FOLDER = ".kernelgen"
LINK = "120000"
# What file systems without hard links answer.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class Change:
    """A file's content (a link's target) and git mode, before and after; None where there is no file."""

    path: str
    old: bytes | None
    new: bytes | None
    old_mode: str = "100644"
    mode: str = "100644"

    @property
    def action(self) -> str:
        if self.old is None:
            return "create"
        return "delete" if self.new is None else "update"


@dataclass(frozen=True)
class Content:
    """What lies at a path: a file's content or a link's target, and its mode as git writes it."""

    content: bytes
    mode: str


def look(path: Path) -> Content | None:
    """The file or symbolic link at a path; None if there is none, or a folder.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        if path.is_symlink():
            return Content(os.fsencode(os.readlink(path)), LINK)
        if not path.is_file():
            return None
        return Content(path.read_bytes(), "100755" if path.stat().st_mode & 0o100 else "100644")
    except (FileNotFoundError, NotADirectoryError):
        return None


def write(root: Path, changes: Sequence[Change], keep: dict[str, Any] | None = None) -> None:
    """Make all changes below `root`, in this order, or leave everything as it was.

    With `keep`, facts about the changes, the journal is kept as well, so that `undo_kept` can still undo them.

    Raises:
        ConflictError: a file is not, or no longer, what its change says.
        OSError: a file could not be written, as on a full or read-only disk.
    """
    if not changes:
        return
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    journal = root / FOLDER / "journal"
    try:
        _prepare(journal, changes, [os.path.relpath(folder, root) for folder in missing], keep)
        for number, change in enumerate(changes):
            _replace(root / change.path, journal, number, change)
        for number, change in enumerate(changes):
            _check(look(journal / f"old-{number}"), change)
        _prune(root, [change.path for change in changes if change.new is None])
        with unstoppable():
            _close(journal, "update" if keep is not None else None)
    except BaseException as error:
        with unstoppable():
            undo(root)
            _remove_folders(missing)
        if isinstance(error, OSError) and not error.filename:
            # A disk that fills up while a file is written does not say which.
            error.filename = str(root)
        raise


def recover(root: Path) -> None:
    """Undo what a killed process left half done in `root`, and say so."""
    try:
        names = set(os.listdir(root / FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return
    if names == {".gitignore", "update"}:
        return
    with exclusive(root):
        recover_locked(root)


def recover_locked(root: Path) -> None:
    """As `recover`, for a process that holds the project's lock."""
    interrupted = (root / FOLDER / "journal").is_dir()
    with unstoppable():
        undo(root)
    if interrupted:
        text = f"An earlier command was killed while it wrote to {root}; what it had written is undone."
        print(f"kernelgen: {text}", file=sys.stderr)


def undo(root: Path) -> None:
    """Undo the journal of `root`, if there is one, and remove what else is left of it."""
    journal = root / FOLDER / "journal"
    missing = []
    if journal.is_dir():
        missing = [root / folder for folder in _manifest(journal)["missing"]]
        _undo(root, journal, ())
        _close(journal, None)
    for name in _UNFINISHED:
        shutil.rmtree(root / FOLDER / name, ignore_errors=True)
    _remove_if_empty(root)
    _remove_folders(missing)


def kept(root: Path) -> dict[str, Any] | None:
    """The facts that the kept journal of `root` was written with; None without one."""
    try:
        (root / FOLDER / "update").lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _manifest(root / FOLDER / "update")["keep"]


def undo_kept(root: Path, forced: Collection[str]) -> list[str]:
    """Undo the kept journal, which stays; returns the files that were left alone, since they changed after it, none of
    `forced`. Undoing that was interrupted can be done again."""
    return _undo(root, root / FOLDER / "update", forced)


def changed_since_kept(root: Path, forced: Collection[str]) -> list[str]:
    """The files, those of `forced` aside, that hold what neither the kept journal left there nor undoing put back."""
    journal = root / FOLDER / "update"
    changed = []
    for number, record in enumerate(_manifest(journal)["changes"]):
        target = root / record["path"]
        undone = record["old"] and not os.path.lexists(journal / f"old-{number}")
        is_there = os.path.lexists(target) and not undone
        if is_there and record["path"] not in forced and _digest(look(target)) != record["new"]:
            changed.append(record["path"])
    return changed


def forget_kept(root: Path) -> None:
    """Remove the kept journal of `root`, if there is one."""
    journal = root / FOLDER / "update"
    if journal.is_dir():
        _close(journal, None)


_UNFINISHED = ("journal", "preparing", "done")


def _prepare(journal: Path, changes: Sequence[Change], missing: list[str], keep: dict[str, Any] | None) -> None:
    preparing = journal.with_name("preparing")
    preparing.mkdir(parents=True)
    (journal.parent / ".gitignore").write_bytes(b"*\n")
    for number, change in enumerate(changes):
        if change.new is not None and change.mode != LINK:
            place = preparing / f"new-{number}"
            place.write_bytes(change.new)
            mode = place.stat().st_mode
            place.chmod(mode | (mode & 0o444) >> 2 if change.mode == "100755" else mode)
    records = [
        {"path": change.path, "old": change.old is not None, "new": _digest(_after(change))} for change in changes
    ]
    manifest = {"changes": records, "missing": missing, "keep": keep}
    with (preparing / "manifest.json").open("w") as file:
        file.write(json.dumps(manifest))
        file.flush()
        os.fsync(file.fileno())  # Else the folder's name may outlive a loss of power, and the list not.
    os.rename(preparing, journal)


def _manifest(journal: Path) -> dict[str, Any]:
    """What a journal was to change.

    Raises:
        KernelgenError: it is damaged.
    """
    try:
        manifest = json.loads((journal / "manifest.json").read_text())
        if isinstance(manifest, dict) and manifest.keys() >= {"changes", "missing", "keep"}:
            return manifest
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    raise KernelgenError(
        f"{journal} is damaged, so what an earlier command changed cannot be undone by it: see what that was (git "
        f"status; the folder holds files of before), put it right, then delete {journal}."
    )


def _after(change: Change) -> Content | None:
    return None if change.new is None else Content(change.new, change.mode)


def _digest(file: Content | None) -> str | None:
    return hashlib.sha256(file.mode[:3].encode() + file.content).hexdigest() if file else None


def _replace(target: Path, journal: Path, number: int, change: Change) -> None:
    """Whatever lies at the target is first taken away, then compared: so nothing that was just saved is overwritten."""
    backup, new = journal / f"old-{number}", journal / f"new-{number}"
    if change.old is not None:
        try:
            permissions = target.lstat().st_mode
            os.replace(target, backup)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ConflictError(_changed(change.path)) from error
        _check(look(backup), change)
        if change.new is not None and change.mode == change.old_mode != LINK:
            new.chmod(permissions & 0o7777)
    if change.new is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        # A folder that the deletions before this have emptied.
        target.rmdir()
    try:
        if change.mode == LINK:
            os.symlink(os.fsdecode(change.new), target)
        else:
            _link(new, target)
    except FileExistsError as error:
        raise ConflictError(_changed(change.path)) from error


def _link(new: Path, target: Path) -> None:
    try:
        os.link(new, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.replace(new, target)


def _check(file: Content | None, change: Change) -> None:
    before = None if change.old is None else Content(change.old, change.old_mode)
    if file != before:
        raise ConflictError(_changed(change.path))


def _changed(path: str) -> str:
    return f"{path} changed while kernelgen ran; nothing was written. Try again."


def _undo(root: Path, journal: Path, forced: Collection[str]) -> list[str]:
    """Put back what the journal holds; returns the files that were left alone."""
    manifest, left = _manifest(journal), []
    for number, record in reversed(list(enumerate(manifest["changes"]))):
        target, backup = root / record["path"], journal / f"old-{number}"
        # Without its old content in the journal, an update was never begun.
        begun = os.path.lexists(backup) if record["old"] else record["new"] is not None
        present = look(target)
        if begun and present and (_digest(present) == record["new"] or record["path"] in forced):
            target.unlink()
        if begun and record["old"] and os.path.lexists(target):
            left.append(record["path"])
        elif begun and record["old"]:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(backup, target)
        elif begun:
            left += [record["path"]] if os.path.lexists(target) else []
            _remove_empty(root, target.parent)
    return left


def _remove_empty(root: Path, folder: Path) -> None:
    """Remove a folder, and those above it below `root`, as far as they are empty."""
    with suppress(OSError):
        while folder != root and folder.is_relative_to(root):
            folder.rmdir()
            folder = folder.parent


def _remove_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _prune(root: Path, deleted: list[str]) -> None:
    """Remove the folders that deletions left empty, or with Python's bytecode alone."""
    for path in deleted:
        for folder in (root / path).parents:
            if folder == root or not folder.is_dir():
                break
            if any(entry.name != "__pycache__" for entry in folder.iterdir()):
                break
            shutil.rmtree(folder, ignore_errors=True)


def _close(journal: Path, name: str | None) -> None:
    """From here on the changes stand: the journal is renamed at once, then removed, or kept under `name`."""
    if name is not None:
        shutil.rmtree(journal.with_name(name), ignore_errors=True)
        os.rename(journal, journal.with_name(name))
        return
    done = journal.with_name("done")
    shutil.rmtree(done, ignore_errors=True)
    os.rename(journal, done)
    shutil.rmtree(done, ignore_errors=True)
    _remove_if_empty(journal.parent.parent)


def _remove_if_empty(root: Path) -> None:
    folder = root / FOLDER
    if folder.is_dir() and {entry.name for entry in folder.iterdir()} <= {".gitignore"}:
        shutil.rmtree(folder, ignore_errors=True)
