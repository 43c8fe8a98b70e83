"""Where a tuning keeps its trials in the project, and the lock that keeps two tunings of one op apart."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelgen.tune.errors import TuningError
from kernelgen.tune.request import TuningRequest

_JOURNAL, _LOCK = "trials.log", "tuning"


def storage_of(request: TuningRequest, folder: Path) -> str:
    """The storage that was named, or the project's own journal: a new one, unless the tuning is to be resumed.

    Raises:
        TuningError: there is nothing to resume.
    """
    if request.storage:
        return request.storage
    path = folder / _JOURNAL
    if request.resume and not path.is_file():
        raise TuningError(f"There is no tuning of {request.op} to resume in {path.parent}; leave out --resume.")
    if not request.resume and path.is_file():
        path.replace(path.with_suffix(".old.log"))
    return str(path)


def is_begun(folder: Path) -> bool:
    """Whether this process, and none before it, has begun the journal in a folder, or goes on with it."""
    lock, journal = folder / _LOCK, folder / _JOURNAL
    return journal.is_file() and lock.is_file() and lock.read_text().strip() == str(os.getpid())


@contextmanager
def only_tuning(request: TuningRequest, folder: Path) -> Iterator[None]:
    """Holds the lock on the tuning of an op: one at a time, or several that share a storage.

    Raises:
        TuningError: another tuning of it is at work.
    """
    path = folder / _LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if request.storage else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise TuningError(
                f"{request.op} is being tuned already (pid {file.read().strip() or '?'}); wait for it, or have both "
                "work together: give each the same --storage."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
