"""Runs git; where it fails, its own first line becomes the error."""

import os
import subprocess
from pathlib import Path

from kernelgen.errors import KernelgenError

# A git hook exports these: with them, every command would work on the hook's repository instead of `folder`.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


class GitError(KernelgenError):
    """git is not installed, or failed."""


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """The output of `git -C folder arguments…`.

    Raises:
        GitError: git is not installed, or it failed; the message is its own first line.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}
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
        messages = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(messages[0] if messages else f"git {arguments[0]} failed.")
    return done.stdout


def text(folder: Path, *arguments: str) -> str:
    """The output as text, without white space around it.

    Raises:
        GitError: as `git`.
    """
    return git(folder, *arguments).decode(errors="replace").strip()


def text_or(default: str, folder: Path, *arguments: str) -> str:
    """The output as text, or `default` where git fails or is not installed."""
    try:
        return text(folder, *arguments)
    except GitError:
        return default
