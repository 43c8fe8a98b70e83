"""The processes that a process started, as /proc lists them: signalled together, and ended where they are orphans."""

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

# How long processes are followed that start others as fast as they are stopped.
_CHASE_S = 2.0
# Listings without another process that end this, where there was none, and after others.
_QUIET_LISTINGS, _QUIET_AFTER_OTHERS = 2, 30


def state_of(pid: int) -> str:
    """The letter of a process's state, such as T for stopped and Z for ended.

    Raises:
        OSError: there is no such process, or it cannot be seen.
    """
    return _stat(pid)[0]


def line_of(pid: int) -> Iterator[int]:
    """A process, the one that started it, and so on, as far as they can be seen."""
    while pid > 0:
        yield pid
        try:
            pid = int(_stat(pid)[1])
        except OSError:
            return


def _stat(pid: int) -> list[str]:
    """The fields after the process's name: its state, its parent, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    children = _children(pid)
    return children + [grandchild for child in children for grandchild in descendants(child)]


def _children(pid: int) -> list[int]:
    if not _has_lists_of_children():
        return _children_by_parent(pid)
    children: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


@functools.cache
def _has_lists_of_children() -> bool:
    """Linux is built with or without them (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")


def _children_by_parent(pid: int) -> list[int]:
    children: list[int] = []
    for entry in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError):
            children += [int(entry)] if int(_stat(int(entry))[1]) == pid else []
    return children


def signal_all(number: int, processes: Callable[[], list[int]]) -> list[int]:
    """Sends a signal that ends or stops to processes that are listed again and again, until several listings in turn
    have no other among them: one that has it starts none any more, but it may have before, and have ended; and a list
    may lack a process whose parent ends meanwhile. Returns those that got it."""
    reached: set[int] = set()
    end, quiet, needed = time.monotonic() + _CHASE_S, 0, _QUIET_LISTINGS
    while time.monotonic() < end and quiet < needed:
        new = [pid for pid in processes() if pid not in reached]
        if new:
            quiet, needed = 0, _QUIET_AFTER_OTHERS
        else:
            quiet += 1
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.add(pid)
    return list(reached)


def end(pid: int) -> None:
    """Ends a process with all that it started. It is stopped first, so that it keeps what it adopts until that ends."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        signal_all(signal.SIGKILL, lambda: descendants(pid))
        os.kill(pid, signal.SIGKILL)


def end_orphans(known: Sequence[int]) -> int:
    """Ends the processes that ops left behind, which lost their parent; returns how many there were.

    They are children of this process that it did not start, and as unprivileged as only an op's are.
    """

    def left_behind() -> list[int]:
        orphans = [pid for pid in _children(os.getpid()) if pid not in known and _is_unprivileged(pid)]
        return orphans + [pid for orphan in orphans for pid in descendants(orphan)]

    ended = signal_all(signal.SIGKILL, left_behind)
    for pid in ended:
        with suppress(OSError):  # One that ended already, too: it is a child of this process until somebody waits.
            os.waitpid(pid, 0)
    return len(ended)


def _is_unprivileged(pid: int) -> bool:
    try:
        return "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    except OSError:  # Of a child that hides: none of this process's own does.
        return True
