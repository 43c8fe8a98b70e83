"""The best candidates against the default, by the rule of `kernelgen compare`: only what it lets pass is written.

Both are measured by new processes, taking turns; on the CPU by several pairs of them. A verdict stands if other
processes find the same; a case that became slower is reason enough to leave the default. Before that the candidate goes
through all that `kernelgen fuzz` runs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.lab import LabError, compare, pair, results
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.tune.candidates import Candidate
from kernelgen.lab.tune.lane import SIDES, START_LIMIT_S
from kernelgen.lab.tune.space import Values, key

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
        request: what the processes work on, as `lane.Lane` has it.
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
        """One candidate."""
        try:
            found = self._measure(candidate, self._seed + 1)
            said = ("the default", key(values), self.machine, found)
            comparison = compare.revisions(*said, self.thresholds)
            if doubtful := compare.doubtful(comparison):
                again = self._measure(candidate, self._seed + 2, doubtful)
                comparison = compare.revisions(*said, self.thresholds, again)
            return Confirmation(values, comparison)
        except LabError as error:
            return Confirmation(values, problem=str(error))

    @property
    def _seed(self) -> int:
        return int(self.request.get("seed", 0))

    def _measure(self, candidate: Candidate, seed: int, only: Sequence[str] | None = None) -> list[pair.Paired]:
        """Every case, which also proves the candidate right, or those of these keys."""
        plan, turns = pair.Plan(blocks=self.blocks, seed=seed), pair.pairs_for(self.blocks, self.request["device"])
        parts: dict[str, list[pair.Paired]] = {}
        for turn in range(turns):
            prove = only is None and turn == 0
            for name, part in self._turn(candidate, plan.share(turn, turns), prove, only).items():
                parts.setdefault(name, []).append(part)
        return [pair.merged(found) for found in parts.values()]

    def _turn(
        self, candidate: Candidate, plan: pair.Plan, prove: bool, only: Sequence[str] | None
    ) -> dict[str, pair.Paired]:
        """What one pair of processes finds in its share of each case's blocks."""
        request = {**self.request, "work": "kernelgen.lab.tune.bench", "seed": plan.seed}
        sides = [pair.Side(name, self.python, self.root, request, START_LIMIT_S) for name in SIDES]
        with closing(pair.Pair(*sides)) as live:
            for side, one in zip(sides, (self.default, candidate), strict=True):
                self.machine = side.ask("list")["machine"]
                side.ask("load", library=str(one.library))
                side.allow(self.limit_s)
            if prove:
                self._prove(live.after, plan.seed)
            found = {}
            for case, dtype in self.cases:
                part = pair.Paired(self.request["op"], case, dtype, bool(self.request.get("backward")))
                name = results.key(part.as_dict())
                if only is None or name in only:
                    found[name] = pair.measure(live, part, plan, lambda share, name=name: self.show(name, share))
            return found

    def _prove(self, side: pair.Side, seed: int) -> None:
        for first in range(0, FUZZED, AT_ONCE):
            self.show("proving the candidate", first / FUZZED)
            if fault := side.ask("prove", count=AT_ONCE, seed=seed, first=first)["fault"]:
                raise LabError(f"the candidate is wrong: {fault}")
