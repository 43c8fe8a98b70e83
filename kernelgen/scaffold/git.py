"""Runs git; where it fails, its own first line becomes the error."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from kernelgen.errors import KernelgenError

# A git hook exports these: with them, every command would work on the hook's repository instead of `folder`.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
# What git says of a repository that belongs to another user, as in a container; its advice is on later lines.
_OWNED_BY_OTHERS = re.compile(r"detected dubious ownership in repository at '(.+)'")
# The settings of nobody: for repositories of kernelgen's own.
_NEUTRAL = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    "LC_ALL": "C",
}


class GitError(KernelgenError):
    """git is not installed, or failed."""


class NoGitError(GitError):
    """git is not installed."""


def git(folder: Path, *arguments: str, stdin: bytes | None = None, neutral: bool = False) -> bytes:
    """The output of `git -C folder arguments…`, without the user's hooks; if `neutral`, without any settings of theirs.

    Raises:
        GitError: git is not installed, or it failed; the message is its own first line.
    """
    done = run(folder, *arguments, stdin=stdin, neutral=neutral)
    if done.returncode:
        messages = done.stderr.decode(errors="replace").strip().splitlines()
        message = messages[0] if messages else f"git {arguments[0]} failed."
        if owned := _OWNED_BY_OTHERS.search(message):
            message += f"; allow it: git config --global --add safe.directory {shlex.quote(owned[1])}"
        raise GitError(message)
    return done.stdout


def run(
    folder: Path, *arguments: str, stdin: bytes | None = None, neutral: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """As `git`, for commands whose exit code is an answer.

    Raises:
        GitError: git is not installed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}
    if neutral:
        environment = {name: value for name, value in environment.items() if not name.startswith("GIT_")} | _NEUTRAL
    # A look at the user's repository does not write its index anew, and so is never in the way of their own commit.
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    quiet = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
    command = ["git", "-C", str(folder), *quiet, *arguments]
    try:
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)
    except FileNotFoundError as error:
        raise NoGitError("git is not on PATH; install it, as with `apt-get install git`.") from error


def text(folder: Path, *arguments: str) -> str:
    """The output as text, without the line's end.

    Raises:
        GitError: as `git`.
    """
    return os.fsdecode(git(folder, *arguments)).removesuffix("\n")


def text_or(default: str, folder: Path, *arguments: str) -> str:
    """The output as text, or `default` where git fails or is not installed."""
    try:
        return text(folder, *arguments)
    except GitError:
        return default
