"""Running git, and saying what it said when it fails."""

import os
import subprocess
from pathlib import Path

from kernelgen.errors import KernelgenError

# A git hook exports these, and they would point every command at the hook's repository instead of `folder`.
_LEAKING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


class GitError(KernelgenError):
    """git is missing, or would not do what it was asked."""


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """What `git -C folder arguments…` prints.

    Raises:
        GitError: there is no git, or it failed; the message is git's own first line.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _LEAKING}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=stdin,
            capture_output=True,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed, or not on PATH.") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(said[0] if said else f"git {arguments[0]} failed.")
    return done.stdout


def line(folder: Path, *arguments: str) -> str:
    """The same, as stripped text.

    Raises:
        GitError: as `git`.
    """
    return git(folder, *arguments).decode(errors="replace").strip()


def output_or(default: str, folder: Path, *arguments: str) -> str:
    """The same, or `default` where git fails or is missing."""
    try:
        return line(folder, *arguments)
    except GitError:
        return default
