"""Where kernelgen keeps what it can make again: one folder for each kind, in the user's cache."""

import os
from pathlib import Path


def folder(kind: str) -> Path:
    """The cache of a kind, such as "emulator"; it need not be there yet.

    Raises:
        RuntimeError: the user has no home.
    """
    return _root() / kind


def cure(path: str | bytes) -> str:
    """What helps where a file of these caches cannot be written; "" for any other file."""
    failed, root = Path(os.fsdecode(path)), _root()
    is_above = root.is_relative_to(failed) and not failed.is_dir()
    if not (is_above or failed.is_relative_to(root)):
        return ""
    return f"kernelgen keeps what it compiles and unpacks in {root}; set XDG_CACHE_HOME to a folder that can be written"


def _root() -> Path:
    # A relative path is to be ignored, says the XDG Base Directory Specification.
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if os.path.isabs(chosen) else Path.home() / ".cache") / "kernelgen"
