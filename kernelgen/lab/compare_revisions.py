"""Compares the working tree of a project with an earlier revision, built aside, in one interleaved measurement."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.lab import compare
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.pair import Pair
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.selection import Selection
from kernelgen.lab.steady import steady_variables
from kernelgen.lab.trust import changes_of_rule, trusted
from kernelgen.lab.worker_process import WorkerProcess
from kernelgen.toolchain import revision


@dataclass(frozen=True)
class Request:
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


def measure(
    selection: Selection,
    request: Request,
    thresholds: Thresholds,
    named: Sequence[str],
    show: Callable[[str, float], None] = lambda key, share: None,
) -> Comparison:
    """Builds both revisions and measures them.

    Args:
        named: the ops that were asked for by name, for the command that repeats the measurement.

    Raises:
        KernelgenError: there is no such revision, a revision does not build, or nothing could be measured.
    """
    root, trust = selection.root, request.trust or request.against
    with revision.checked_out(root, request.against) as (then, commit), trusted(root, trust) as rule:
        for op in selection.ops:
            revision.require_op(then, selection.package, op, request.against)
        revision.keep_only(then, selection.package, selection.ops)
        notes = changes_of_rule(rule, root, selection.package, selection.ops, trust)
        for folder in (then, root):
            revision.build(folder, selection.python, request.device)

        def start(op: str, seed: int) -> Pair:
            def worker(name: str, folder: Path) -> WorkerProcess:
                facts = {**request.for_worker(selection.package, op, seed), "trusted": str(rule)}
                return WorkerProcess(name, selection.python, folder, facts)

            return Pair(worker(f"{op} at {request.against}", then), worker(f"{op} as it is now", root))

        measurement = PairedMeasurement(
            selection.ops,
            start,
            f"{request.against} ({commit[:10]})",
            "the working tree",
            thresholds,
            seed=request.seed,
            backward=request.backward,
            blocks=request.blocks,
            limit_s=request.limit_s,
            show=show,
        )
        comparison = measurement.compare()
    comparison.notes = [*notes, *comparison.notes]
    comparison.evidence = [
        compare.software(measurement.environment),
        *compare.interleaved(measurement.measured, measurement.schedule, measurement.pairs),
        f"Measured at {commit[:10]} and in the working tree by `{request.command(named)}`.",
    ]
    return comparison
