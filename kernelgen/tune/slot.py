"""Measures candidates on one device: a GPU, or the CPU. Two worker processes take turns on it, one with the default's
library and one with each candidate's.

A candidate that crashes or hangs takes its process with it; the next candidate gets a new one.
"""

import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import pair
from kernelgen.lab.worker_process import START_LIMIT_S, LostError, WorkerProcess
from kernelgen.tune.candidates import Candidate

_CHANCE = SystemRandom()
# What the two workers are called.
WORKERS = ("the default", "the candidate")
# The states of a trial whose candidate compiled.
MEASURED, STOPPED, WRONG, LOST, FAILED = "measured", "stopped early", "wrong", "crashed or hung", "failed"


@dataclass(frozen=True)
class TrialBudget:
    """How much of a candidate is measured.

    The search compares geometric means over the cases, so with many cases each needs fewer rounds.

    Attributes:
        rounds: the most rounds of a case; `min_rounds`: the fewest; between these, `total_rounds` over the cases.
        samples: samples of a round, for the default and for the candidate.
        proofs: adversarial cases that a candidate has to get right before it is measured.
        stop_after, stop_margin: from this round of a case on, measuring a candidate stops if the lower end of the
            interval of its log ratio is more than the margin above the best candidate's in that case.
    """

    rounds: int = 12
    total_rounds: int = 60
    min_rounds: int = 6
    samples: int = 2
    proofs: int = 8
    stop_after: int = 4
    stop_margin: float = 0.05

    def rounds_of(self, cases: int) -> int:
        """Rounds of each case if there are this many cases."""
        return min(self.rounds, max(self.min_rounds, self.total_rounds // cases))


@dataclass
class TrialResult:
    """How a trial ended.

    Attributes:
        ratio: the candidate's time over the default's, as a geometric mean over the cases; None if the trial failed.
        ratios: the same of each case that was measured.
        reason: why there is no ratio, or why the measurement was stopped.
        seconds: the time that proving and measuring took.
    """

    state: str
    ratio: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0


class MeasuringSlot:
    """Measures candidates one after another.

    Args:
        request: what both workers work on: `package`, `op`, `seed`, `device`, and perhaps `dtype`, `cases`, `backward`,
            `tf32` and `environment`.
        limit_s: a worker that does not answer for so long counts as hung.
    """

    def __init__(self, python: Path, root: Path, request: Mapping[str, Any], limit_s: float, seed: int = 0) -> None:
        self._python, self._root = python, root
        self._request = {"work": "tune", "seed": seed, **request}
        self._limit_s, self._random = limit_s, Random(seed)
        self._workers: dict[str, WorkerProcess] = {}
        self._warm_ups: list[threading.Thread] = []
        self._ready: set[str] = set()
        self.environment: dict[str, Any] = {}

    def begin(self, cases: Sequence[Sequence[str]] = (), proofs: int = 0) -> None:
        """Start both workers, and have each warm up by a measurement of these cases, with this many proofs. On a GPU
        the first measurement takes seconds longer: CUDA loads its modules, and each case's inputs are made."""
        for name in WORKERS:
            worker = self._start_worker(name)
            if cases:
                count = proofs if name == "the candidate" else 0
                thread = threading.Thread(target=self._warm_up, args=(worker, cases, count), daemon=True)
                self._warm_ups.append(thread)
                thread.start()

    def start(self, default: Candidate) -> None:
        """Wait for the warm-up to end, and load the default, which is measured beside each candidate from now on.

        Raises:
            LabError: it cannot be run here; the message says why.
        """
        self._default = default
        for thread in self._warm_ups:
            thread.join()
        self._worker("the default")

    def measure(
        self,
        candidate: Candidate,
        budget: TrialBudget,
        cases: Sequence[Sequence[str]],
        best: Mapping[str, float],
        seed: int,
    ) -> TrialResult:
        """Prove a candidate right, then time it beside the default, case by case.

        Args:
            cases: the cases and dtypes to time; `best`: the ratio of the best candidate so far, by case.
            seed: of the adversarial cases.
        """
        start = time.perf_counter()
        try:
            result = self._measure(candidate, budget, cases, best, seed)
        except LostError as lost:
            result = TrialResult(LOST, reason=str(lost))
            self._drop("the candidate")
            if "the default" in str(lost):  # No candidate can end the default's process: the machine or its driver did.
                self._drop("the default")
        except LabError as error:
            result = TrialResult(FAILED, reason=str(error))
        result.seconds = time.perf_counter() - start
        return result

    def estimates(self, values: Mapping[str, Any], cases: Sequence[Sequence[str]]) -> list[Any]:
        """What the op's lab.py estimates of a configuration in these cases, without repetitions."""
        return self._worker("the default").ask("estimates", points=[dict(values)], cases=list(cases))["estimates"]

    def close(self) -> None:
        for name in list(self._workers):
            self._drop(name)

    def kill(self) -> None:
        """End both workers, even while another thread waits for their answers."""
        for worker in list(self._workers.values()):
            worker.kill()

    def _warm_up(self, worker: WorkerProcess, cases: Sequence[Sequence[str]], proofs: int) -> None:
        """Both workers do this at once, since these times do not count."""
        try:
            worker.ask("list")
            worker.allow(self._limit_s)
            if proofs:
                worker.ask("prove", count=proofs, seed=0)
            for case, dtype in cases:
                graphs = worker.ask("plan", seconds=worker.ask("open", case=case, dtype=dtype)["fastest"])["graphs"]
                worker.ask("fresh", graphs=graphs)
                worker.ask("time", count=1)
                if proofs:
                    worker.ask("time", count=1, is_checked=True)
        except LabError:  # If it was not killed, the worker that takes its place meets the same and reports it.
            self._drop(worker.name)

    def _measure(
        self,
        candidate: Candidate,
        budget: TrialBudget,
        cases: Sequence[Sequence[str]],
        best: Mapping[str, float],
        seed: int,
    ) -> TrialResult:
        live = pair.Pair(self._worker("the default"), self._worker("the candidate"))
        live.after.ask("load", library=str(candidate.library))
        if fault := live.after.ask("prove", count=budget.proofs, seed=seed)["fault"]:
            return TrialResult(WRONG, reason=fault)
        ratios: dict[str, float] = {}
        rounds = budget.rounds_of(len(cases))
        for case, dtype in cases:
            name = f"{case} · {dtype}"
            self._open(live, case, dtype)
            logs, stopped, fault = self._rounds(live, budget, rounds, best.get(name, math.inf))
            if fault:
                return TrialResult(WRONG, reason=f"{fault} (in {name})")
            ratios[name] = math.exp(statistics.median(logs))
            if stopped:
                return _stopped(name, ratios, best)
        return TrialResult(MEASURED, math.exp(statistics.fmean(map(math.log, ratios.values()))), ratios)

    def _open(self, live: pair.Pair, case: str, dtype: str) -> None:
        # One after the other: at the same time they would slow each other down.
        opened = [worker.ask("open", case=case, dtype=dtype) for worker in (live.before, live.after)]
        graphs = all(answer["graphs"] for answer in live.both("plan", seconds=opened[0]["fastest"]))
        live.both("fresh", graphs=graphs)

    def _rounds(
        self, live: pair.Pair, budget: TrialBudget, rounds: int, best: float
    ) -> tuple[list[float], bool, str | None]:
        """The logarithms of the rounds' ratios, whether the candidate was given up, and what is wrong with it.

        A check computes the reference, in float64 too. A candidate that is behind the best is checked when it is
        confirmed, if ever. Another one is checked after each round by the same chance, whatever was checked before,
        since it notices a check; without one, after the last round. The samples that are checked are further ones,
        which look like those of a round.
        """
        logs: list[float] = []
        is_checked = False
        for number in range(rounds):
            seconds = {}
            for worker in self._random.sample([live.before, live.after], 2):
                seconds[worker] = statistics.median(worker.ask("time", count=budget.samples)["seconds"])
            logs.append(math.log(seconds[live.after] / seconds[live.before]))
            if number + 1 >= budget.stop_after and lower_end(logs) > math.log(best) + budget.stop_margin:
                return logs, True, None
            is_due = _CHANCE.random() < 1 / rounds or (number + 1 == rounds and not is_checked)
            if is_due and statistics.median(logs) <= math.log(best):
                is_checked = True
                if fault := live.after.ask("time", count=budget.samples, is_checked=True)["fault"]:
                    return logs, False, fault
        return logs, False, None

    def _start_worker(self, name: str) -> WorkerProcess:
        self._workers[name] = WorkerProcess(name, self._python, self._root, dict(self._request), START_LIMIT_S)
        return self._workers[name]

    def _worker(self, name: str) -> WorkerProcess:
        """A worker with a library loaded; a new one if the last was lost."""
        if name not in self._ready:
            worker = self._workers.get(name) or self._start_worker(name)
            try:
                # `list` imports the package, which loads the project's own library; `load` takes the place of that.
                self.environment = worker.ask("list")["environment"]
                worker.ask("load", library=str(self._default.library))
            except LabError:
                self._drop(name)
                raise
            worker.allow(self._limit_s)
            self._ready.add(name)
        return self._workers[name]

    def _drop(self, name: str) -> None:
        self._ready.discard(name)
        if worker := self._workers.pop(name, None):
            with suppress(OSError):
                worker.close()


def _stopped(case: str, ratios: Mapping[str, float], best: Mapping[str, float]) -> TrialResult:
    """The result of a candidate that was given up in a case. In the cases that were not measured it is taken to be as
    far behind the best candidate as it is in the others."""
    behind = statistics.fmean(math.log(ratios[name] / best[name]) for name in ratios)
    ratio = math.exp(statistics.fmean(map(math.log, best.values())) + behind)
    return TrialResult(STOPPED, ratio, dict(ratios), f"{ratios[case] / best[case]:.2f} times the best's in {case}")


def lower_end(logs: Sequence[float]) -> float:
    """The lower end of a one-sided 95% interval of the median, from order statistics, so for any distribution. Of fewer
    than five values it is the smallest."""
    ordered, count = sorted(logs), len(logs)
    if count < 5:
        return ordered[0]
    # The k-th smallest is above the median if fewer than k values are below it: of fair coins, fewer than k heads.
    probability, k = 0.0, 0
    while probability + math.comb(count, k) / 2**count < 0.05:
        probability += math.comb(count, k) / 2**count
        k += 1
    return ordered[k - 1]
