"""Names of the processes that work on one study, and whether one still runs."""

import os
import socket
import time
from pathlib import Path

# A worker reports to the study this often. One of another machine counts as dead after this long without a report.
HEARTBEAT_S = 20.0
SILENCE_S = 120.0


def this_worker() -> str:
    """A name of this process that no other process has, on this machine or another: host, process id, start time."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def is_alive(worker: str, reported: float | None) -> bool:
    """Whether a worker runs. On this machine the system knows; of another one its last report tells, a Unix time."""
    host, pid, started = worker.rsplit(" ", 2)
    if host == socket.gethostname():
        return _started(int(pid)) == started
    return reported is not None and time.time() - reported < SILENCE_S


def _started(pid: int) -> str:
    """When a process of this machine started, in the system's ticks; "0" if it does not run, or is ending."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "0"
    return "0" if fields[0] in "ZX" else fields[19]
