"""What a report is made of: results of `kernelgen bench`, their history, profiles and tunings, all of one machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.lab import results
from kernelgen.lab.ncu import profiler
from kernelgen.protocol import OP
from kernelgen.toolchain import revision

KINDS = {
    results.KIND: results.VERSION,
    profiler.KIND: profiler.VERSION,
    results.TUNING_KIND: results.TUNING_VERSION,
}
# Of a baseline's past, so many versions are shown.
MOST_VERSIONS = 30

Case = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One measurement of a case: when, of which revision, and the median's seconds with its interval."""

    created: str
    revision: str
    median: tuple[float, float, float]


@dataclass
class Material:
    """All that goes into a report.

    Attributes:
        cases: the newest measurement of each, by its key.
        newest: the results that hold the newest measurement, or the newest tuning where there are none: their
            environment is shown.
        ceilings: what the machine can do, each rate as it was measured last.
        history: each case's measurements, the oldest first.
        profiles: the newest of each case.
        tunings: the newest record of each op, direction and chip.
        notes: what was left out, and why.
    """

    machine: str
    newest: dict[str, Any]
    ceilings: dict[str, Any] = field(default_factory=dict)
    cases: dict[str, Case] = field(default_factory=dict)
    history: dict[str, list[Point]] = field(default_factory=dict)
    profiles: dict[str, profiler.Profile] = field(default_factory=dict)
    tunings: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ops(self) -> list[str]:
        return list(dict.fromkeys(case["op"] for case in self.cases.values()))

    def of_op(self, op: str) -> list[Case]:
        """Its cases whose results were right."""
        return [case for case in self.cases.values() if case["op"] == op and not case["faults"]]


def from_files(paths: Sequence[Path]) -> Material:
    """Of these files.

    Raises:
        KernelgenError: one cannot be read, they are of different machines, or none holds a measurement.
    """
    found = [(str(path), results.read_as(KINDS, path)) for path in paths]
    first, *others = found
    for name, one in others:
        machines = [results.machine(facts["environment"]) for facts in (first[1], one)]
        if machines[0] != machines[1]:
            raise KernelgenError(
                f"{first[0]} was measured on {machines[0]}, {name} on {machines[1]}: a report is of one machine. Give "
                "the files of one."
            )
    return _sorted_in(found, [])


def from_project(root: Path) -> Material:
    """Of a project's baselines with their past, and of the profiles and tunings that lie in its build folder.

    Where there are some of several machines, those of the machine that was measured last are taken.

    Raises:
        KernelgenError: there is nothing to report, or a file cannot be read.
    """
    baselines = sorted((root / "baselines").glob("*/*.json"))
    tunings = sorted((root / "build" / "tune").glob("*/record.json"))
    found = [(str(path.relative_to(root)), results.read_as(KINDS, path)) for path in [*baselines, *tunings]]
    if not found:
        raise KernelgenError(
            f"There is nothing to report: {root / 'baselines'} holds no results. Run `kernelgen bench "
            "--save-baseline`, or give files of `kernelgen bench --out`."
        )
    machine = results.machine(max((one for _, one in found), key=lambda one: one["created"])["environment"])
    others = sorted({results.machine(one["environment"]) for _, one in found} - {machine})
    notes = [f"measurements of other machines were left out: {'; '.join(others)}"] if others else []
    for path in baselines:
        found += _past(root, path)
    profiles = sorted((root / "build" / "profiles").glob("*.json"))
    found += [(str(path.relative_to(root)), results.read_as(KINDS, path)) for path in profiles]
    return _sorted_in([(name, one) for name, one in found if results.machine(one["environment"]) == machine], notes)


def of_tuning(record: dict[str, Any]) -> Material:
    """Of one record of `kernelgen tune`."""
    return _sorted_in([("", record)], [])


def _past(root: Path, path: Path) -> list[tuple[str, results.Results]]:
    """A file's older versions in git; those of another schema are passed over."""
    found = []
    for commit, text in revision.versions(root, path.relative_to(root), MOST_VERSIONS):
        try:
            one = json.loads(text)
        except ValueError:
            continue
        if isinstance(one, dict) and KINDS.get(one.get("kind")) == one.get("version"):
            found.append((f"{path.name} at {commit[:10]}", one))
    return found


def _sorted_in(found: list[tuple[str, dict[str, Any]]], notes: list[str]) -> Material:
    """The newest of everything, and the past of every case."""
    of_kind = {
        kind: sorted((one for _, one in found if one["kind"] == kind), key=lambda one: one["created"]) for kind in KINDS
    }
    runs, tunings = of_kind[results.KIND], of_kind[results.TUNING_KIND]
    measured = [run for run in runs if run["cases"]] or tunings
    if not measured:
        raise KernelgenError("There is nothing to report: no file holds a case that `kernelgen bench` measured.")
    newest = measured[-1]
    made = Material(results.machine(newest["environment"]), newest, notes=notes)
    for run in runs:
        if top := run.get("ceilings"):
            rates = {**made.ceilings.get("matrix_flops_per_s", {}), **top["matrix_flops_per_s"]}
            made.ceilings = {**top, "matrix_flops_per_s": rates}
        for case in run["cases"]:
            key = results.key(case)
            made.cases[key] = case
            point = _point(run, case)
            points = made.history.setdefault(key, [])
            if not case["faults"] and point not in points:
                points.append(point)
        made.notes += [f"{part['op']} · {part['case']} failed: {part['reason']}" for part in run["failures"]]
    for one in of_kind[profiler.KIND]:
        made.profiles[results.key(one)] = one
    for one in tunings:
        made.tunings[f"{one['op']} {one['asked']['backward']} {one['chip']}"] = one
    return made


def _point(run: results.Results, case: Case) -> Point:
    revision = run["environment"].get("git") or {}
    name = (revision.get("revision") or "")[:7] + ("+" if revision.get("changed") else "")
    return Point(run["created"], name, tuple(case["functions"][OP]["median"]))
