"""The processor cores that this process may use."""

import os


def _cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


# As they were when this process started: an op can change those of any process of the same user.
CORES = _cores()


def usable_cores() -> int:
    """How many the system lets this process run on: on a cluster, often fewer than the machine has."""
    return len(_cores())
