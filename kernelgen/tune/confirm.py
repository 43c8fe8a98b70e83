"""The best candidates against the default, by the rule of `kernelgen compare`: only what it lets pass is written.

Both are measured by new processes, taking turns; on the CPU by several pairs of them. A verdict stands if other
processes find the same; a case that became slower is reason enough to keep the default, and to measure no further.
Before that the candidate goes through all that `kernelgen fuzz` runs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import compare, pair, results, statistics
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.tune.candidates import Candidate
from kernelgen.tune.slot import SIDES, START_LIMIT_S
from kernelgen.tune.space import Values, key

# Cases of `kernelgen fuzz`, and how many of them are run between two signs of life.
FUZZED, AT_ONCE = 60, 6


@dataclass
class Confirmation:
    """What was found of one candidate: a comparison, or why there is none."""

    values: Values
    comparison: Comparison | None = None
    problem: str = ""

    @property
    def passed(self) -> bool:
        return self.comparison is not None and self.comparison.exit_code == compare.EXIT_IMPROVED

    def as_dict(self) -> dict[str, Any]:
        facts = {"values": self.values, "passed": self.passed, "problem": self.problem}
        return facts | {"comparison": self.comparison.as_dict() if self.comparison else None}


@dataclass
class Gate:
    """Confirms candidates.

    Args:
        request: what the processes work on, as `slot.MeasuringSlot` has it.
        cases: the cases and dtypes that have to hold: all of the op's, or those of one class of shapes.
    """

    python: Path
    root: Path
    request: Mapping[str, Any]
    default: Candidate
    cases: Sequence[Sequence[str]]
    thresholds: Thresholds
    blocks: int
    limit_s: float
    show: Callable[[str, float], None] = lambda text, share: None
    machine: str = ""

    def confirm(self, values: Values, candidate: Candidate) -> Confirmation:
        """One candidate. A case that looks slower is measured again at once: if it is, the others no longer count."""
        left, found, again = [_name(self._part(*case)) for case in self.cases], [], []
        comparison = None
        try:
            while left and (comparison is None or comparison.exit_code != compare.EXIT_REGRESSED):
                found += self._measure(candidate, self._seed + 1, left, prove=not found, stops=True)
                left = [name for name in left if name not in map(_name, found)]
                said = ("the default", key(values), self.machine, found, self.thresholds)
                doubtful = [_name(found[-1])] if left else compare.doubtful(compare.revisions(*said, again))
                if doubtful := [name for name in doubtful if name not in map(_name, again)]:
                    again += self._measure(candidate, self._seed + 2, doubtful)
                comparison = compare.revisions(*said, again)
        except LabError as error:
            return Confirmation(values, problem=str(error))
        if left:
            comparison.notes.append(f"that is enough: {len(left)} of {len(self.cases)} cases were not measured")
        return Confirmation(values, comparison)

    @property
    def _seed(self) -> int:
        return int(self.request.get("seed", 0))

    def _part(self, case: str, dtype: str) -> pair.Paired:
        return pair.Paired(self.request["op"], case, dtype, bool(self.request.get("backward")))

    def _measure(
        self, candidate: Candidate, seed: int, only: Sequence[str], prove: bool = False, stops: bool = False
    ) -> list[pair.Paired]:
        """The cases of these keys, after proving the candidate right; or those up to the first that looks slower."""
        plan, turns = pair.Plan(blocks=self.blocks, seed=seed), pair.pairs_for(self.blocks, self.request["device"])
        parts: dict[str, list[pair.Paired]] = {}
        for turn in range(turns):
            # Several pairs of processes have parts of each case: whether it is slower shows at the end.
            how = {"prove": prove and turn == 0, "stops": stops and turns == 1}
            for name, part in self._turn(candidate, plan.share(turn, turns), only, **how).items():
                parts.setdefault(name, []).append(part)
        return [pair.merged(found) for found in parts.values()]

    def _turn(
        self, candidate: Candidate, plan: pair.Plan, only: Sequence[str], prove: bool, stops: bool
    ) -> dict[str, pair.Paired]:
        """What one pair of processes finds in its share of each case's blocks."""
        request = {**self.request, "work": "tune", "seed": plan.seed}
        sides = [pair.Side(name, self.python, self.root, request, START_LIMIT_S) for name in SIDES]
        with closing(pair.Pair(*sides)) as live:
            for side, one in zip(sides, (self.default, candidate), strict=True):
                self.machine = side.ask("list")["machine"]
                side.ask("load", library=str(one.library))
                side.allow(self.limit_s)
            if prove:
                self._prove(live.after, plan.seed)
            found = {}
            for part in (self._part(*case) for case in self.cases):
                if (name := _name(part)) in only:
                    found[name] = pair.measure(live, part, plan, lambda share, name=name: self.show(name, share))
                    if stops and self._looks_slower(part):
                        break
            return found

    def _looks_slower(self, part: pair.Paired) -> bool:
        """Or is wrong. As strict as the comparison of all cases can be (Bonferroni's correction)."""
        difference = statistics.paired_difference(part.ratios)
        return bool(part.faults) or self.thresholds.slowed(difference, difference.p * len(self.cases))

    def _prove(self, side: pair.Side, seed: int) -> None:
        for first in range(0, FUZZED, AT_ONCE):
            self.show("proving the candidate", first / FUZZED)
            if fault := side.ask("prove", count=AT_ONCE, seed=seed, first=first)["fault"]:
                raise LabError(f"the candidate is wrong: {fault}")


def _name(part: pair.Paired) -> str:
    return results.key(part.as_dict())
