"""Stops a process for good: also one that has itself continued, by a timer whose signal is SIGCONT or by a tracer."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kernelgen.process_tree import state_of
from kernelgen.worker.judge.errors import CallError

# How long the processes that are told to stop may wait for a core to do so on, all together.
_STOPPING_S = 0.1
# A process that did not stop is told to again, first after so many seconds and then each so many; and for so long.
_TOLD_AGAIN_S, _UNSTOPPABLE_S = (5e-3, 1e-3), 10.0
# Processes are at rest that took no processor time for so long, which is waited for so long.
_REST_S, _RESTING_S = 5e-5, 1e-2
UNSTOPPABLE = "its process did not stop: it had itself continued, as a timer or another process can"


@contextmanager
def told_to_stop(pid: int) -> Iterator[None]:
    """Tells a process to stop, again and again while the body waits for that: SIGCONT takes a stop back that nobody has
    seen yet, and a tracer keeps it from the process.

    Raises:
        CallError: the body waited for long.
    """
    end = time.monotonic() + _UNSTOPPABLE_S

    def tell(*_: Any) -> None:
        if time.monotonic() > end:
            raise CallError(UNSTOPPABLE)
        os.kill(pid, signal.SIGSTOP)

    handler = signal.signal(signal.SIGALRM, tell)
    try:
        signal.setitimer(signal.ITIMER_REAL, *_TOLD_AGAIN_S)
        os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def that_come_to_a_stop(pids: Sequence[int]) -> list[int]:
    """Those that stop soon of processes that were told to: they take some processor time to, later on a busy machine.
    One that does not is among them, so that its time says that it goes on; one that was about to end is not."""
    end = time.monotonic() + _STOPPING_S
    return [pid for pid in pids if _comes_to_a_stop(pid, end)]


def _comes_to_a_stop(pid: int, end: float) -> bool:
    with suppress(OSError):
        while (state := state_of(pid)) not in "TZX":
            if time.monotonic() > end:
                return True
        return state == "T"
    return False


def times_at_rest(pids: Sequence[int]) -> tuple[dict[int, float], float]:
    """By process, the processor time that it has taken once that grows no more; and what all took until then. A thread
    has yet to leave its core when it says that it stops, and on a busy machine it may lose the core before it has."""
    first = last = _cpu_times(pids)
    now = changed = begin = time.perf_counter()
    while now - changed < _REST_S and now - begin < _RESTING_S:
        times, now = _cpu_times(pids), time.perf_counter()
        if times != last:
            last, changed = times, now
    return last, sum(taken - first.get(pid, taken) for pid, taken in last.items())


def _cpu_times(pids: Sequence[int]) -> dict[int, float]:
    return {pid: taken for pid in pids if (taken := cpu_seconds(pid)) is not None}


def cpu_seconds(pid: int) -> float | None:
    """The processor time that a process took, all of its threads together; None if there is none, or nobody says."""
    try:
        # A clock's number as Linux makes it of a process: CPUCLOCK_SCHED, or clock_getcpuclockid(3).
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None
