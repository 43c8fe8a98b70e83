"""The search: asks for configurations, has many compiled at once while others are measured, and records each outcome.

One thread asks and tells; a pool of threads waits for compilers; and each lane has a thread, which waits for its
processes. So a slow compiler never keeps a GPU waiting as long as another candidate is ready, and the other way round.
"""

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.tune import gates
from kernelgen.tune.candidates import Candidate, CompileError, Compiler
from kernelgen.tune.device_limits import DeviceLimits
from kernelgen.tune.lane import MEASURED, STOPPED, Effort, Lane, Outcome
from kernelgen.tune.space import Values
from kernelgen.tune.study import Ask, Study

NOT_COMPILED, GATED = "not compiled", "gated as compiled"
# How many candidates may wait, compiled, for each lane. The sampler knows nothing yet of what is in flight.
AHEAD = 1
# With so many failures and no success, something else is wrong than the candidates.
HOPELESS_START = 20


@dataclass
class Stats:
    """What a view of the progress shows. Times are in seconds; the two `_busy` are sums over jobs and over lanes."""

    total: int
    jobs: int
    lanes: int
    done: int = 0
    here: int = 0
    failed: int = 0
    cached: int = 0
    best: float = math.inf
    best_values: Values = field(default_factory=dict)
    compiling_s: float = 0.0
    measuring_s: float = 0.0
    seconds: float = 0.0
    limit_s: float = math.inf
    verdicts_s: list[float] = field(default_factory=list)

    @property
    def compilers_used(self) -> float:
        return self.compiling_s / (self.jobs * self.seconds) if self.seconds else 0.0

    @property
    def lanes_used(self) -> float:
        return self.measuring_s / (self.lanes * self.seconds) if self.seconds else 0.0

    @property
    def rate(self) -> float:
        """Trials a minute, of this worker."""
        return 60 * self.here / self.seconds if self.seconds else 0.0


@dataclass
class _Flight:
    """A trial on its way."""

    ask: Ask
    asked: float
    candidate: Candidate | None = None


class Search:
    """One worker's part in a study.

    Args:
        cases: the cases and dtypes that count; `minutes`: when to stop asking, or None.
        show: called now and then with what there is to show.
    """

    def __init__(
        self,
        study: Study,
        compiler: Compiler,
        lanes: Sequence[Lane],
        cases: Sequence[Sequence[str]],
        *,
        effort: Effort,
        limits: DeviceLimits | None = None,
        minutes: float | None = None,
        show: Callable[[Stats], None] = lambda stats: None,
    ) -> None:
        self._study, self._compiler, self._lanes, self._cases = study, compiler, lanes, cases
        self._effort, self._limits, self._show = effort, limits, show
        self.stats = Stats(study.total, compiler.jobs, len(lanes), limit_s=60 * minutes if minutes else math.inf)
        self._ready: queue.Queue[_Flight | None] = queue.Queue()
        self._events: queue.Queue[Callable[[], None]] = queue.Queue()
        self._in_flight = self._compiling = 0
        self._best: dict[str, float] = {}
        self._problem: Exception | None = None
        self._spilled = sum(k["spill_stores"] + k["spill_loads"] for k in compiler.default.kernels)

    def run(self) -> str:
        """Search until there are enough trials, or the time is up; why it ended.

        Raises:
            KernelgenError: the disk is full, the storage is gone, or no candidate works at all.
        """
        start = time.perf_counter()
        end = start + self.stats.limit_s
        self._look(self._study.finished())
        threads = [threading.Thread(target=self._measure_all, args=(lane,), daemon=True) for lane in self._lanes]
        pool = ThreadPoolExecutor(self._compiler.at_once)
        for thread in threads:
            thread.start()
        try:
            return self._loop(pool, start, end)
        finally:
            self._compiler.close()
            pool.shutdown(wait=True, cancel_futures=True)
            for _ in threads:
                self._ready.put(None)
            for thread in threads:
                thread.join(timeout=5 if self._in_flight else 30)
            if self._in_flight:
                self._study.leave()
            self.stats.seconds = time.perf_counter() - start

    def _loop(self, pool: ThreadPoolExecutor, start: float, end: float) -> str:
        why = ""
        while True:
            while not why and self._has_room():
                if time.perf_counter() >= end:
                    why = "the time is up"
                elif (ask := self._study.ask()) is None:
                    why = "every trial is done"
                else:
                    self._in_flight += 1
                    self._compiling += 1
                    pool.submit(self._compile, _Flight(ask, time.perf_counter()))
            if why and not self._in_flight:
                return why
            with suppress(queue.Empty):
                self._events.get(timeout=0.2)()
            self._study.beat()
            if self._problem:
                raise self._problem
            self.stats.seconds = time.perf_counter() - start
            self._show(self.stats)

    def _has_room(self) -> bool:
        """Whether a compiler is free, and not too much waits to be measured: asking early is choosing badly."""
        stats, at_once, lanes = self.stats, self._compiler.at_once, len(self._lanes)
        needed = at_once
        if stats.measuring_s:
            # As many as the lanes measure while one is compiled.
            compiling_s = stats.compiling_s * at_once / stats.jobs
            needed = min(at_once, math.ceil(lanes * compiling_s / stats.measuring_s))
        return self._compiling < at_once and self._in_flight < needed + (1 + AHEAD) * lanes

    # ---- In the pool ------------------------------------------------------------------------------------------

    def _compile(self, flight: _Flight) -> None:
        try:
            flight.candidate = self._compiler.compile(flight.ask.values)
        except CompileError as error:
            outcome = Outcome(NOT_COMPILED, reason=str(error))
            self._events.put(lambda: self._tell(flight, outcome))
        except Exception as error:
            self._fail(error)
        else:
            self._ready.put(flight)
        finally:
            self._events.put(self._compiled)

    # ---- In each lane's thread --------------------------------------------------------------------------------

    def _measure_all(self, lane: Lane) -> None:
        """Measure what is ready, until None says that there is no more. The lane is closed at the end."""
        try:
            lane.start(self._compiler.default)
            while (flight := self._ready.get()) is not None:
                outcome = self._gate(lane, flight) or lane.measure(
                    flight.candidate, self._effort, self._cases, dict(self._best), flight.ask.number
                )
                self._events.put(lambda flight=flight, outcome=outcome: self._tell(flight, outcome))
        except Exception as error:
            self._fail(error)
        finally:
            lane.close()

    def _gate(self, lane: Lane, flight: _Flight) -> Outcome | None:
        """What the compiler's report rules out."""
        if not flight.candidate.kernels:
            return None
        for estimates in lane.estimates(flight.ask.values, self._cases) or [None]:
            if why := gates.judge_compiled(flight.candidate.kernels, estimates, self._spilled, self._limits):
                return Outcome(GATED, reason=str(why))
        return None

    def _fail(self, error: Exception) -> None:
        def fail() -> None:
            self._problem = self._problem or error

        self._events.put(fail)

    # ---- In the thread that asks and tells --------------------------------------------------------------------

    def _tell(self, flight: _Flight, outcome: Outcome) -> None:
        self._in_flight -= 1
        candidate = flight.candidate
        verdict_s = time.perf_counter() - flight.asked
        facts: dict[str, Any] = {"state": outcome.state, "reason": outcome.reason, "ratio": outcome.ratio}
        facts |= {"ratios": outcome.ratios, "measuring_s": outcome.seconds, "verdict_s": verdict_s}
        facts |= {"compiling_s": candidate.seconds if candidate else None}
        facts |= {"library": candidate.library.parent.name if candidate else None}
        self._study.tell(flight.ask.number, outcome.ratio, facts)
        stats = self.stats
        stats.here += 1
        stats.compiling_s += candidate.seconds if candidate else 0.0
        stats.measuring_s += outcome.seconds
        stats.cached += bool(candidate and not candidate.seconds)
        stats.verdicts_s.append(verdict_s)
        self._look(self._study.finished())
        if stats.done == stats.failed >= HOPELESS_START:
            raise KernelgenError(
                f"None of the first {stats.failed} candidates works. The last one was {outcome.state}: {outcome.reason}"
            )

    def _compiled(self) -> None:
        self._compiling -= 1

    def _look(self, trials: Sequence[Mapping[str, Any]]) -> None:
        """Take in what all workers have found."""
        stats = self.stats
        stats.done, stats.failed = len(trials), sum(trial["ratio"] is None for trial in trials)
        for trial in ranked(trials)[:1]:
            stats.best, stats.best_values, self._best = trial["ratio"], trial["values"], trial["ratios"]


def ranked(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The trials that were measured to the end, the fastest first."""
    return sorted((trial for trial in trials if trial["state"] == MEASURED), key=lambda trial: trial["ratio"])


__all__ = ["GATED", "MEASURED", "NOT_COMPILED", "STOPPED", "Search", "Stats", "ranked"]
