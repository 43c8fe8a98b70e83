"""Compares the working tree of a project with an earlier revision, built aside, in one interleaved measurement."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.evidence import interleaved, set_variables, software
from kernelgen.lab.pair import Pair
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.selection import Selection
from kernelgen.lab.steady import steady_variables
from kernelgen.lab.trust import changes_of_rule, trusted
from kernelgen.lab.worker_process import WorkerProcess
from kernelgen.toolchain import revision


@dataclass(frozen=True)
class ComparisonRequest:
    """What to measure: the options of `kernelgen compare`."""

    against: str
    device: str | None = None
    dtype: str | None = None
    cases: Sequence[str] | None = None
    backward: bool = False
    tf32: bool = False
    seed: int = 0
    blocks: int | None = None
    limit_s: float = 120.0
    trust: str | None = None

    def command(self, ops: Sequence[str]) -> str:
        """The command that repeats the measurement."""
        words = ["kernelgen", "compare", "--against", self.against, *ops]
        for name in ("device", "dtype", "blocks", "trust"):
            words += [f"--{name}", str(getattr(self, name))] if getattr(self, name) else []
        words += [f"--{name}" for name in ("backward", "tf32") if getattr(self, name)]
        return shlex.join([*words, *(["--cases", *self.cases] if self.cases else [])])

    def for_worker(self, package: str, op: str, seed: int) -> dict[str, Any]:
        names = ("device", "dtype", "cases", "backward", "tf32")
        facts = {"work": "compare", "package": package, "op": op, "seed": seed, "environment": steady_variables()}
        return facts | {name: getattr(self, name) for name in names}


@dataclass
class Revisions:
    """Both revisions of a project's ops, built.

    Attributes:
        then: the checkout of the revision `commit`; `rule`: that of the revision to trust.
        changes: of the rule since, in sentences.
    """

    selection: Selection
    request: ComparisonRequest
    then: Path
    commit: str
    rule: Path
    changes: list[str]
    _loading: dict[str, Pair] = field(default_factory=dict)

    def load(self, op: str) -> None:
        """Starts the first pair of workers of an op."""
        self._loading[op] = self._new(op, self.request.seed)
        self._loading[op].load()

    def start(self, op: str, seed: int) -> Pair:
        return self._loading.pop(op, None) or self._new(op, seed)

    def close(self) -> None:
        for pair in self._loading.values():
            pair.close()

    def _new(self, op: str, seed: int) -> Pair:
        selection, request = self.selection, self.request

        def worker(name: str, folder: Path) -> WorkerProcess:
            facts = {**request.for_worker(selection.package, op, seed), "trusted": str(self.rule)}
            facts["apart"] = [str(selection.root)]  # It may be installed where the other revision is measured, too.
            return WorkerProcess(name, selection.python, folder, facts)

        return Pair(worker(f"{op} at {request.against}", self.then), worker(f"{op} as it is now", selection.root))


@contextmanager
def built(selection: Selection, request: ComparisonRequest) -> Iterator[Revisions]:
    """Builds both revisions.

    Raises:
        KernelgenError: there is no such revision, or a revision does not build.
    """
    root, trust = selection.root, request.trust or request.against
    with revision.checked_out(root, request.against) as (then, commit), trusted(root, trust) as rule:
        for op in selection.ops:
            revision.require_op(then, selection.package, op, request.against)
        revision.keep_only(then, selection.package, selection.ops)
        changes = changes_of_rule(rule, root, selection.package, selection.ops, trust)
        for folder in (then, root):
            revision.build(folder, selection.python, request.device)
        with closing(Revisions(selection, request, then, commit, rule, changes)) as revisions:
            yield revisions


def measure(
    selection: Selection,
    request: ComparisonRequest,
    thresholds: Thresholds,
    named: Sequence[str],
    show: Callable[[str, float], None] = lambda key, share: None,
) -> Comparison:
    """Builds both revisions and measures them.

    Args:
        named: the ops that were asked for by name, for the command that repeats the measurement.

    Raises:
        KernelgenError: as `built`; or nothing could be measured.
    """
    with built(selection, request) as revisions:
        return compare(revisions, thresholds, named, show)[0]


def compare(
    revisions: Revisions,
    thresholds: Thresholds,
    named: Sequence[str],
    show: Callable[[str, float], None] = lambda key, share: None,
    *,
    with_ceilings: bool = False,
) -> tuple[Comparison, PairedMeasurement]:
    """As `measure`, of revisions that are built; and what was measured."""
    request, selection = revisions.request, revisions.selection
    measurement = PairedMeasurement(
        selection.ops,
        revisions.start,
        f"{request.against} ({revisions.commit[:10]})",
        "the working tree",
        thresholds,
        seed=request.seed,
        backward=request.backward,
        blocks=request.blocks,
        limit_s=request.limit_s,
        with_ceilings=with_ceilings,
        show=show,
    )
    comparison = measurement.compare()
    comparison.notes = [*revisions.changes, *set_variables(measurement.environment), *comparison.notes]
    comparison.evidence = [
        software(measurement.environment),
        *interleaved(measurement.measured, measurement.schedule, measurement.pairs),
        f"Measured at {revisions.commit[:10]} and in the working tree by `{request.command(named)}`.",
    ]
    return comparison, measurement
