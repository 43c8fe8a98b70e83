"""How many processor cores this process may use."""

import os


def usable_cores() -> int:
    """Those that the system lets this process run on: on a cluster, often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
