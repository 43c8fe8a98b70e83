"""Which version of the template an update goes to, and the files of that version on this machine."""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from kernelgen.errors import KernelgenError, UsageError
from kernelgen.scaffold import git, template
from kernelgen.scaffold.template import ANSWERS_FILE, Template


def current(answers: Mapping[str, Any]) -> Template:
    """The version that a project was stamped from, as it was committed.

    Raises:
        KernelgenError: this machine does not hold that version.
    """
    source = answers.get("_src_path")
    try:
        recorded = template.recorded(answers)
    except git.GitError:
        raise
    except KernelgenError:
        if not source or not (repository := _fetched(str(source))):
            raise
        if not template.resolve(repository, str(answers["_commit"])):
            raise KernelgenError(_unknown(answers, repository)) from None
        recorded = template.recorded(answers)
    return _as_committed(recorded)


def target(answers: Mapping[str, Any], ref: str | None = None) -> Template:
    """The version at `ref`, or the newest: the highest release among the tags, or else the newest commit.

    Raises:
        KernelgenError: the template's repository cannot be reached, or has no `ref`.
    """
    source, own = answers.get("_src_path"), template.installed()
    if not source and ref is None:
        return _as_committed(own)
    place = str(source or own.source or "")
    if not place:
        raise UsageError(f"--to needs the template's repository: write `_src_path: git+https://…` into {ANSWERS_FILE}.")
    try:
        repository = _fetched(place)
    except git.GitError as error:
        if ref is None and own.source == place:
            return _as_committed(own)
        raise KernelgenError(f"{place} cannot be reached, and nothing was changed: {error}") from error
    if ref is not None and not template.resolve(repository, ref):
        raise UsageError(f"{place} has no tag, branch or commit {ref!r}; `git ls-remote {place}` lists what it has.")
    commit = template.resolve(repository, ref or _newest(repository) or "HEAD")
    stamped = template.resolve(repository, str(answers.get("_commit")))
    if ref is None and stamped and _is_ancestor(repository, commit, stamped):
        # Stamped between two releases: nothing is newer than that.
        return current(answers)
    return _at(repository, commit, place)


def _at(repository: Path, commit: str, source: str) -> Template:
    try:
        folder = template.extract(repository, commit)
    except git.GitError as error:
        raise KernelgenError(f"{source} has no kernelgen template at {commit[:12]}: {error}") from error
    return Template(folder, git.text(repository, "describe", "--tags", "--always", commit), source)


def _as_committed(own: Template) -> Template:
    """A checkout's last commit in place of what is being edited there."""
    return _at(Path(own.folder), template.resolve(own.folder, "HEAD"), own.source) if own.dirty else own


def _newest(repository: Path) -> str | None:
    """The tag of the highest release, as PEP 440 orders them."""
    releases = []
    for tag in git.text(repository, "tag", "--list").splitlines():
        try:
            version = Version(tag)
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            releases.append((version, f"refs/tags/{tag}"))
    return max(releases)[1] if releases else None


def _is_ancestor(repository: Path, older: str, newer: str) -> bool:
    return git.run(repository, "merge-base", "--is-ancestor", older, newer).returncode == 0


def _fetched(place: str) -> Path:
    """The repository at an address: the folder itself, or a copy in the cache that is brought up to date.

    Raises:
        KernelgenError: there is no such folder.
        GitError: the address cannot be reached.
    """
    folder = template.local(place)
    if folder:
        try:
            git.git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
        except git.GitError as error:
            raise KernelgenError(
                f"The template cannot be read from {place}, so nothing was changed ({error}); `_src_path` of "
                f"{ANSWERS_FILE} is to hold the template's address."
            ) from error
        return folder
    if not re.search("[:@]", place):
        raise KernelgenError(f"`_src_path: {place}` in {ANSWERS_FILE} is relative; write the template's whole address.")
    copy = template.mirror(place)
    if copy.is_dir():
        git.git(copy, "fetch", "--quiet", "--prune", "--force", "--tags", "origin")
        return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".cloning-", dir=copy.parent)
    try:
        git.git(copy.parent, "clone", "--quiet", "--mirror", "--", template.url(place), scratch)
        os.rename(scratch, copy)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return copy


def _unknown(answers: Mapping[str, Any], repository: Path) -> str:
    return (
        f"`_commit: {answers['_commit']}` in {ANSWERS_FILE} is no commit of {answers['_src_path']}, as after stamping "
        "from a checkout with uncommitted changes; write there the commit that it was at: "
        f"git -C {shlex.quote(str(repository))} log --oneline"
    )
