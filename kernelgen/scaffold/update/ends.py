"""The three trees of an update: the old stamp, the project, the new stamp."""

from collections.abc import Container, Mapping
from pathlib import Path, PurePosixPath

from kernelgen.scaffold import journal
from kernelgen.scaffold.render import File
from kernelgen.scaffold.template import ANSWERS_FILE
from kernelgen.scaffold.update import repository
from kernelgen.scaffold.update.merge import Entry, Stored
from kernelgen.scaffold.update.stamps import Stamps, moved_folders

_FILE, PROGRAM = "100644", "100755"


class Ends:
    """The three trees to merge. Files that the template renamed have their new names in all of them.

    `origin` says where a file of the owner's tree lies in the project.
    """

    def __init__(self, root: Path, own: repository.Repository, both: Stamps) -> None:
        self.root, self.own = root, own
        self._links = {path for path, (mode, _) in own.files.items() if mode == journal.LINK}
        present = {path: self._present(path) for path in [*both.old, *both.new]}
        present |= {path: entry for path, entry in own.files.items() if path not in present and path != ANSWERS_FILE}
        present = {path: entry for path, entry in present.items() if entry}
        # What a file may not take the place of: files, and folders that hold some.
        inhabited = {*present, *(str(folder) for path in present for folder in PurePosixPath(path).parents)}
        moves = self.moves = {path: to for path, to in both.moves.items() if _is_free(to, present, inhabited)}
        folders, taken = moved_folders(both), {*both.new, *both.moves.values()}
        for path in sorted(own.files.keys() - both.old) if folders else []:
            to = _along(path, folders)
            if to and to not in taken and path in present and _is_free(to, present, inhabited):
                moves[path] = to
                taken.add(to)
        self.origin = {moves.get(path, path): path for path in present}
        self.base = {moves.get(path, path): _entry(file) for path, file in both.old.items()}
        self.theirs = {path: _entry(file) for path, file in both.new.items()}
        self.ours: dict[str, Entry | Stored] = {}
        for path, entry in present.items():
            content = entry[1]
            # Windows' line ends are no edit; the outcome gets them back.
            if isinstance(content, bytes) and has_crlf(content) and path in both.old:
                entry = entry[0], content.replace(b"\r\n", b"\n")
            self.ours[moves.get(path, path)] = entry

    def _present(self, path: str) -> Entry | Stored | None:
        """What the project has at a path of a stamp: the file on the disk, or HEAD's if git was told to hide it.

        What lies behind a link to a folder has its place elsewhere.
        """
        if self._links and not self._links.isdisjoint(map(str, PurePosixPath(path).parents)):
            return None
        file = journal.look(self.root / path)
        if file is None and path in self.own.hidden:
            return self.own.files.get(path)
        return (file.mode, file.content) if file else None


def _is_free(path: str, present: Container[str], inhabited: Container[str]) -> bool:
    """Whether a file may move there: nothing is at the path or below it, and no file in place of a folder above it."""
    return path not in inhabited and not any(str(folder) in present for folder in PurePosixPath(path).parents)


def _along(path: str, folders: Mapping[str, str]) -> str | None:
    for folder in PurePosixPath(path).parents:
        if str(folder) in folders:
            return (PurePosixPath(folders[str(folder)]) / PurePosixPath(path).relative_to(folder)).as_posix()
    return None


def _entry(file: File) -> Entry:
    return PROGRAM if file.executable else _FILE, file.content


def has_crlf(content: bytes) -> bool:
    return b"\r\n" in content and content.count(b"\n") == content.count(b"\r\n") and b"\0" not in content
