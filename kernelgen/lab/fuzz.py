"""Fuzzes ops and collects what fails: `kernelgen fuzz`, from its request to its report."""

import json
import random
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelgen.cores import usable_cores
from kernelgen.errors import LabError
from kernelgen.lab import proven, worker_process
from kernelgen.lab.selection import Selection
from kernelgen.lab.trust import changes_of_rule, trusted

# The judge and the op work at once: a thread of OpenMP that waits leaves its core to the other process.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}

# On a GPU all workers share its memory.
_MOST_PARTS = 3

Event = dict[str, Any]


@dataclass
class OpReport:
    """The outcome of one op.

    Attributes:
        too_large: cases that did not fit this GPU's memory.
        skipped: why it was not run, or not all of it; `note`: why cases were left out.
        failures: by case, as JSON: the check that failed, a sentence, and the smallest case that fails.
        errors: by result, the largest error in units of what is allowed, and its case; of the cases that passed.
        planned: by part, how many cases there are to be, None where time decides; and how many without any option.
        shrinking: whether a failing case is being made smaller.
    """

    name: str
    passed: int = 0
    too_large: int = 0
    skipped: str | None = None
    note: str | None = None
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    shrinking: bool = False

    @property
    def problem(self) -> str | None:
        """Why nothing could be run."""
        if not self.skipped and self.too_large and not self.cases:
            return "every case was too large for this GPU's memory"
        return self.skipped

    @property
    def cases(self) -> int:
        return self.passed + len(self.failures)

    @property
    def cases_planned(self) -> int | None:
        """How many there are to be; None where time decides."""
        cases = [planned for planned, _ in self.planned.values()]
        return None if None in cases or not cases else sum(cases)

    @property
    def cases_by_default(self) -> int:
        return sum(default for _, default in self.planned.values())

    def add(self, event: Event) -> None:
        kind = event["event"]
        self.shrinking = kind == "shrinking" or (self.shrinking and bool(event.get("shrinking")))
        if kind == "planned":
            self.planned[event["part"]] = event["cases"], event["default"]
        elif kind == "passed":
            self.passed += 1
            self._add_errors(event["errors"], event["case"])
        elif kind == "too large":
            self.too_large += 1
        elif kind in ("failure", "shrunk"):
            self.failures[event["case"]] = {
                "check": event["check"],
                "text": event["text"],
                "case": json.loads(event.get("shrunk", event["case"])),
                "shrunk": kind == "shrunk",
            }
        elif kind == "lost":
            facts = {"check": "crash", "text": f"it {event['reason']}", "case": json.loads(event["case"])}
            self.failures[event["case"]] = {**facts, "shrunk": False}
        elif kind == "skipped":
            self.skipped = event["message"]
        elif kind == "given up":
            self.note = event["reason"]

    def _add_errors(self, errors: dict[str, float], case: str) -> None:
        for name, error in errors.items():
            if name not in self.errors or error > self.errors[name]["error"]:
                self.errors[name] = {"error": error, "case": json.loads(case)}


@dataclass
class FuzzReport:
    """The outcome of all ops.

    Args:
        named: the ops that were asked for by name: the run fails if one of them cannot be run.
        name: of the device, as proofs are recorded under it.
        options: `--device` and the like, for the commands that repeat a failure.
        sizes: how large the drawn cases are, in words, where a device bounds them.
        notes: how the rule that judged differs from the files as they are, and what could not be recorded.
    """

    ops: dict[str, OpReport]
    seed: int
    named: Sequence[str] = ()
    options: Sequence[str] = ()
    device: str = "?"
    name: str = "?"
    sizes: str | None = None
    notes: list[str] = field(default_factory=list)
    finished: bool = True

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a case failed, 2 nothing could be run, 130 interrupted."""
        if not self.finished:
            return 130
        if any(op.failures for op in self.ops.values()):
            return 1
        unable = [op.name for op in self.ops.values() if op.problem]
        return LabError.exit_code if len(unable) == len(self.ops) or set(unable) & set(self.named) else 0

    def add(self, event: Event) -> None:
        if event["event"] == "device":
            self.device, self.name, self.sizes = event["device"], event["name"], event["sizes"]
        elif event["op"] in self.ops:
            self.ops[event["op"]].add(event)

    def as_dict(self) -> dict[str, Any]:
        facts = {"seed": self.seed, "device": self.device, "sizes": self.sizes, "interrupted": not self.finished}
        return {**facts, "notes": self.notes, "ops": [self._op_as_dict(op) for op in self.ops.values()]}

    def _op_as_dict(self, op: OpReport) -> dict[str, Any]:
        failures = [{**failure, "command": self._command(op.name, failure)} for failure in op.failures.values()]
        facts = {"op": op.name, "cases": op.cases, "passed": op.passed, "too_large": op.too_large}
        return {**facts, "failures": failures, "errors": op.errors, "skipped": op.problem, "note": op.note}

    def _command(self, op: str, failure: dict[str, Any]) -> str:
        words = ["kernelgen", "fuzz", op, "--seed", str(self.seed), "--case", json.dumps(failure["case"])]
        return shlex.join([*words, *self.options])


def fuzz(
    selection: Selection,
    named: Sequence[str],
    *,
    seed: int | None,
    seconds: float | None,
    limit_s: float,
    device: str | None,
    gpu: str | None = None,
    perturb: int | None = None,
    trust: str | None = None,
    variables: Mapping[str, str] | None = None,
    show: Callable[[str, int, int | None], None] = lambda text, cases, planned: None,
    tell: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> FuzzReport:
    """Fuzzes ops; Ctrl-C ends it early, and what failed before is kept.

    Args:
        named: the ops that were asked for by name.
        seed: of cases and values; None: another seed each time.
        seconds: go on drawing cases for so long, for all ops.
        limit_s: how long a case may take before it counts as hung.
        gpu: which GPU is emulated.
        perturb: the seed of a perturbed build.
        trust: the revision that lab.py and the reference are taken from; None: as they are now.
        variables: what a worker needs in its environment to run the build of an emulated GPU, or a perturbed one.
        show: is told what is fuzzed, how many cases are done, and how many there are.
        tell: is told what takes long.
        options: the rest of the request, as worker/fuzz.py has it.
    """
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    chosen = _words({"--device": device, "--gpu": gpu, "--perturb": perturb, "--trust": trust})
    report = FuzzReport({name: OpReport(name) for name in selection.ops}, seed, named, chosen, device or "?")
    facts = {
        "seed": seed,
        "deadline": None if seconds is None else time.time() + seconds,
        "device": device,
        "gpu": gpu,
        "environment": {**ENVIRONMENT, **(variables or {})},
    }
    with trusted(selection.root, trust) as rule:
        if trust:
            report.notes += changes_of_rule(rule, selection.root, selection.package, selection.ops, trust)
        request = selection.request("fuzz", trusted=str(rule), **facts, **options)
        requests = _in_parts(request, 1 if options.get("case") is not None or variables else _most_parts())
        listener = _listener(report, show, tell)
        report.finished = worker_process.run_at_once(selection.python, requests, listener, limit_s)
    if report.finished and all(options.get(name) is None for name in ("case", "dtype")):
        _record_proofs(selection, report, by_default=seconds is None and not options.get("count"))
    return report


def _words(options: Mapping[str, Any]) -> list[str]:
    """The options that were given, as words of a command."""
    return [word for name, value in options.items() if value not in (None, "") for word in (name, str(value))]


def _listener(
    report: FuzzReport, show: Callable[[str, int, int | None], None], tell: Callable[[str], None]
) -> Callable[[Event], None]:
    """What adds the workers' events to the report, and says how far they are."""

    def on_event(event: Event) -> None:
        report.add(event)
        if event["event"] == "shrinking":
            text = f"{event['op']}: {event['check']} is wrong; looking for a smaller case"
            tell(f"{text}, for {event['seconds']:g} s at most")
        if op := report.ops.get(event.get("op", "")):
            show(f"{'shrinking a case of' if op.shrinking else 'fuzzing'} {op.name}", op.cases, op.cases_planned)

    return on_event


def _most_parts() -> int:
    """How many workers can share the cases: each has a judge and an op, which take turns to some extent."""
    return max(1, min(_MOST_PARTS, usable_cores() // 4))


def _in_parts(request: dict[str, Any], parts: int) -> list[dict[str, Any]]:
    """The requests of so many workers that share the cases."""
    environment = dict(request["environment"])
    if parts > 1:  # Else each part would start as many threads as there are cores.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // parts)))
    return [{**request, "environment": environment, "part": (number, parts)} for number in range(parts)]


def _record_proofs(selection: Selection, report: FuzzReport, *, by_default: bool) -> None:
    """Records the ops of which as many cases passed as are run by default, or all that a domain has."""
    for op in report.ops.values():
        is_whole = by_default or op.cases >= op.cases_by_default
        if op.passed and is_whole and not (op.failures or op.problem or op.note):
            try:
                proven.record(selection.root, selection.package, op.name, report.name, op.passed, report.seed)
            except OSError as error:  # A full disk, or a project that may not be written: the result stands.
                report.notes.append(f"`kernelgen list` will not show it: {error.strerror}: {error.filename}")
                return
