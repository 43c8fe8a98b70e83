"""One answer about one op: does it build, is it right, is it faster?

The steps are those of the other verbs, in the order in which a failure makes the rest pointless: build, fuzz, the op's
own tests, and last the time, as `compare --against` or `bench` measures it. What takes no times runs at once: fuzz, the
tests, and the build of the other revision and the start of its processes.
"""

import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError, LabError, MachineError
from kernelgen.lab import bench, compare_revisions, share
from kernelgen.lab.fuzz import FuzzReport, fuzz
from kernelgen.lab.op_tests import OpTests
from kernelgen.lab.rival import Rival
from kernelgen.lab.selection import Selection
from kernelgen.lab.step import FAILED, OPEN, PASSED, Step
from kernelgen.toolchain import current
from kernelgen.toolchain.build import Build, environment

# Enough for a share of the ceilings. Whether an op is faster, blocks of a comparison say.
BENCH_SAMPLES = 30
# A disk with fewer free bytes is full: what a compiler writes for a source is larger.
LEAST_ROOM = 2**20


@dataclass(frozen=True)
class Request:
    """What is asked: the options of `kernelgen verdict`. A `seed` that an op knew beforehand could be prepared for."""

    against: str | None = None
    trust: str | None = None
    device: str | None = None
    cases: list[str] | None = None
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))
    blocks: int | None = None
    limit_s: float = 120.0

    def of_comparison(self) -> compare_revisions.ComparisonRequest:
        names = ("against", "trust", "device", "cases", "seed", "blocks", "limit_s")
        return compare_revisions.ComparisonRequest(**{name: getattr(self, name) for name in names})


@dataclass
class Verdict:
    """The steps of one op, in their order; after one that failed, the rest did not run."""

    op: str
    request: Request
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 right and, against a revision, no slower; 1 refuted; 2 something was not shown."""
        outcomes = {step.outcome for step in self.steps}
        return 1 if FAILED in outcomes else LabError.exit_code if OPEN in outcomes else 0

    def as_dict(self) -> dict[str, Any]:
        facts = {"op": self.op, "against": self.request.against, "trust": self.request.trust, "seed": self.request.seed}
        facts |= {"exit_code": self.exit_code, "seconds": round(self.seconds, 1)}
        return {**facts, "steps": [s.as_dict() for s in self.steps]}


def judge(selection: Selection, request: Request, tell: Callable[[str], None] = lambda step: None) -> Verdict:
    """The verdict on the one op of a selection; `tell` hears the name of each step as it begins."""
    verdict, start = Verdict(selection.ops[0], request), time.monotonic()
    with closing(_steps(selection, request)) as steps:
        for name, step in steps:
            tell(name)
            began = time.monotonic()
            try:
                done = step()
            except KernelgenError as error:
                is_of_machine = isinstance(error, MachineError) or _is_for_want_of_room(error, selection.root)
                refutes = name == "build" and not is_of_machine
                outcome = FAILED if refutes else OPEN
                done = Step(name, outcome, str(error), facts=error.details)
            done.seconds = time.monotonic() - began
            verdict.steps.append(done)
            if done.outcome == FAILED or (name == "build" and done.outcome == OPEN):
                break
    verdict.seconds = time.monotonic() - start
    return verdict


def _is_for_want_of_room(error: KernelgenError, root: Path) -> bool:
    """Whether a build failed since a disk is full, which says nothing of the op. Not every compiler says so."""
    folders = (root, Path(tempfile.gettempdir()))
    is_full = any(shutil.disk_usage(folder).free < LEAST_ROOM for folder in folders)
    return is_full or os.strerror(errno.ENOSPC) in f"{error} {error.details}"


def _steps(selection: Selection, request: Request) -> Iterator[tuple[str, Callable[[], Step]]]:
    yield "build", lambda: _build(selection, request)
    with ExitStack() as stack:
        rival = stack.enter_context(Rival(selection, request.of_comparison())) if request.against else None
        with OpTests(selection, request.trust or request.against) as tests:
            yield "fuzz", lambda: _fuzz(selection, request)
            yield "tests", tests.step
        if rival:
            yield "compare", rival.step
            yield "share", rival.share
        else:
            yield "share", lambda: _share(selection, request)


# ---- Right? ---------------------------------------------------------------------------------------------------


def _build(selection: Selection, request: Request) -> Step:
    stale = current.reason(selection.root, selection.python, request.device)
    build = Build(selection.root, environment(), selection.python)
    outcome = build.run(quiet=True, backend=current.backend(request.device))
    return Step("build", PASSED, f"{f'{stale}: ' if stale else ''}{outcome}", facts={"stale": stale or None})


def _fuzz(selection: Selection, request: Request) -> Step:
    options = {"device": request.device, "trust": request.trust or request.against}
    report = fuzz(selection, selection.ops, seed=request.seed, seconds=None, limit_s=request.limit_s, **options)
    _end_if_interrupted(report.finished)
    return _step_of_fuzz(report)


def _end_if_interrupted(finished: bool) -> None:
    """Fuzz and bench keep what they have at Ctrl-C; a verdict on a part of the cases would be none."""
    if not finished:
        raise KeyboardInterrupt


def _step_of_fuzz(report: FuzzReport) -> Step:
    (op,) = report.as_dict()["ops"]
    facts = {"device": report.device, "fuzz": op}
    if op["failures"]:
        first = op["failures"][0]
        text = f"{op['cases'] - op['passed']} of {op['cases']} cases failed on {report.device}: "
        return Step("fuzz", FAILED, f"{text}{first['check']}: {first['text']}\n{first['command']}", facts=facts)
    if op["skipped"] or not op["cases"]:
        return Step("fuzz", OPEN, op["skipped"] or "no case ran", facts=facts)
    return Step("fuzz", PASSED, f"{op['cases']} cases passed on {report.device} (seed {report.seed})", facts=facts)


# ---- Faster? --------------------------------------------------------------------------------------------------


def _share(selection: Selection, request: Request) -> Step:
    """How much of this machine's ceilings each case reaches; it refutes only results that are wrong."""
    options = {"device": request.device, "cases": request.cases, "dtype": None, "peers": [], "backward": False}
    trust = request.trust or request.against
    run = bench.measure(
        selection, request.limit_s, trust=trust, tf32=False, seed=request.seed, samples=BENCH_SAMPLES, **options
    )
    _end_if_interrupted(run.finished)
    return share.of_bench(run)
