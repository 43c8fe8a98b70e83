"""Measures builds: the times of processes, in pairs of neighbouring runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage


class Time(dict):
    """Seconds that passed (`wall`) and seconds of processor time (`cpu`)."""

    @classmethod
    def of(cls, call: Callable[[], object]) -> Time:
        before, start = getrusage(RUSAGE_CHILDREN), time.perf_counter()
        call()
        passed, after = time.perf_counter() - start, getrusage(RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return cls(wall=round(passed, 4), cpu=round(used, 4))


def median(times: list[Time]) -> Time:
    return Time({key: round(statistics.median(run[key] for run in times), 4) for key in ("wall", "cpu")})


def ratio(times: list[Time], over: list[Time]) -> dict[str, float]:
    """The median over pairs of neighbouring runs."""
    pairs = list(zip(times, over, strict=True))
    return {key: round(statistics.median(a[key] / b[key] for a, b in pairs), 3) for key in ("wall", "cpu")}


def paired(repeat: int, first: Callable[[], Time], second: Callable[[], Time]) -> tuple[list[Time], list[Time]]:
    """Times of both calls, which take turns to go first."""
    first_times, second_times = [], []
    for turn in range(repeat):
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            (second_times if index else first_times).append((second if index else first)())
    return first_times, second_times


def call(command: list[str] | str, folder: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    shell = isinstance(command, str)
    done = subprocess.run(
        command, cwd=folder, env=environment, shell=shell, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")


def say(line: str = "") -> None:
    print(line, flush=True)


def show(title: str, times: list[Time], against: str = "", others: list[Time] | None = None) -> None:
    line = f"{title:34} {median(times)['wall']:8.2f} s"
    if others:
        over = ratio(times, others)
        line += (
            f"   {against:24} {median(others)['wall']:8.2f} s   {over['wall']:.2f} x (processor {over['cpu']:.2f} x)"
        )
    say(line)
