"""The best candidates against the default, by the rule of `kernelgen compare`: only what passes is written.

Before a candidate is measured it goes through the cases of `kernelgen fuzz`. A case that became slower is reason enough
to keep the default, and to measure no further.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import compare, results
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.pair import Pair
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.worker_process import WorkerProcess
from kernelgen.tune.candidates import Candidate
from kernelgen.tune.slot import WORKERS
from kernelgen.tune.space import Values, key

# The cases of `kernelgen fuzz` that a candidate has to get right, and how many of them the worker gets in one order.
PROOFS, PROOFS_PER_ORDER = 60, 6


@dataclass
class Confirmation:
    """A candidate with its comparison, or with the problem that kept it from being compared."""

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
class Confirmer:
    """Confirms candidates.

    Args:
        request: what the workers work on, as `slot.MeasuringSlot` has it.
        cases: the cases and dtypes in which the candidate is held against the default: all of the op's, or those of one
            shape class.
        limit_s: a worker that does not answer for so long counts as hung.
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

    def confirm(self, values: Values, candidate: Candidate) -> Confirmation:
        """Proves a candidate right, and compares it with the default until a case is slower."""
        op, backward = self.request["op"], bool(self.request.get("backward"))
        proved = False

        def start(op: str, seed: int) -> Pair:
            request = {**self.request, "work": "tune", "op": op, "seed": seed}
            return Pair(*(WorkerProcess(name, self.python, self.root, request) for name in WORKERS))

        def prepare(pair: Pair, seed: int) -> None:
            nonlocal proved
            for worker, library in zip(pair.workers, (self.default.library, candidate.library), strict=True):
                worker.ask("load", library=str(library))
            if not proved:
                self._prove(pair.after, seed)
                proved = True

        measurement = PairedMeasurement(
            [op],
            start,
            "the default",
            key(values),
            self.thresholds,
            seed=int(self.request.get("seed", 0)) + 1,  # Other inputs than those of the search.
            backward=backward,
            prepare=prepare,
            cases=[_key(op, case, dtype, backward) for case, dtype in self.cases],
            blocks=self.blocks,
            limit_s=self.limit_s,
            tolerant=False,
            stops_early=True,
            show=self.show,
        )
        try:
            return Confirmation(values, measurement.compare())
        except LabError as error:
            return Confirmation(values, problem=str(error))

    def _prove(self, worker: WorkerProcess, seed: int) -> None:
        for first in range(0, PROOFS, PROOFS_PER_ORDER):
            self.show("proving the candidate", first / PROOFS)
            if fault := worker.ask("prove", count=PROOFS_PER_ORDER, seed=seed, first=first)["fault"]:
                raise LabError(f"the candidate is wrong: {fault}")


def _key(op: str, case: str, dtype: str, backward: bool) -> str:
    return results.key({"op": op, "case": case, "dtype": dtype, "backward": backward})
