"""Another revision of a project, checked out and built aside."""

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.git import GitError, git, text
from kernelgen.toolchain import current
from kernelgen.toolchain.build import Build, environment

_AS_COMMITTED = ("--no-replace-objects",)
# Modes of git's, and how many files are read at a time.
_LINK, _EXECUTABLE, _AT_ONCE = b"120000", b"100755", 500


def find(root: Path, revision: str) -> tuple[Path, str, str]:
    """Where the repository of the project at `root` lies, where the project lies in it, and the commit of a revision.

    Raises:
        KernelgenError: the project is not in a git repository, or there is no such revision.
    """
    try:
        prefix = text(root, "rev-parse", "--show-prefix")
        top = Path(text(root, "rev-parse", "--show-toplevel"))
    except GitError as error:
        cure = "; `git init` and commit first" if "not a git repository" in str(error) else ""
        raise KernelgenError(f"No other revision of {root} can be read from git{cure}: {error}") from None
    try:
        verify = "rev-parse", "--verify", "--quiet", "--end-of-options"
        return top, prefix, text(root, *_AS_COMMITTED, *verify, f"{revision}^{{commit}}")
    except GitError:
        raise KernelgenError(
            f"There is no revision {revision!r} in the repository of {root}; `git log --oneline` lists those there are."
        ) from None


@contextmanager
def checked_out(root: Path, revision: str) -> Iterator[tuple[Path, str]]:
    """The project at `root` as of a revision, in a folder that is removed when the block ends; and its commit.

    The files are those that were committed, to the byte: filters, attributes and replaced commits are settings of the
    repository, by which whoever edits the project could change what it is compared with. `git worktree` would also
    write a list into the repository, which other processes may read half-written and which outlives a process that is
    killed.

    Raises:
        KernelgenError: as `find`, or there is no project in that revision.
    """
    top, prefix, commit = find(root, revision)
    scratch = Path(tempfile.mkdtemp(prefix="kernelgen-compare-"))
    tree = scratch / "tree"
    try:
        _write_files(top, commit, tree)
        if not (tree / prefix / "setup.py").is_file():
            raise KernelgenError(f"There was no project in {prefix or 'the repository'} at {revision}.")
        yield tree / prefix, commit
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_files(repository: Path, commit: str, folder: Path) -> None:
    listing = git(repository, *_AS_COMMITTED, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]
    entries = [(*facts.split(), os.fsdecode(path)) for facts, _, path in (entry.partition(b"\t") for entry in listing)]
    files = [(mode, blob, path) for mode, kind, blob, path in entries if kind == b"blob"]
    # Links come last, so that no file is written through them.
    files.sort(key=lambda file: file[0] == _LINK)
    for begin in range(0, len(files), _AT_ONCE):
        batch = files[begin : begin + _AT_ONCE]
        names = b"".join(blob + b"\n" for _, blob, _ in batch)
        contents, place = git(repository, *_AS_COMMITTED, "cat-file", "--batch", stdin=names), 0
        for mode, _, path in batch:
            start = contents.index(b"\n", place) + 1  # After the blob's name, "blob" and its size.
            size = int(contents[place:start].split()[-1])
            _write(folder, path, mode, contents[start : start + size])
            place = start + size + 1


def _write(folder: Path, path: str, mode: bytes, content: bytes) -> None:
    if {"", ".", "..", ".git"} & set(path.split("/")):
        raise KernelgenError(f"git holds a file of the name {path!r}, which cannot be written.")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if mode == _LINK:
        target.symlink_to(os.fsdecode(content))
        return
    target.write_bytes(content)
    if mode == _EXECUTABLE:
        target.chmod(0o755)


def require_op(root: Path, package: str, op: str, revision: str) -> None:
    """Makes sure that there was an op at a revision.

    Raises:
        KernelgenError: there was none.
    """
    if not (root / "src" / package / "ops" / op / "__init__.py").is_file():
        raise KernelgenError(f"There was no op {op!r} at {revision}, so there is nothing to compare it with.")


def copy_cases(current: Path, other: Path, package: str, op: str, revision: str) -> None:
    """Copies the current lab.py to the other revision, whose own may have other cases or be missing.

    Raises:
        KernelgenError: the other revision has no such op.
    """
    require_op(other, package, op, revision)
    inside = Path("src") / package / "ops" / op / "lab.py"
    shutil.copyfile(current / inside, other / inside)


def keep_only(root: Path, package: str, ops: Sequence[str]) -> None:
    """Removes the other ops of a project that is checked out aside, so that nobody compiles them.

    Kept are these, what they or the package itself or setup.py name, and so on: a name is enough, since one op too many
    costs only time.
    """
    source = root / "src" / package
    left = {init.parent.name for init in (source / "ops").glob("*/__init__.py")}
    kept: set[str] = set()
    wanted = set(ops) | _named([root / "setup.py", *source.glob("*.py")], left)
    while new := (wanted & left) - kept:
        kept |= new
        wanted = _named([file for op in new for file in (source / "ops" / op).rglob("*.py")], left)
    for op in left - kept:
        shutil.rmtree(source / "ops" / op)


def _named(files: Iterable[Path], names: Collection[str]) -> set[str]:
    words = {word for file in files if file.is_file() for word in re.findall(r"\w+", file.read_text(errors="replace"))}
    return words & set(names)


def versions(root: Path, path: Path, most: int) -> list[tuple[str, str]]:
    """A file's versions in git, the newest first, each with its commit; none outside of a repository."""
    inside = f"./{path.as_posix()}"
    try:
        commits = (
            git(root, "log", f"--max-count={most}", "--format=%H", "--diff-filter=AM", "--", inside).decode().split()
        )
        return [(commit, git(root, "show", f"{commit}:{inside}").decode(errors="replace")) for commit in commits]
    except GitError:
        return []


def build(root: Path, python: Path, device: str | None) -> None:
    """Compiles what changed and runs on the device, quietly.

    Raises:
        KernelgenError: it does not compile.
    """
    Build(root, environment(), python).run(quiet=True, backend=current.backend(device))
