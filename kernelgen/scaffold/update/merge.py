"""git merges three trees in a scratch repository that knows no settings, attributes or hooks of the user's.

It is an ordinary `git merge` with an empty work tree, read from the index: git 2.30 and later can do that, where
`git merge-tree --write-tree` needs 2.38.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import fsdecode, fsencode
from pathlib import Path

from kernelgen.scaffold import git

LABELS = ("before updating", "last update", "after updating")
# A file that git shall leave as it is: no conversion, and no merge driver but its own.
_ATTRIBUTES = "* !merge -text -filter -ident !eol !working-tree-encoding !conflict-marker-size\n"
_CONFIG = """[core]
    sparseCheckout = true
    bare = false
    autocrlf = false
    quotePath = false
[merge]
    renames = true
    directoryRenames = true
    renameLimit = 20000
    conflictStyle = merge
[user]
    name = kernelgen
    email = kernelgen@localhost
[gc]
    auto = 0
"""
Entry = tuple[str, bytes]
Stored = tuple[str, str]
Tree = Mapping[str, Entry | Stored]


# Git's name for a file of the template that cannot have its own, since there is a folder.
SUFFIX = "~theirs"


@dataclass
class Conflict:
    """A file that a person has to merge: mode and content of its stages (1 before, 2 the owner's, 3 the template's)."""

    path: str
    stages: dict[int, Entry]
    # The file with conflict markers, where it is text that both sides hold.
    marked: Entry | None = None


@dataclass
class Merged:
    """The outcome: `files` and, apart from them, `conflicts` by path. `unchanged` files are as the owner has them."""

    files: dict[str, Entry] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    conflicts: dict[str, Conflict] = field(default_factory=dict)


def merge(base: Tree, ours: Tree, theirs: Tree, objects: tuple[Path, str] | None = None) -> Merged:
    """Merge trees: files by path, as mode and content, or as mode and the name of one of the `objects` of a repository.

    Raises:
        GitError: git failed.
    """
    with tempfile.TemporaryDirectory(prefix="kernelgen-merge-") as folder:
        scratch = Path(folder)
        _create(scratch, objects)
        stream = [_commit("base", base, None), _commit("ours", ours, "base"), _commit("theirs", theirs, "base")]
        _git(scratch, "fast-import", "--quiet", stdin=b"".join(stream))
        _git(scratch, "symbolic-ref", "HEAD", "refs/heads/ours")
        _git(scratch, "read-tree", "-m", "-u", "HEAD")
        done = git.run(scratch, "merge", "--quiet", "--no-commit", "--no-ff", "theirs", neutral=True)
        if done.returncode not in (0, 1):
            raise git.GitError(f"git could not merge: {done.stderr.decode(errors='replace').strip()}")
        return _outcome(scratch)


def renames(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> dict[str, str]:
    """The files of `old` that git finds under another name in `new`."""
    gone = {path: ("100644", content) for path, content in old.items() if path not in new}
    come = {path: ("100644", content) for path, content in new.items() if path not in old}
    if not gone or not come:
        return {}
    with tempfile.TemporaryDirectory(prefix="kernelgen-renames-") as folder:
        scratch = Path(folder)
        _create(scratch, None)
        _git(scratch, "fast-import", "--quiet", stdin=_commit("old", gone, None) + _commit("new", come, "old"))
        flags = ("-r", "-z", "-M", "-l0", "--name-status", "--diff-filter=R")
        parts = _git(scratch, "diff-tree", *flags, "old", "new").split(b"\0")
        return {fsdecode(before): fsdecode(after) for before, after in zip(parts[1::3], parts[2::3], strict=False)}


def _create(scratch: Path, objects: tuple[Path, str] | None) -> None:
    kind = objects[1] if objects else "sha1"
    _git(scratch, "init", "--quiet", f"--object-format={kind}", "--template=")
    information = scratch / ".git" / "info"
    information.mkdir(exist_ok=True)
    (information / "attributes").write_text(_ATTRIBUTES)
    (information / "sparse-checkout").write_text("!/*\n")
    with (scratch / ".git" / "config").open("a") as file:
        file.write(_CONFIG)
    if objects:
        (scratch / ".git" / "objects" / "info" / "alternates").write_bytes(_quoted(str(objects[0])) + b"\n")


def _git(scratch: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    return git.git(scratch, *arguments, stdin=stdin, neutral=True)


def _commit(name: str, tree: Tree, parent: str | None) -> bytes:
    """A commit as git fast-import reads it."""
    lines = [b"commit refs/heads/%s\ncommitter kernelgen <> 0 +0000\ndata 0\n" % name.encode()]
    if parent:
        lines.append(b"from refs/heads/%s\ndeleteall\n" % parent.encode())
    for path, (mode, what) in tree.items():
        if isinstance(what, str):
            lines.append(b"M %s %s %s\n" % (mode.encode(), what.encode(), _quoted(path)))
        else:
            lines.append(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), _quoted(path), len(what), what))
    return b"".join(lines) + b"\n"


def _quoted(path: str) -> bytes:
    """A path of any characters, as git reads it."""
    return b'"%s"' % fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _outcome(scratch: Path) -> Merged:
    kept = dict(_entries(_git(scratch, "ls-tree", "-r", "-z", "ours"), lambda facts: (facts[0], facts[2])))
    merged, changed, staged = Merged(), {}, {}
    for path, (mode, name, stage) in _entries(_git(scratch, "ls-files", "--stage", "-z"), tuple):
        if stage != "0":
            staged.setdefault(path, {})[int(stage)] = mode, name
        elif kept.get(path) == (mode, name):
            merged.unchanged.add(path)
        else:
            changed[path] = mode, name
    contents = _contents(scratch, {name for _, name in [*changed.values(), *_stages(staged)]})
    merged.files = {path: (mode, contents[name]) for path, (mode, name) in changed.items()}
    for path, stages in staged.items():
        conflict = Conflict(path, {stage: (mode, contents[name]) for stage, (mode, name) in stages.items()})
        _merge_text(scratch, conflict, merged)
    return merged


def _stages(staged: Mapping[str, Mapping[int, Stored]]) -> Iterator[Stored]:
    return (entry for stages in staged.values() for entry in stages.values())


def _entries(output: bytes, facts_of: type | object) -> Iterator[tuple[str, tuple]]:
    for line in output.split(b"\0"):
        if line:
            facts, _, path = line.partition(b"\t")
            yield fsdecode(path), facts_of(facts.decode().split())


def _contents(scratch: Path, names: set[str]) -> dict[str, bytes]:
    """The contents of objects, by name; a submodule's is no object of its repository."""
    output = _git(scratch, "cat-file", "--batch", stdin="".join(f"{name}\n" for name in sorted(names)).encode())
    contents, start = {}, 0
    for name in sorted(names):
        end = output.index(b"\n", start)
        facts = output[start:end].split()
        size = 0 if facts[-1] == b"missing" else int(facts[2])
        contents[name] = output[end + 1 : end + 1 + size]
        start = end + 1 + (0 if facts[-1] == b"missing" else size + 1)
    return contents


def _merge_text(scratch: Path, conflict: Conflict, merged: Merged) -> None:
    """Sort a conflict: with the markers that Copier writes if both sides hold text, which may turn out to merge."""
    stages = conflict.stages
    ours, theirs = stages.get(2), stages.get(3)
    mergeable = ours and theirs and not any(mode == "120000" or b"\0" in text for mode, text in stages.values())
    if not mergeable:
        merged.conflicts[conflict.path] = conflict
        return
    base = stages.get(1, (ours[0], b""))
    names = ["ours", "base", "theirs"]
    for name, (_, text) in zip(names, (ours, base, theirs), strict=True):
        (scratch / ".git" / name).write_bytes(text)
    labels = [argument for label in LABELS for argument in ("-L", label)]
    done = git.run(scratch / ".git", "merge-file", "-p", *labels, *names, neutral=True)
    mode = ours[0] if ours[0] != base[0] else theirs[0]
    # The exit code is the number of conflicts; an error's is 255.
    if done.returncode == 0:
        merged.files[conflict.path] = mode, done.stdout
        return
    if done.returncode < 128:
        conflict.marked = mode, done.stdout
    merged.conflicts[conflict.path] = conflict
