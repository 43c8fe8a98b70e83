"""Collects what a report shows: results of `kernelgen bench`, their history, profiles and tunings of one machine."""

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
# Versions of a baseline that its history shows.
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
    """What a report shows.

    Attributes:
        cases: the newest measurement of each case, by its key.
        newest: the results that hold the newest measurement, or the newest tuning where there are none: their
            environment is shown.
        ceilings: the machine's rates, each as it was measured last.
        history: each case's measurements, the oldest first.
        profiles: the newest of each case, by its key.
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
    """The material in some files.

    Raises:
        KernelgenError: one cannot be read, they are of different machines, or none holds a measurement.
    """
    files = [(str(path), results.read_as(KINDS, path)) for path in paths]
    (first_name, first), *others = files
    for name, content in others:
        machines = [results.machine(facts["environment"]) for facts in (first, content)]
        if machines[0] != machines[1]:
            raise KernelgenError(
                f"{first_name} was measured on {machines[0]}, {name} on {machines[1]}: a report is of one machine. "
                "Give the files of one."
            )
    return _sorted([content for _, content in files], [])


def from_project(root: Path) -> Material:
    """A project's baselines with their past, and the profiles and tunings in its build folder.

    If they are of several machines, those of the machine that was measured last are taken.

    Raises:
        KernelgenError: there is nothing to report, or a file cannot be read.
    """
    baselines = sorted((root / "baselines").glob("*/*.json"))
    tunings = sorted((root / "build" / "tune").glob("*/record.json"))
    contents = [results.read_as(KINDS, path) for path in [*baselines, *tunings]]
    if not contents:
        raise KernelgenError(
            f"There is nothing to report: {root / 'baselines'} holds no results. Run `kernelgen bench "
            "--save-baseline`, or give files of `kernelgen bench --out`."
        )
    machine = results.machine(max(contents, key=lambda content: content["created"])["environment"])
    others = sorted({results.machine(content["environment"]) for content in contents} - {machine})
    notes = [f"measurements of other machines were left out: {'; '.join(others)}"] if others else []
    for path in baselines:
        contents += _past(root, path)
    contents += [results.read_as(KINDS, path) for path in sorted((root / "build" / "profiles").glob("*.json"))]
    return _sorted([content for content in contents if results.machine(content["environment"]) == machine], notes)


def of_tuning(record: dict[str, Any]) -> Material:
    """The material in one record of `kernelgen tune`."""
    return _sorted([record], [])


def _past(root: Path, path: Path) -> list[results.Results]:
    """A file's older versions in git, except for those that are damaged or have another schema."""
    versions = []
    for _, text in revision.versions(root, path.relative_to(root), MOST_VERSIONS):
        try:
            content = json.loads(text)
        except ValueError:
            continue
        known = isinstance(content, dict) and KINDS.get(content.get("kind")) == content.get("version")
        if known and not (content["kind"] == results.KIND and results.damage(content)):
            versions.append(content)
    return versions


def _sorted(contents: list[dict[str, Any]], notes: list[str]) -> Material:
    """The newest of everything, and the history of every case."""
    by_time = sorted(contents, key=lambda content: content["created"])
    of_kind = {kind: [content for content in by_time if content["kind"] == kind] for kind in KINDS}
    runs, tunings = of_kind[results.KIND], of_kind[results.TUNING_KIND]
    measured = [run for run in runs if run["cases"]] or tunings
    if not measured:
        raise KernelgenError(
            "There is nothing to report: no file holds a case that was measured; give files of `kernelgen bench --out`."
        )
    newest = measured[-1]
    material = Material(results.machine(newest["environment"]), newest, notes=notes)
    for run in runs:
        _add_run(material, run)
    for profile in of_kind[profiler.KIND]:
        material.profiles[results.key(profile)] = profile
    for record in tunings:
        material.tunings[f"{record['op']} {record['asked']['backward']} {record['chip']}"] = record
    return material


def _add_run(material: Material, run: results.Results) -> None:
    if ceilings := run.get("ceilings"):
        rates = {**material.ceilings.get("matrix_flops_per_s", {}), **ceilings["matrix_flops_per_s"]}
        material.ceilings = {**ceilings, "matrix_flops_per_s": rates}
    for case in run["cases"]:
        key = results.key(case)
        material.cases[key] = case
        point, points = _point(run, case), material.history.setdefault(key, [])
        if not case["faults"] and point not in points:
            points.append(point)
    material.notes += [f"{case['op']} · {case['case']} failed: {case['reason']}" for case in run["failures"]]


def _point(run: results.Results, case: Case) -> Point:
    git = run["environment"].get("git") or {}
    name = (git.get("revision") or "")[:7] + ("+" if git.get("changed") else "")
    return Point(run["created"], name, tuple(case["functions"][OP]["median"]))
