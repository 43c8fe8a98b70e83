"""What this machine is: how many compilers it can run at once, and what its CPU is called."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from .messages import BuildError

GIGABYTES_PER_JOB = 1.0
CGROUPS, PROCESS_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CPU_INFO = Path("/proc/cpuinfo")


def jobs() -> int:
    """Compiler processes at once: MAX_JOBS, else as many as there are cores and memory for."""
    max_jobs = os.environ.get("MAX_JOBS", "")
    if max_jobs:
        if not max_jobs.isdecimal() or int(max_jobs) < 1:
            raise BuildError(f"MAX_JOBS={max_jobs} is no number of processes; write a whole number such as MAX_JOBS=4.")
        return int(max_jobs)
    cores = min([len(os.sched_getaffinity(0)), *_limits("cpu.max", "cpu/cpu.cfs_quota_us")])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = min([memory, *_limits("memory.max", "memory/memory.limit_in_bytes")])
    return max(1, min(int(cores), int(memory / 2**30 / GIGABYTES_PER_JOB)))


def _limits(version2: str, version1: str) -> list[float]:
    """The limits of this process's control groups, in bytes or cores: a container may have less than its machine."""
    own = re.search(r"^0::/(.*)$", PROCESS_GROUP.read_text(), re.MULTILINE) if PROCESS_GROUP.is_file() else None
    folders = [CGROUPS / own[1], *(CGROUPS / own[1]).parents] if own else [CGROUPS]
    limits = []
    for file in [*(folder / version2 for folder in folders), CGROUPS / version1]:
        words = file.read_text().split() if file.is_file() else ["max"]
        if words[0] not in ("max", "-1"):
            # A limit of cores is a quota and a period in microseconds; version 1 keeps the period in another file.
            period = float([*words, 100_000][1]) if "cpu" in file.name else 1
            limits.append(float(words[0]) / period)
    return limits


def cpu_name() -> str:
    """The CPU's model as the system names it, or at least its kind."""
    lines = CPU_INFO.read_text(errors="replace").splitlines() if CPU_INFO.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
