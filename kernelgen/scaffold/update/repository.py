"""The project's git repository: what an update has to know of it, and the marks of conflicts in its index."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelgen.errors import ConflictError, KernelgenError
from kernelgen.scaffold import git

# What git leaves in its folder while a command of its is not ended, and the command.
_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass(frozen=True)
class Repository:
    """The repository that a project lies in.

    Args:
        root: the project's folder.
        below: `root`, relative to the repository's root.
        head: the hash of its commit.
        files: mode and object of each file of that commit below `root`, by its path there.
        hidden: those whose changes git is told not to look for (skip-worktree, assume-unchanged).
        objects: the folder of its objects, and the name of their hash.
    """

    root: Path
    below: Path
    head: str
    files: dict[str, tuple[str, str]]
    hidden: set[str]
    objects: tuple[Path, str]


def examine(root: Path) -> Repository:
    """The repository of a project without uncommitted changes.

    Raises:
        KernelgenError: there is none, it has no commit, uncommitted changes, or a merge or the like under way; or git
            refuses to work there.
    """
    try:
        top = Path(git.text(root, "rev-parse", "--show-toplevel"))
    except git.NoGitError:
        raise
    except git.GitError as error:
        if "not a git repository (or any" in str(error):
            raise KernelgenError(_needs_commit(root)) from error
        raise KernelgenError(f"git refuses to work in {root}: {error}") from error
    head = git.text_or("", root, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        raise KernelgenError(_needs_commit(root))
    if operation := _unfinished(root):
        cure = f"end it (git {operation} --continue, or --abort), then try again."
        raise KernelgenError(f"git is in the middle of a {operation} in {root}; {cure}")
    if changes(root):
        raise KernelgenError(f"{root} has uncommitted changes; commit or stash them (git stash -u), then try again.")
    tree = _split(git.git(root, "ls-tree", "-r", "-z", "HEAD", "."))
    entries = (entry.partition(b"\t") for entry in tree)
    files = {os.fsdecode(path): (facts.split()[0].decode(), facts.split()[2].decode()) for facts, _, path in entries}
    flags = _split(git.git(root, "ls-files", "-v", "-z", "."))
    hidden = {os.fsdecode(flag[2:]) for flag in flags if flag[:1] == b"S" or flag[:1].islower()}
    objects = root / git.text(root, "rev-parse", "--git-path", "objects")
    kind = git.text_or("sha1", root, "rev-parse", "--show-object-format")
    return Repository(root, root.resolve().relative_to(top.resolve()), head, files, hidden, (objects.resolve(), kind))


def changes(root: Path) -> str:
    """The files below `root` that git sees as changed or unknown, whatever its settings hide."""
    return git.text(root, "status", "--porcelain", "--untracked-files=all", "--ignore-submodules=all", "--", str(root))


def unmerged(root: Path) -> list[str]:
    """The files below `root` that git's index marks as conflicts."""
    entries = _split(git.git(root, "ls-files", "--unmerged", "-z", "."))
    return sorted({os.fsdecode(entry.partition(b"\t")[2]) for entry in entries})


def ignored(root: Path, paths: list[str]) -> list[str]:
    """Those of `paths` that `git add` would leave out."""
    if not paths:
        return []
    names = b"\0".join(os.fsencode(path) for path in paths)
    return [os.fsdecode(name) for name in _split(git.run(root, "check-ignore", "-z", "--stdin", stdin=names).stdout)]


def check_index(root: Path) -> None:
    """Refuse an index that cannot be written, before anything else is.

    Raises:
        ConflictError: another git command holds it, or one that was killed has left its lock.
    """
    lock = root / git.text(root, "rev-parse", "--git-path", "index.lock")
    if lock.exists():
        raise ConflictError(
            f"{lock} exists, so another git command is running; nothing was changed. If none is, delete that file."
        )


def mark(root: Path, conflicts: Mapping[str, Mapping[int, tuple[str, bytes]]]) -> None:
    """Mark files as conflicts in git's index: mode and content of each stage (1 before, 2 yours, 3 the template's).

    Raises:
        GitError: the index cannot be written.
    """
    lines = []
    prefix = os.fsencode(git.text(root, "rev-parse", "--show-prefix"))
    for path, stages in conflicts.items():
        name = prefix + os.fsencode(path)
        lines.append(b"0 " + b"0" * 40 + b"\t" + name)
        for stage, (mode, content) in sorted(stages.items()):
            blob = git.git(root, "hash-object", "-w", "--no-filters", "--stdin", stdin=content).strip()
            lines.append(b"%s %s %d\t%s" % (mode.encode(), blob, stage, name))
    if lines:
        git.git(root, "update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines))


def unmark(root: Path, paths: list[str]) -> None:
    """Take the marks of conflicts back: the index holds of these files what HEAD does."""
    git.git(root, "reset", "--quiet", "HEAD", "--", *(f":(literal){path}" for path in paths))


def _unfinished(root: Path) -> str:
    """The command of git's that has stopped half-way, as at conflicts; empty if none has."""
    folder = Path(git.text(root, "rev-parse", "--absolute-git-dir"))
    return next((operation for name, operation in _OPERATIONS.items() if (folder / name).exists()), "")


def _split(output: bytes) -> list[bytes]:
    return [part for part in output.split(b"\0") if part]


def _needs_commit(root: Path) -> str:
    return f"An update merges with git, and {root} has no commit: git init && git add -A && git commit"
