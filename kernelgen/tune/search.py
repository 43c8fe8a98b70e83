"""The search: chooses configurations, has many compiled while others are measured, and records how each trial ended.

The thread that calls `run` asks the study for trials and tells it their results. A pool of threads waits for compilers.
Each measuring slot has a thread that waits for its workers. So neither waits for the other as long as a trial is ready.
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

from kernelgen.tune import gates
from kernelgen.tune.candidates import Candidate, CandidateCompiler
from kernelgen.tune.device_limits import DeviceLimits
from kernelgen.tune.errors import CompileError, TuningError
from kernelgen.tune.slot import MEASURED, MeasuringSlot, TrialBudget, TrialResult
from kernelgen.tune.space import Values
from kernelgen.tune.study import Study, Trial

# The states of a trial that was not measured.
NOT_COMPILED, GATED = "not compiled", "gated as compiled"
# Compiled candidates that may wait for each slot. Few: the sampler chooses without knowing the results of these.
AHEAD = 1
# If so many trials fail and none succeeds, the candidates are not the cause.
MAX_FAILURES = 20


@dataclass
class SearchStats:
    """The figures of a search. Times are in seconds; `compiling_s` is a sum over compilers, `measuring_s` over slots.

    Attributes:
        done: trials that ended, of all workers; `here`: those of this worker.
        failed: trials without a time; `cached`: candidates that were compiled before.
        best: the fastest candidate's time over the default's.
        verdicts_s: from asking for each trial to its end.
    """

    total: int
    jobs: int
    slots: int
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
    def slots_used(self) -> float:
        return self.measuring_s / (self.slots * self.seconds) if self.seconds else 0.0

    @property
    def rate(self) -> float:
        """Trials a minute, of this worker."""
        return 60 * self.here / self.seconds if self.seconds else 0.0


@dataclass
class _InFlight:
    """A trial that was asked for and has not ended."""

    trial: Trial
    asked_at: float  # By time.perf_counter().
    candidate: Candidate | None = None


class Search:
    """One worker's part in a study.

    Args:
        cases: the cases and dtypes to measure; `minutes`: when to stop asking, or None.
        limits: of the GPU, for the gates; None if they are not known.
        show: called several times a second with the figures.
    """

    def __init__(
        self,
        study: Study,
        compiler: CandidateCompiler,
        slots: Sequence[MeasuringSlot],
        cases: Sequence[Sequence[str]],
        *,
        budget: TrialBudget,
        limits: DeviceLimits | None = None,
        minutes: float | None = None,
        show: Callable[[SearchStats], None] = lambda stats: None,
    ) -> None:
        self._study, self._compiler, self._slots, self._cases = study, compiler, slots, cases
        self._budget, self._limits, self._show = budget, limits, show
        self.stats = SearchStats(study.total, compiler.jobs, len(slots), limit_s=60 * minutes if minutes else math.inf)
        self._ready: queue.Queue[_InFlight | None] = queue.Queue()
        # What other threads want done in the thread that asks and tells.
        self._events: queue.Queue[Callable[[], None]] = queue.Queue()
        self._in_flight = self._compiling = 0
        self._best: dict[str, float] = {}
        self._error: Exception | None = None
        self._spilled = sum(k["spill_stores"] + k["spill_loads"] for k in compiler.default.kernels)

    def run(self) -> str:
        """Search until there are enough trials, or the time is up; a sentence that says which.

        Raises:
            TuningError: the disk is full, the storage cannot be reached, or no candidate works.
        """
        start = time.perf_counter()
        end = start + self.stats.limit_s
        self._look(self._study.finished())
        threads = [threading.Thread(target=self._measure_all, args=(slot,), daemon=True) for slot in self._slots]
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
        ended = ""
        while True:
            while not ended and self._has_room():
                if time.perf_counter() >= end:
                    ended = "the time is up"
                elif (trial := self._study.ask()) is None:
                    ended = "every trial is done"
                else:
                    self._in_flight += 1
                    self._compiling += 1
                    pool.submit(self._compile, _InFlight(trial, time.perf_counter()))
            if ended and not self._in_flight:
                return ended
            with suppress(queue.Empty):
                self._events.get(timeout=0.2)()
            self._study.heartbeat()
            if self._error:
                raise self._error
            self.stats.seconds = time.perf_counter() - start
            self._show(self.stats)

    def _has_room(self) -> bool:
        """Whether a compiler is free and few trials are in flight: asking early is choosing with fewer results."""
        stats, at_once, slots = self.stats, self._compiler.at_once, len(self._slots)
        needed = at_once
        if stats.measuring_s:
            # As many as the slots measure while one is compiled.
            compiling_s = stats.compiling_s * at_once / stats.jobs
            needed = min(at_once, math.ceil(slots * compiling_s / stats.measuring_s))
        return self._compiling < at_once and self._in_flight < needed + (1 + AHEAD) * slots

    # ---- In the pool ------------------------------------------------------------------------------------------

    def _compile(self, flight: _InFlight) -> None:
        try:
            flight.candidate = self._compiler.compile(flight.trial.values)
        except CompileError as error:
            result = TrialResult(NOT_COMPILED, reason=str(error))
            self._events.put(lambda: self._tell(flight, result))
        except Exception as error:
            self._fail(error)
        else:
            self._ready.put(flight)
        finally:
            self._events.put(self._compiled)

    # ---- In each slot's thread --------------------------------------------------------------------------------

    def _measure_all(self, slot: MeasuringSlot) -> None:
        """Measure what is ready, until None says that there is no more. The slot is closed at the end."""
        try:
            slot.start(self._compiler.default)
            while (flight := self._ready.get()) is not None:
                result = self._gate(slot, flight) or slot.measure(
                    flight.candidate, self._budget, self._cases, dict(self._best), flight.trial.number
                )
                self._events.put(lambda flight=flight, result=result: self._tell(flight, result))
        except Exception as error:
            self._fail(error)
        finally:
            slot.close()

    def _gate(self, slot: MeasuringSlot, flight: _InFlight) -> TrialResult | None:
        """Hold the compiler's report against the limits of the GPU."""
        if not flight.candidate.kernels:
            return None
        for estimates in slot.estimates(flight.trial.values, self._cases) or [None]:
            if rejection := gates.judge_compiled(flight.candidate.kernels, estimates, self._spilled, self._limits):
                return TrialResult(GATED, reason=str(rejection))
        return None

    def _fail(self, error: Exception) -> None:
        def fail() -> None:
            self._error = self._error or error

        self._events.put(fail)

    # ---- In the thread that asks and tells --------------------------------------------------------------------

    def _tell(self, flight: _InFlight, result: TrialResult) -> None:
        self._in_flight -= 1
        candidate = flight.candidate
        verdict_s = time.perf_counter() - flight.asked_at
        facts: dict[str, Any] = {"state": result.state, "reason": result.reason, "ratio": result.ratio}
        facts |= {"ratios": result.ratios, "measuring_s": result.seconds, "verdict_s": verdict_s}
        facts |= {"compiling_s": candidate.seconds if candidate else None}
        facts |= {"library": candidate.library.parent.name if candidate else None}
        self._study.tell(flight.trial.number, result.ratio, facts)
        stats = self.stats
        stats.here += 1
        stats.compiling_s += candidate.seconds if candidate else 0.0
        stats.measuring_s += result.seconds
        stats.cached += bool(candidate and not candidate.seconds)
        stats.verdicts_s.append(verdict_s)
        self._look(self._study.finished())
        if stats.done == stats.failed >= MAX_FAILURES:
            raise TuningError(
                f"None of the first {stats.failed} candidates works. The last one was {result.state}: {result.reason}"
            )

    def _compiled(self) -> None:
        self._compiling -= 1

    def _look(self, trials: Sequence[Mapping[str, Any]]) -> None:
        """Update the figures that count the trials of all workers."""
        stats = self.stats
        stats.done, stats.failed = len(trials), sum(trial["ratio"] is None for trial in trials)
        for trial in ranked(trials)[:1]:
            stats.best, stats.best_values, self._best = trial["ratio"], trial["values"], trial["ratios"]


def ranked(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The trials that were measured to the end, the fastest first."""
    return sorted((trial for trial in trials if trial["state"] == MEASURED), key=lambda trial: trial["ratio"])
