"""Compares two versions of ops, A and B: pairs of workers measure every case, and once more each that seems to differ.

Several pairs of workers share a case's blocks (`pair.pairs_for`). The verdicts then say which cases are doubtful; new
processes measure those again, and both measurements together make the verdict that stands (`compare.revisions`).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import compare, pair, results, statistics
from kernelgen.lab.compare import CaseVerdict, Comparison, Thresholds
from kernelgen.lab.pair import Pair, PairedResult, Schedule
from kernelgen.lab.worker_process import LostError


@dataclass
class PairedMeasurement:
    """The cases of some ops, in two versions.

    Args:
        start: starts a new pair of workers for an op, which draws its inputs by a seed.
        before, after: what the versions are called.
        prepare: called with a pair that has listed its cases, and with its seed, before it measures.
        cases: the keys of the cases to measure; None: all.
        blocks: units of evidence for each case; None: as many as `pair.BLOCKS` has for the device.
        limit_s: how long a worker may say nothing, once it has listed its cases.
        tolerant: an op that cannot be measured costs itself alone, which `notes` say, and a case in which a worker is
            lost itself alone. Otherwise either ends the measurement.
        stops_early: measure no further once a case became slower or wrong.
        with_ceilings: measure the machine's ceilings, too.
        show: is told the key of the case that is measured, and the share of it that is done.

    Attributes:
        environment: the machine, as a worker describes it; `ceilings`: how fast it is, if they were measured.
        measured, repeated: the results of all cases, and of those that were doubtful.
    """

    ops: Sequence[str]
    start: Callable[[str, int], Pair]
    before: str
    after: str
    thresholds: Thresholds
    seed: int = 0
    backward: bool = False
    prepare: Callable[[Pair, int], None] = lambda pair, seed: None
    cases: Sequence[str] | None = None
    blocks: int | None = None
    limit_s: float = 120.0
    tolerant: bool = True
    stops_early: bool = False
    with_ceilings: bool = False
    show: Callable[[str, float], None] = lambda key, share: None
    environment: dict[str, Any] = field(default_factory=dict)
    ceilings: dict[str, Any] = field(default_factory=dict)
    measured: list[PairedResult] = field(default_factory=list)
    repeated: list[PairedResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _listed: set[str] = field(default_factory=set)
    _lost: dict[str, CaseVerdict] = field(default_factory=dict)

    def compare(self) -> Comparison:
        """Measures, and repeats what is doubtful.

        Raises:
            LabError: nothing could be measured; or, unless it is `tolerant`, something could not.
        """
        while True:
            done = {result.key for result in self.measured}
            self.measured += self._measure(self.seed, lambda key, done=done: key not in done, self.stops_early)
            if not self.measured and not self._lost:
                raise LabError(" ".join(self.notes) or "Nothing was measured.")
            left = self._listed - self._lost.keys() - {result.key for result in self.measured}
            # Where it stopped early, the last case is the one to repeat: if it is slower, the rest no longer counts.
            doubtful = {self.measured[-1].key} if left and self.measured else set(compare.doubtful(self._judged()))
            doubtful -= {result.key for result in self.repeated}
            if doubtful:
                self.repeated += self._measure(self.seed + 1, lambda key, doubtful=doubtful: key in doubtful)
            comparison = self._judged()
            if not (left and self.stops_early) or comparison.exit_code == compare.EXIT_REGRESSED:
                break
        comparison.notes += self.notes
        if left:
            count = len(self._listed)
            comparison.notes.append(f"that is enough: {len(left)} of {count} cases were not measured")
        return comparison

    @property
    def schedule(self) -> Schedule:
        """That of all pairs of workers together."""
        return Schedule(self.blocks or pair.BLOCKS[self.environment["device"]], seed=self.seed)

    @property
    def pairs(self) -> int:
        """How many pairs of workers share a case's blocks."""
        return pair.pairs_for(self.schedule.blocks, self.environment["device"])

    def _judged(self) -> Comparison:
        machine = results.machine(self.environment)
        comparison = compare.revisions(self.before, self.after, machine, self.measured, self.thresholds, self.repeated)
        comparison.verdicts += self._lost.values()
        return comparison

    def _measure(self, seed: int, wanted: Callable[[str], bool], stops: bool = False) -> list[PairedResult]:
        """The cases that are wanted, by new processes; or those up to the first that looks slower."""
        return [result for op in self.ops for result in self._measure_op(op, seed, wanted, stops)]

    def _measure_op(self, op: str, seed: int, wanted: Callable[[str], bool], stops: bool) -> list[PairedResult]:
        parts: dict[str, list[PairedResult]] = {}
        for number in itertools.count():
            with closing(self._by_one_pair(op, seed, number, wanted)) as measuring:
                for part in measuring:
                    parts.setdefault(part.key, []).append(part)
                    # One of several pairs measures too little of a case to tell.
                    if stops and self.pairs == 1 and self._looks_slower(part):
                        break
            if not parts or number + 1 >= self.pairs:
                break
        return [pair.merged(of_case) for key, of_case in parts.items() if key not in self._lost]

    def _by_one_pair(self, op: str, seed: int, number: int, wanted: Callable[[str], bool]) -> Iterator[PairedResult]:
        """Its share of each case's blocks."""
        with ExitStack() as stack:
            try:
                workers, listed = self._started(op, seed, number, stack)
            except LabError as error:
                if not self.tolerant:
                    raise
                self.notes.append(str(error))  # The kernel is not written, or the op has no such case.
                return
            if self.with_ceilings and not self.ceilings:
                self.ceilings = workers.after.ask("ceilings")
            schedule = Schedule(self.schedule.blocks, seed=seed).share(number, self.pairs)
            parts = [PairedResult(op, case, dtype, self.backward) for case, dtype in listed]
            parts = [part for part in parts if self.cases is None or part.key in self.cases]
            self._listed.update(part.key for part in parts)
            for part in parts:
                if part.key in self._lost or not wanted(part.key):
                    continue
                try:
                    show = partial(self.show, part.key)
                    yield pair.measure(workers, part, schedule, show, self._is_decided)
                except LostError as lost:
                    if not self.tolerant:
                        raise
                    is_new = lost.worker == workers.after.name
                    self._lost[part.key] = compare.lost(part.key, str(lost), is_new=is_new)
                    workers, _ = self._started(op, seed, number, stack)

    def _started(self, op: str, seed: int, number: int, stack: ExitStack) -> tuple[Pair, list[list[str]]]:
        """A new pair of workers, and its cases and dtypes."""
        seed = seed * max(pair.PAIRS.values()) + number  # No pair draws another's inputs.
        workers = stack.enter_context(closing(self.start(op, seed)))
        answer = workers.list()
        self.environment = answer["environment"]
        for worker in workers.workers:
            worker.allow(self.limit_s)
        self.prepare(workers, seed)
        return workers, answer["cases"]

    def _is_decided(self, ratios: Sequence[float]) -> bool:
        """Of several pairs of workers each measures its share, since they differ by more than their blocks do."""
        return self.pairs == 1 and self.thresholds.is_decided(ratios)

    def _looks_slower(self, result: PairedResult) -> bool:
        """Or is wrong. As strict as a comparison of all cases can be (Bonferroni's correction)."""
        difference = statistics.paired_difference(result.ratios)
        return bool(result.faults) or self.thresholds.slowed(difference, difference.p * len(self._listed))
