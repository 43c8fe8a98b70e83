"""One build at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .messages import Note


@contextmanager
def locked(folder: Path, note: Note) -> Iterator[IO[str]]:
    """Holds the lock of a folder, which is a file beside it; a note says if it waits for another process.

    The lock is the system's (flock), so it is released when the last process that has the file open ends. Pass the file
    on to every child process that has to end before another build starts.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            note(f"waiting for another build (pid {file.read()})")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file
