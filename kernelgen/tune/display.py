"""Shows the progress of a tuning on standard error: a view that is redrawn on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelgen.tune.request import Reporter
from kernelgen.tune.search import SearchStats
from kernelgen.tune.space import key

# Without a terminal: trials of a search between two lines, and seconds of a stage.
TRIALS_A_LINE, SECONDS_A_LINE = 10, 10.0


@contextmanager
def shown(quiet: bool) -> Iterator[Reporter]:
    """A reporter that shows what it is told, or nothing if it is to be quiet."""
    if quiet:
        yield Reporter()
        return
    if not sys.stderr.isatty():
        log = _Log()
        yield Reporter(log.stage, log.stats, log.note)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live("", console=console, transient=True, refresh_per_second=4) as live:
        yield Reporter(
            stage=lambda text, share: live.update(text if share is None else f"{text}: {share:.0%}"),
            stats=lambda shapes, stats: live.update(_table(shapes, stats)),
            note=lambda text: console.print(text, highlight=False),
        )


class _Log:
    """The progress as lines, for a file or an agent."""

    def __init__(self) -> None:
        self._shapes, self._logged_trials, self._logged_s = "", 0, time.monotonic()

    def note(self, text: str) -> None:
        self._logged_s = time.monotonic()
        print(f"kernelgen: {text}", file=sys.stderr, flush=True)

    def stage(self, text: str, share: float | None) -> None:
        if text and time.monotonic() >= self._logged_s + SECONDS_A_LINE:
            self.note(text if share is None else f"{text}: {share:.0%}")

    def stats(self, shapes: str, stats: SearchStats) -> None:
        if shapes != self._shapes:
            self._shapes, self._logged_trials = shapes, 0
        if stats.here >= self._logged_trials + TRIALS_A_LINE:
            self._logged_trials = stats.here
            self.note(f"{shapes}: {_line(stats)}" if shapes else _line(stats))


def _line(stats: SearchStats) -> str:
    best = f"best {stats.best:.3f} of the default's time" if stats.best_values else "none measured yet"
    return f"{stats.done} of {stats.total} trials, {best}, {stats.rate:.0f} a minute, {_left(stats)} left"


def _left(stats: SearchStats) -> str:
    if not stats.rate:
        return "?"
    seconds = min(60 * (stats.total - stats.done) / stats.rate, max(0.0, stats.limit_s - stats.seconds))
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _table(shapes: str, stats: SearchStats) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_row(shapes or "trials", ProgressBar(stats.total, stats.done, width=40), f"{stats.done} of {stats.total}")
    if stats.best_values:
        table.add_row("best", f"{stats.best:.3f} of the default's time", key(stats.best_values))
    table.add_row("rate", f"{stats.rate:.1f} trials a minute", f"{_left(stats)} left")
    used = f"compilers {stats.compilers_used:.0%} of {stats.jobs}, measuring {stats.slots_used:.0%} of {stats.slots}"
    table.add_row("in use", used, f"{stats.failed} no good, {stats.cached} from the cache")
    return table
