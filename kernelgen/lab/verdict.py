"""One answer about one op: does it build, is it right, is it faster?

The steps are those of the other verbs, in the order in which a failure makes the rest pointless: build, fuzz, the op's
own tests, and last the time, as `compare --against` or `bench` measures it. What takes no times runs at once: fuzz, the
tests, and the build of the other revision and the start of its processes.
"""

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import bench, compare, compare_revisions, trusted_tests
from kernelgen.lab.compare import Comparison, Thresholds
from kernelgen.lab.fuzz import FuzzReport, fuzz
from kernelgen.lab.pair import PairedResult
from kernelgen.lab.paired_measurement import PairedMeasurement
from kernelgen.lab.selection import Selection
from kernelgen.lab.trust import WORKING_TREE, trusted
from kernelgen.protocol import OP
from kernelgen.toolchain import current
from kernelgen.toolchain.build import Build, environment

PASSED, FAILED, OPEN = "passed", "failed", "open"
# Enough for a share of the ceilings. Whether an op is faster, blocks of a comparison say.
BENCH_SAMPLES = 30
MOST_NAMED = 3
_CONFINED = (
    "import sys; sys.path[0] = sys.argv[1]; from pathlib import Path; "
    "from kernelgen.worker.confinement import confine; "
    "sys.platform == 'linux' and confine(Path(sys.argv[2])); sys.path[0] = ''; import importlib.util, os, pytest; "
    "more = ['-n', '4'] if (os.cpu_count() or 1) >= 8 and importlib.util.find_spec('xdist') else []; "
    "sys.exit(pytest.main(sys.argv[3:] + more))"
)
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


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


@dataclass
class Step:
    """A step's outcome, in a sentence, and its facts for --json. It is open where nothing was shown either way."""

    name: str
    outcome: str
    text: str
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        known = {"name": self.name, "outcome": self.outcome, "text": self.text, "seconds": round(self.seconds, 1)}
        return {**known, **self.facts}


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
                outcome = FAILED if name == "build" else OPEN
                done = Step(name, outcome, str(error), facts=error.details)
            done.seconds = time.monotonic() - began
            verdict.steps.append(done)
            if done.outcome == FAILED:
                break
    verdict.seconds = time.monotonic() - start
    return verdict


def _steps(selection: Selection, request: Request) -> Iterator[tuple[str, Callable[[], Step]]]:
    yield "build", lambda: _build(selection, request)
    with ExitStack() as stack:
        rival = stack.enter_context(_Rival(selection, request)) if request.against else None
        with _TestRun(selection, request.trust or request.against) as tests:
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
    return _step_of_fuzz(report)


def _step_of_fuzz(report: FuzzReport) -> Step:
    (op,) = report.as_dict()["ops"]
    facts = {"device": report.device, "fuzz": op}
    if op["failures"]:
        first = op["failures"][0]
        text = f"{op['cases'] - op['passed']} of {op['cases']} cases failed on {report.device}: "
        return Step("fuzz", FAILED, f"{text}{first['check']}: {first['text']}\n{first['command']}", facts=facts)
    if op["skipped"]:
        return Step("fuzz", OPEN, op["skipped"], facts=facts)
    return Step("fuzz", PASSED, f"{op['cases']} cases passed on {report.device} (seed {report.seed})", facts=facts)


class _TestRun:
    """The tests in the op's folder, which run in a process of their own until the context ends; those of the revision
    `trust`, if there is one. They run code of the op beside its judge: like the op's process they can write to scratch
    and caches alone, where Linux can refuse it."""

    def __init__(self, selection: Selection, trust: str | None = None) -> None:
        self._selection, self._trust, self._stack = selection, trust, ExitStack()
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._file, self._output = self._scratch / "tests.xml", self._scratch / "output.txt"
        self._changed: list[str] = []
        root = selection.root
        if trust not in (None, WORKING_TREE):
            root = self._linked(self._stack.enter_context(trusted(selection.root, trust)))
        folder = root / "src" / selection.package / "ops" / selection.ops[0]
        command = [str(selection.python), "-c", _CONFINED, str(_PACKAGE_PARENT), str(self._scratch)]
        command += ["-q", "--no-build", "-p", "no:cacheprovider", f"--junitxml={self._file}", str(folder)]
        scratch = dict.fromkeys(("TMPDIR", "HYPOTHESIS_STORAGE_DIRECTORY"), str(self._scratch))
        variables = {**os.environ, **scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        with self._output.open("w") as output:
            self._process = subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT, env=variables)

    def _linked(self, rule: Path) -> Path:
        """The project with the tests of a rule; its changes since are noted."""
        root, package, op = self._selection.root, self._selection.package, self._selection.ops[0]
        folder = self._scratch / "project"
        folder.mkdir()
        trusted_tests.link(folder, root, rule, package, op)
        self._changed = trusted_tests.changes(root, rule, package, op)
        return folder

    def __enter__(self) -> "_TestRun":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._stack.close()

    def step(self) -> Step:
        """Waits for them."""
        self._process.wait()
        if not self._file.is_file():
            last = self._output.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
            return Step("tests", OPEN, f"pytest did not run: {last[0]}")
        step = _step_of_tests(ElementTree.parse(self._file).getroot())
        if self._changed:
            more = f" and {len(self._changed) - MOST_NAMED} more" if len(self._changed) > MOST_NAMED else ""
            step.text += (
                f"; these are the tests of {self._trust}: {', '.join(self._changed[:MOST_NAMED])}{more} changed"
            )
        return step


def _step_of_tests(root: ElementTree.Element) -> Step:
    cases = list(root.iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    counts = {
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": [c.get("name") for c in failed],
    }
    if failed:
        names = ", ".join(str(case.get("name")) for case in failed[:MOST_NAMED])
        more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        reason = next((str(part.get("message")) for part in failed[0] if part.get("message")), "")
        text = f"{len(failed)} of {len(cases)} failed: {names}{more}"
        first = reason.strip().splitlines()[:1]
        return Step("tests", FAILED, "\n".join([text, *first]), facts=counts)
    if not counts["passed"]:
        return Step("tests", OPEN, f"no test ran; {skipped} were skipped", facts=counts)
    return Step("tests", PASSED, f"{counts['passed']} passed, {skipped} skipped", facts=counts)


# ---- Faster? --------------------------------------------------------------------------------------------------


def _share(selection: Selection, request: Request) -> Step:
    """How much of this machine's ceilings each case reaches; it refutes only results that are wrong."""
    options = {"device": request.device, "cases": request.cases, "dtype": None, "peers": [], "backward": False}
    trust = request.trust or request.against
    run = bench.measure(
        selection, request.limit_s, trust=trust, tf32=False, seed=request.seed, samples=BENCH_SAMPLES, **options
    )
    faults = [fault for case in run.results["cases"] for fault in case["faults"]]
    faults += [f"{case['case']}: {case['reason']}" for case in run.results["failures"]]
    return _step_of_share([_figures(case) for case in run.results["cases"]], faults, run.results["notes"])


def _step_of_share(figures: list[dict[str, Any]], faults: list[str], notes: list[str]) -> Step:
    facts = {"cases": figures}
    if faults:
        return Step("share", FAILED, "; ".join(dict.fromkeys(faults)), facts=facts)
    if not figures:
        return Step("share", OPEN, "; ".join(notes) or "no case was measured", facts=facts)
    shares = [case["share"] for case in figures if case["share"]]
    if not shares:
        return Step("share", PASSED, f"{len(figures)} cases measured; lab.py counts no bytes", facts=facts)
    text = f"{min(shares):.0%} to {max(shares):.0%} of what a copy or a matrix product does here"
    return Step("share", PASSED, f"{text}, {len(shares)} cases", facts=facts)


def _figures(case: Mapping[str, Any]) -> dict[str, Any]:
    op = case["functions"][OP]
    share = max((op.get(name) or 0 for name in ("copy_fraction", "matrix_fraction")), default=0)
    return {"case": case["case"], "dtype": case["dtype"], "seconds": op["median"], "share": share or None}


def _figures_of(result: PairedResult, rates: Mapping[str, Any]) -> dict[str, Any]:
    fractions = bench.fractions(result.after, result.bytes, result.flops, result.dtype, rates)
    share = max((fraction for fraction in fractions.values() if fraction), default=None)
    return {"case": result.case, "dtype": result.dtype, "seconds": [result.after], "share": share}


def _beyond(result: PairedResult, rates: Mapping[str, Any]) -> str | None:
    """A sentence if it was faster than this machine is."""
    fractions = bench.fractions(result.after, result.bytes, result.flops, result.dtype, rates)
    method = {end["method"] for end in result.about.values()}.pop()
    return bench.beyond_ceilings(
        {"median": [result.after], **fractions}, {"method": method, "bytes": result.bytes}, rates
    )


class _Rival:
    """The other revision, which is checked out, built and loaded beside whatever runs until `step` measures it."""

    def __init__(self, selection: Selection, request: Request) -> None:
        names = ("against", "trust", "device", "cases", "seed", "blocks", "limit_s")
        self._selection, self._against = selection, request.against
        self._asked = compare_revisions.Request(**{name: getattr(request, name) for name in names})
        self._stack = ExitStack()
        self._measured: PairedMeasurement | None = None

    def __enter__(self) -> "_Rival":
        self._pool = ThreadPoolExecutor(1)
        self._loading = self._pool.submit(self._load)
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        self._stack.close()

    def _load(self) -> compare_revisions.Revisions:
        revisions = self._stack.enter_context(compare_revisions.built(self._selection, self._asked))
        revisions.load(self._selection.ops[0])
        return revisions

    def step(self) -> Step:
        revisions, ops = self._loading.result(), self._selection.ops
        comparison, self._measured = compare_revisions.compare(revisions, Thresholds(), ops, with_ceilings=True)
        return _step_of_comparison(comparison, self._against)

    def share(self) -> Step:
        """The share of the ceilings that the op reached while it was compared."""
        if not self._measured:
            return Step("share", OPEN, "nothing was measured")
        rates = self._measured.ceilings
        figures = [_figures_of(result, rates) for result in self._measured.measured]
        faults = [text for result in self._measured.measured if (text := _beyond(result, rates))]
        return _step_of_share(figures, faults, [])


def _step_of_comparison(comparison: Comparison, against: str) -> Step:
    verdicts = [verdict.verdict for verdict in comparison.verdicts]
    counts = {word: verdicts.count(word) for word in dict.fromkeys(verdicts)}
    text = f"against {against}: {', '.join(f'{word} in {count}' for word, count in counts.items())}"
    facts = {"faster": compare.IMPROVEMENT in verdicts, "comparison": comparison.as_dict()}
    if comparison.exit_code == compare.EXIT_REGRESSED:
        return Step("compare", FAILED, text, facts=facts)
    is_shown = bool(verdicts) and compare.INCONCLUSIVE not in verdicts
    return Step("compare", PASSED if is_shown else OPEN, text, facts=facts)
