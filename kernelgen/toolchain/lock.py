"""One build at a time in a folder."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Holds the lock that a project's own setup.py takes too.

    The lock is the system's, on an open file, so it goes when the last process that has the file open does. Hand
    the file to what must not be joined by another build.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            print(f"kernelgen: waiting for another build (pid {file.read()})", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file
