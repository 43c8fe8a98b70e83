"""One GPU, or the CPU, and the two processes that take turns on it: one runs the default, one each candidate.

A candidate that crashes or hangs takes its process with it; the next candidate gets a new one.
"""

import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import pair
from kernelgen.lab.pair import LostError, Side
from kernelgen.tune.candidates import Candidate

# What a worker may take to start, which is mostly torch's import from a cold disk.
START_LIMIT_S = 300.0

SIDES = ("the default", "the candidate")
MEASURED, STOPPED, WRONG, LOST, FAILED = "measured", "stopped early", "wrong", "crashed or hung", "failed"


@dataclass(frozen=True)
class Effort:
    """How much a candidate is measured: rounds of a case, samples a round and side, cases of the oracle before.

    What counts is the mean over the cases, so of many cases each gets fewer rounds: they share `shared`, and each has
    `least` or more. After every round from `fewest` on it is given up if its ratio in the case is, at the lower end of
    its interval, more than `hopeless` above that of the best in the same case.
    """

    rounds: int = 12
    shared: int = 60
    least: int = 6
    samples: int = 3
    proofs: int = 8
    fewest: int = 4
    hopeless: float = 0.05

    def rounds_of(self, cases: int) -> int:
        """Rounds of each of so many cases."""
        return min(self.rounds, max(self.least, self.shared // cases))


@dataclass
class Outcome:
    """What came of a candidate: its time over the default's, as a geometric mean over the cases and for each case."""

    state: str
    ratio: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Lane:
    """Measures candidates one after another.

    Args:
        request: what both processes work on: `package`, `op`, `seed`, `device`, and where given `dtype`, `cases`,
            `backward`, `tf32` and `environment`.
        limit_s: how long a candidate may say nothing before it counts as hung.
    """

    def __init__(self, python: Path, root: Path, request: Mapping[str, Any], limit_s: float, seed: int = 0) -> None:
        self._python, self._root = python, root
        self._request = {"work": "tune", "seed": seed, **request}
        self._limit_s, self._chance = limit_s, Random(seed)
        self._sides: dict[str, Side] = {}
        self._rehearsals: list[threading.Thread] = []
        self._ready: set[str] = set()
        self.environment: dict[str, Any] = {}

    def begin(self, cases: Sequence[Sequence[str]] = (), proofs: int = 0) -> None:
        """Start both processes, and have them go through a measurement of these cases, if any, with so many of the
        oracle. The first takes seconds on a GPU: what CUDA loads when it is first used, and each case's inputs."""
        for name in SIDES:
            side = self._begin(name)
            if cases:
                proven = proofs if name == "the candidate" else 0
                thread = threading.Thread(target=self._rehearse, args=(side, cases, proven), daemon=True)
                self._rehearsals.append(thread)
                thread.start()

    def start(self, default: Candidate) -> None:
        """Wait until the default can be run, and run it from now on beside each candidate.

        Raises:
            LabError: it cannot be run here; the message says why.
        """
        self._default = default
        for rehearsal in self._rehearsals:
            rehearsal.join()
        self._side("the default")

    def measure(
        self, candidate: Candidate, effort: Effort, cases: Sequence[Sequence[str]], best: Mapping[str, float], seed: int
    ) -> Outcome:
        """Prove a candidate right, then time it beside the default, case by case.

        Args:
            cases: the cases and dtypes to time; `best`: the ratio of the best candidate so far, by case.
            seed: of the oracle's cases.
        """
        start = time.perf_counter()
        try:
            outcome = self._measure(candidate, effort, cases, best, seed)
        except LostError as lost:
            outcome = Outcome(LOST, reason=str(lost))
            self._drop("the candidate")
            if "the default" in str(lost):  # Which a candidate cannot help: the machine or the driver did that.
                self._drop("the default")
        except LabError as error:
            outcome = Outcome(FAILED, reason=str(error))
        outcome.seconds = time.perf_counter() - start
        return outcome

    def estimates(self, values: Mapping[str, Any], cases: Sequence[Sequence[str]]) -> list[Any]:
        """What the op's lab.py says of a configuration for these cases, each answer once."""
        return self._side("the default").ask("estimates", values=dict(values), cases=list(cases))["estimates"]

    def close(self) -> None:
        for name in list(self._sides):
            self._drop(name)

    def kill(self) -> None:
        """End both processes, even while another thread waits for them."""
        for side in list(self._sides.values()):
            side.kill()

    def _rehearse(self, side: Side, cases: Sequence[Sequence[str]], proofs: int) -> None:
        """Both processes at once: how long these calls take does not matter."""
        try:
            side.ask("list")
            side.allow(self._limit_s)
            if proofs:
                side.ask("prove", count=proofs, seed=0)
            for case, dtype in cases:
                graphs = side.ask("plan", seconds=side.ask("open", case=case, dtype=dtype)["fastest"])["graphs"]
                side.ask("fresh", graphs=graphs)
                side.ask("time", count=1)
                if proofs:
                    side.ask("check")
        except LabError:  # A new one will say what is wrong, if it is not that this one was killed.
            self._drop(side.name)

    def _measure(
        self, candidate: Candidate, effort: Effort, cases: Sequence[Sequence[str]], best: Mapping[str, float], seed: int
    ) -> Outcome:
        live = pair.Pair(self._side("the default"), self._side("the candidate"))
        live.after.ask("load", library=str(candidate.library))
        if fault := live.after.ask("prove", count=effort.proofs, seed=seed)["fault"]:
            return Outcome(WRONG, reason=fault)
        ratios: dict[str, float] = {}
        rounds = effort.rounds_of(len(cases))
        for case, dtype in cases:
            name = f"{case} · {dtype}"
            self._open(live, case, dtype)
            found, stopped = self._rounds(live, effort, rounds, best.get(name))
            ratios[name] = math.exp(statistics.median(found))
            if stopped:
                # The cases that are left are taken to be as much worse than the best's as those that were measured.
                behind = statistics.fmean(math.log(ratios[known] / best[known]) for known in ratios)
                ratio = math.exp(statistics.fmean(map(math.log, best.values())) + behind)
                return Outcome(STOPPED, ratio, ratios, f"{ratios[name] / best[name]:.2f} times the best's in {name}")
            # A check computes the reference, in float64 too. Where a candidate is behind the best, the gate's will do.
            if ratios[name] <= best.get(name, math.inf) and (fault := live.after.ask("check")["fault"]):
                return Outcome(WRONG, reason=f"{fault} (in {name})")
        return Outcome(MEASURED, math.exp(statistics.fmean(map(math.log, ratios.values()))), ratios)

    def _open(self, live: pair.Pair, case: str, dtype: str) -> None:
        # One after the other: beside each other they would slow each other down.
        opened = [side.ask("open", case=case, dtype=dtype) for side in (live.before, live.after)]
        graphs = all(answer["graphs"] for answer in live.both("plan", seconds=opened[0]["fastest"]))
        live.both("fresh", graphs=graphs)

    def _rounds(self, live: pair.Pair, effort: Effort, rounds: int, best: float | None) -> tuple[list[float], bool]:
        """The logarithms of the rounds' ratios, and whether the candidate was given up."""
        found: list[float] = []
        for number in range(rounds):
            taken = {}
            for side in self._chance.sample([live.before, live.after], 2):
                taken[side] = statistics.median(side.ask("time", count=effort.samples)["seconds"])
            found.append(math.log(taken[live.after] / taken[live.before]))
            if best is not None and number + 1 >= effort.fewest and lowest(found) > math.log(best) + effort.hopeless:
                return found, True
        return found, False

    def _begin(self, name: str) -> Side:
        self._sides[name] = Side(name, self._python, self._root, dict(self._request), START_LIMIT_S)
        return self._sides[name]

    def _side(self, name: str) -> Side:
        """A process that is ready; a new one, if the last was lost."""
        if name not in self._ready:
            side = self._sides.get(name) or self._begin(name)
            try:
                # First the package, which loads the project's own library, then what takes its place.
                self.environment = side.ask("list")["environment"]
                side.ask("load", library=str(self._default.library))
            except LabError:
                self._drop(name)
                raise
            side.allow(self._limit_s)
            self._ready.add(name)
        return self._sides[name]

    def _drop(self, name: str) -> None:
        self._ready.discard(name)
        if side := self._sides.pop(name, None):
            with suppress(OSError):
                side.close()


def lowest(logs: Sequence[float]) -> float:
    """The lower end of an interval of the median that chance leaves out in less than 1 of 20 cases, without a
    distribution: by order statistics, the smallest of five and more, and a later one of many."""
    ordered, count = sorted(logs), len(logs)
    if count < 5:
        return ordered[0]
    # The k-th smallest is below the median with the probability that at least k of `count` fair coins fall so.
    below, k = 0.0, 0
    while below + math.comb(count, k) / 2**count < 0.05:
        below += math.comb(count, k) / 2**count
        k += 1
    return ordered[k - 1]
