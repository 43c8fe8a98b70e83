"""Writing a file whole or not at all."""

import errno
import os
from pathlib import Path


def require_writable(path: Path) -> None:
    """Makes sure that a file can be written, before there is anything to write; makes its folder.

    Raises:
        OSError: it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    trial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        trial.touch()
    finally:
        trial.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file, and its folder where there is none. Renaming is atomic, so a reader sees the old file or the
    new one, and an interrupted write leaves the old one.

    Raises:
        OSError: the disk is full or read-only; the old file is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
