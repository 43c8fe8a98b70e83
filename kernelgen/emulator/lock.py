"""One process at a time in a folder of the emulator's cache."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def locked(path: Path, *, quietly: bool = False) -> Iterator[IO[str]]:
    """Holds a lock file. It says so if it has to wait, unless `quietly`.

    The system lets go of it when the last process that has the file open ends: pass it on to every child process that
    has to end before another one may go on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            if not quietly:
                print(f"kernelgen: waiting for another process (pid {file.read()})", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file
