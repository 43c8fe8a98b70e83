"""One writing verb at a time in a project, and signals that let it undo what it began."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

try:
    import fcntl
except ImportError:  # Windows has no flock: there, verbs do not wait for each other.
    fcntl = None

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the lock of a project's folder; wait, and say so, while another process holds it. It dies with its process.

    Meanwhile INT, TERM and HUP raise Stopped.
    """
    with interruptible(), _locked(root):
        yield


@contextmanager
def unstoppable() -> Iterator[None]:
    """Leave INT, TERM and HUP aside, for as long as an undo takes."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    # The folder itself is locked: it is there before and after, so the lock leaves nothing behind.
    folder = next(folder for folder in (root, *root.parents) if folder.is_dir())
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _wait(handle, root)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, root: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"kernelgen: Waiting for another kernelgen command that writes to {root} …", file=sys.stderr)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        # Some network file systems have no locks; refusing to work there would help nobody.
        return


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Have INT, TERM and HUP raise Stopped, so that what is to be put away is; the list holds those that came."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise Stopped(number)

    with _handled(stop):
        yield came


@contextmanager
def _handled(handler: object) -> Iterator[None]:
    before = {}
    # Only a main thread may set handlers. What `nohup` ignores stays ignored.
    with suppress(ValueError):
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            # None: a handler that Python did not set.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
