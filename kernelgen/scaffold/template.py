"""The template that this kernelgen stamps from, and the version that a project was stamped from."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kernelgen import __version__, caches
from kernelgen.errors import KernelgenError
from kernelgen.scaffold import git

_PACKAGE = Path(__file__).resolve().parents[1]
_BUNDLED = _PACKAGE / "_template"
# A wheel carries the template inside the package; a checkout has it beside the package.
HOME = _BUNDLED if _BUNDLED.is_dir() else _PACKAGE.parent

ANSWERS_FILE = ".copier-answers.yml"
_RELEASE = re.compile(r"v\d[\w.]*")
_SHORT = {"gh:": "https://github.com/{}.git", "gl:": "https://gitlab.com/{}.git"}
# Copier takes these for git addresses; any other needs `git+` in front.
_GIT_ADDRESS = re.compile(r"^(git@|git://|git\+|https://github\.com/|https://gitlab\.com/)|\.git$")


@dataclass(frozen=True)
class Template:
    """A folder with `copier.yml` and `template/`, and the version and address that a project records."""

    folder: Path
    commit: str
    source: str | None = None
    dirty: bool = False
    tag: str | None = None

    @property
    def note(self) -> str:
        """A warning for whoever stamps a project from here, in one line; often empty."""
        if self.dirty:
            return f"{self.folder} has uncommitted changes to the template: they are stamped but not recorded."
        if self.source is None:
            return (
                "`copier update` needs to know where kernelgen's repository is: write its address into "
                f"{ANSWERS_FILE}, in a line `_src_path: git+https://…/kernelgen.git`."
            )
        return ""

    def stamp(self) -> dict[str, str]:
        """The answers that record this template in a project, under copier's names."""
        return {"_commit": self.commit} | ({"_src_path": self.source} if self.source else {})

    def is_at(self, commit: str) -> bool:
        """Whether `commit`, written by `git describe` or by a person, certainly names this version."""
        described = re.search(r"(?:^|-g)([0-9a-f]{7,64})$", commit)
        return commit in (self.commit, self.tag) or bool(described and self.commit.startswith(described[1]))


def installed() -> Template:
    """The template that came with this kernelgen.

    Raises:
        KernelgenError: the installation is damaged.
    """
    if not (HOME / "copier.yml").is_file() or not (HOME / "template").is_dir():
        raise KernelgenError(f"kernelgen's template is missing from {HOME}; reinstall kernelgen.")
    return _bundled(HOME) if HOME.name == "_template" else _checkout(HOME)


def recorded(answers: Mapping[str, Any]) -> Template:
    """The template that a project with these answers was stamped from, at that very version.

    Raises:
        KernelgenError: this machine does not hold that version.
        GitError: git, which is to read it, is not installed or refuses the repository.
    """
    own, commit = installed(), answers.get("_commit")
    if commit is None or own.is_at(str(commit)):
        remember(own)
        return own
    for repository in _repositories(answers.get("_src_path"), own.source):
        full_hash = resolve(repository, str(commit))
        if full_hash and str(repository) == own.source and full_hash == resolve(repository, "HEAD"):
            return own
        if full_hash:
            return Template(extract(repository, full_hash), str(commit), answers.get("_src_path"))
    if _RELEASE.fullmatch(str(commit)) and (cache() / str(commit)).is_dir():
        return Template(cache() / str(commit), str(commit))
    source = str(answers.get("_src_path") or "")
    for repository in _repositories(source, str(HOME) if (HOME / ".git").exists() else None):
        try:
            git.git(repository, "rev-parse", "--git-dir")
        except git.GitError as error:
            raise git.GitError(f"This project was stamped from template {commit} of {repository}: {error}") from error
    raise KernelgenError(_other_version(str(commit), source, own))


def remember(template: Template) -> None:
    """Keep the template of a release that has no repository, so that projects of it can be updated from it later.

    A cache that cannot be written is no reason to fail.
    """
    if template.source is not None or not _RELEASE.fullmatch(template.commit) or (cache() / template.commit).is_dir():
        return
    with suppress(OSError):
        cache().mkdir(parents=True, exist_ok=True)
        copy = Path(tempfile.mkdtemp(prefix=".copying-", dir=cache()))
        try:
            shutil.copytree(template.folder / "template", copy / "template")
            shutil.copy(template.folder / "copier.yml", copy)
            os.rename(copy, cache() / template.commit)
        finally:
            shutil.rmtree(copy, ignore_errors=True)


def _checkout(folder: Path) -> Template:
    try:
        # An unpacked archive has no .git of its own, and may lie inside another repository.
        if not (folder / ".git").exists():
            raise git.GitError("not a repository")
        commit = git.text(folder, "describe", "--tags", "--always")
        dirty = git.text(folder, "status", "--porcelain", "--", "copier.yml", "template")
    except git.GitError:
        return _unsourced(folder)
    return Template(folder, commit, str(folder), dirty=bool(dirty))


def _bundled(folder: Path) -> Template:
    """The template inside an installed package; pip may have recorded where it comes from (PEP 610)."""
    records = list(folder.parents[1].glob("kernelgen-*.dist-info/direct_url.json"))
    try:
        record = json.loads(records[0].read_text()) if records else {}
        vcs, url = record.get("vcs_info", {}), record.get("url", "")
    except (ValueError, AttributeError):
        return _unsourced(folder)
    if vcs.get("vcs") == "git" and vcs.get("commit_id"):
        address = url if _GIT_ADDRESS.search(url) else f"git+{url}"
        return Template(folder, vcs["commit_id"], address, tag=vcs.get("requested_revision"))
    if "dir_info" in record:
        return _built_from(Path(unquote(urlsplit(url).path)), folder)
    return _unsourced(folder)


def _built_from(checkout: Path, folder: Path) -> Template:
    """The template of a package built from a checkout: at the checkout's commit, if the two templates are equal."""
    commit = resolve(checkout, "HEAD") if (checkout / ".git").exists() else None
    if commit and contents(extract(checkout, commit)) == contents(folder):
        return Template(folder, git.text(checkout, "describe", "--tags", "--always"), str(checkout))
    return _unsourced(folder)


def _unsourced(folder: Path) -> Template:
    return Template(folder, f"v{__version__}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a template that can be stamped, and its questions, by path."""
    files = [folder / "copier.yml", *(folder / "template").rglob("*")]
    stamped = (file for file in files if file.is_file() and file.suffix != ".pyc")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in stamped}


def _repositories(*places: str | None) -> Iterator[Path]:
    """The repositories on this machine of `places`, which are addresses as copier records them."""
    for place in dict.fromkeys(place for place in places if place):
        for folder in (local(place), mirror(place)):
            if folder and folder.is_dir():
                yield folder


def local(place: str) -> Path | None:
    """The folder that an address names; None if it names none of this machine."""
    folder = Path(unquote(urlsplit(bare).path) if (bare := place.removeprefix("git+")).startswith("file://") else bare)
    folder = folder.expanduser()
    return folder if folder.is_absolute() else None


def url(place: str) -> str:
    """An address as git and pip take it, of one as copier records it."""
    for short, long in _SHORT.items():
        if place.startswith(short):
            return long.format(place.removeprefix(short).removesuffix(".git"))
    bare = place.removeprefix("git+")
    return folder.as_uri() if (folder := local(place)) and not bare.startswith("file:") else bare


def mirror(place: str) -> Path:
    """Where the cache holds a copy of the repository at an address, if an update has fetched it."""
    return caches.folder("repositories") / hashlib.sha256(place.encode()).hexdigest()[:20]


def cache() -> Path:
    """The folder of the templates that were unpacked, by their commits."""
    return caches.folder("templates")


def resolve(repository: Path, commit: str) -> str | None:
    """The full hash of a commit of a repository; None if it has no such commit."""
    rev_parse = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    return git.text_or("", repository, *rev_parse) or None


def extract(repository: Path, commit: str) -> Path:
    """The template at a commit, given by its full hash, in the cache; unpacked there if it is not yet."""
    import io
    import tarfile

    place = cache() / commit
    if place.is_dir():
        return place
    as_committed = ("-c", "core.autocrlf=false", "-c", "core.eol=lf")
    archive = git.git(repository, *as_committed, "archive", "--format=tar", commit, "copier.yml", "template")
    place.parent.mkdir(parents=True, exist_ok=True)
    unpacked = tempfile.mkdtemp(prefix=".unpacking-", dir=place.parent)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(unpacked, **safe)
        os.rename(unpacked, place)
    except OSError:
        # Another kernelgen process may have unpacked the same commit meanwhile.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return place


def _other_version(commit: str, source: str, own: Template) -> str:
    """Why the version that a project was stamped from is not here, and what cures it."""
    stamped = f"This project was stamped from template {commit}"
    release = re.fullmatch(r"v(\d[\w.]*)", commit)
    if not source:
        install = f"; or install that version: pip install 'kernelgen=={release[1]}'" if release else "."
        return (
            f"{stamped}, and this kernelgen holds {own.commit}. Write the address of kernelgen's repository into "
            f"{ANSWERS_FILE}, in a line `_src_path: git+https://…/kernelgen.git`, then run `kernelgen update`{install}"
        )
    if (folder := local(source)) and not folder.is_dir():
        return f"{stamped} of {folder}, which is not there; write its address into `_src_path` of {ANSWERS_FILE}."
    address = re.sub(r"^git@([^:/]+):", r"ssh://git@\1/", url(source))
    cure = f"kernelgen=={release[1]}" if release else f"kernelgen @ git+{address}@{commit}"
    return (
        f"{stamped}, and this kernelgen holds {own.commit}. "
        f"Update the project with `kernelgen update`, or install that version: pip install '{cure}'"
    )
