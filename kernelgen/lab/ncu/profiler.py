"""Profiles a case from outside: torch's profiler first, then Nsight Compute where it can; and keeps what came of it.

A profile is one JSON object: {"kind", "version", "created", "kernelgen", "environment", "op", "case", "sizes", "dtype",
"backward", "bytes", "flops", "ceilings", "times": {"calls", "rows"}, "kernels": […], "reason"}. `times` are torch's;
`kernels` hold the counters (see `figures.Kernel`) and what they say; `reason` is why there are none, or null.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import results, worker_process
from kernelgen.lab.ncu import advice, figures, runner
from kernelgen.lab.steady import steady_variables

KIND = "kernelgen profile"
# Raised whenever a reader of the older form would misread the newer one.
VERSION = 1

# torch's profiler complains on standard error where there is no GPU.
_QUIET = {"KINETO_LOG_LEVEL": "9"}

Profile = dict[str, Any]
# What the kernels of one call have to share the least bytes of: one of them does nearly all of the work, or none.
_ALONE = 0.8


class FailedError(KernelgenError):
    """The op failed, crashed or hung while it was profiled; the exit code is that of wrong results."""


@dataclass
class Profiler:
    """What profiles a project's op.

    Args:
        request: to `lab.profile`: package, op, case, dtype, backward, tf32, device, seed.
        folder: where the report, the CSV and the JSON go.
        limit_s: how long the process may say nothing before it counts as hung.
        tell: is told what happens now.
    """

    python: Path
    root: Path
    request: dict[str, Any]
    folder: Path
    limit_s: float = 300.0
    tell: Callable[[str], None] = lambda text: None
    written: list[Path] = field(default_factory=list)

    def run(self) -> Profile:
        """The profile, saved.

        Raises:
            LabError: nothing could be run.
            FailedError: the op failed, crashed or hung.
            KeyboardInterrupt: Ctrl-C.
        """
        self.tell("timing kernels")
        found = self._times()
        stem = self.folder / name_of(found)
        found["reason"] = self._why_not(found) or self._counters(found, stem)
        results.write(found, stem.with_suffix(".json"))
        self.written.append(stem.with_suffix(".json"))
        return found

    def _times(self) -> Profile:
        """By torch's profiler."""
        found: Profile = {**results.heading(KIND, VERSION), "kernels": []}

        def on_event(event: dict[str, Any]) -> None:
            facts = dict(event)
            kind = facts.pop("event")
            if kind == "case":
                found.update(facts)
            elif kind in ("environment", "times", "ceilings"):
                found[kind] = facts
            else:
                _raise_failures(event)

        self._follow({"counters": False}, on_event)
        return found

    def _follow(self, more: dict[str, Any], on_event: Callable[[dict[str, Any]], None], under: Any = ()) -> None:
        environment = {**steady_variables(), **_QUIET}
        request = {"work": "profile", "project": str(self.root), "environment": environment, **self.request, **more}
        if not worker_process.run(self.python, request, on_event, self.limit_s, under):
            raise KeyboardInterrupt

    def _why_not(self, found: Profile) -> str | None:
        """Why Nsight Compute is not even tried."""
        if found["environment"]["device"] != "cuda":
            return "counters are read on a GPU alone, and this ran on the CPU"
        if runner.find() is None:
            return (
                "Nsight Compute was not found: put its `ncu` on PATH; it comes with the CUDA toolkit, and as the "
                "package nsight-compute of NVIDIA's repositories"
            )
        return None

    def _counters(self, found: Profile, stem: Path) -> str | None:
        """Fills in `kernels`, by Nsight Compute; returns why it could not."""
        self.tell("reading counters")
        tool, report, log = runner.find(), stem.with_suffix(".ncu-rep"), stem.with_suffix(".log")
        stem.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        under = runner.command(tool, report, log, figures.resolve(runner.available(tool)))
        same = {name: found[name] for name in ("case", "dtype")} | {"device": "cuda"}
        try:
            self._follow({"counters": True, **same}, lambda event: _raise_failures(event, log), under)
            text = runner.export(tool, report)
        except LabError as error:
            # The same case ran without ncu just before, so this is not the op's doing.
            return _said(log) or str(error).rstrip(".")
        finally:
            problem = _said(log)
            log.unlink(missing_ok=True)
        launches = runner.read(text)
        if not launches:
            return problem or "ncu wrote no report"
        stem.with_suffix(".csv").write_text(text, encoding="utf-8")
        self.written += [report, stem.with_suffix(".csv")]
        found["kernels"] = described(launches, found)
        return None


def _raise_failures(event: dict[str, Any], log: Path | None = None) -> None:
    if event["event"] == "failed":
        raise FailedError(f"{event['op']} · {event['case']} failed: {event['reason']}.")
    if event["event"] == "lost":
        if log and (said := _said(log)):
            raise LabError(said)
        under = " under Nsight Compute" if log else ""
        raise FailedError(f"{event['op']} · {event['case']}{under}: the process {event['reason']}.")


def _said(log: Path) -> str | None:
    return runner.problem(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else None


def described(launches: list[runner.Launch], found: Profile) -> list[dict[str, Any]]:
    """The launches of one call as JSON, each with the share of the time that it took and what it says."""
    kernels = [figures.kernel(launch) for launch in launches]
    whole = sum(one.seconds for one in kernels) or 1.0
    said = []
    for one in kernels:
        share = one.seconds / whole
        least = found.get("bytes") if share >= _ALONE else None
        said.append({**one.as_dict(), "share": share, "least": least, "says": advice.says(one, least)})
    return said


def as_kernel(facts: dict[str, Any]) -> figures.Kernel:
    """The kernel in a part of a profile's `kernels`."""
    own = {key: value for key, value in facts.items() if key not in ("share", "least", "says")}
    return figures.Kernel(**own)


def name_of(found: Profile) -> str:
    """What a profile's files are called."""
    words = [found["op"], found["case"], found["dtype"], *["backward"] * bool(found["backward"])]
    return "-".join(re.sub(r"[^a-z0-9_]+", "-", word.lower()).strip("-") for word in words)


def read(path: Path) -> Profile:
    """A profile from a file.

    Raises:
        KernelgenError: there is no such file, it holds something else, or a profile of another version.
    """
    return results.read_as({KIND: VERSION}, path)


def heaviest(found: Profile) -> dict[str, Any] | None:
    """The kernel that takes the most time."""
    return max(found["kernels"], key=lambda one: one["seconds"], default=None)


def seconds(found: Profile) -> float:
    """A call's time on the device, all kernels together: by the counters where there are any, else by torch."""
    parts = found["kernels"] or found["times"]["rows"]
    return sum(part["seconds"] for part in parts)


def check_comparable(before: Profile, name: str, now: Profile) -> None:
    """Makes sure that two profiles speak of one case on one machine.

    Raises:
        KernelgenError: they do not; the message says what differs.
    """
    machines = [results.machine(found["environment"]) for found in (before, now)]
    if machines[0] != machines[1]:
        raise KernelgenError(
            f"{name} was taken on {machines[0]}, and this is {machines[1]}: figures of different machines say "
            "nothing of the code. Profile both on one, or use `--against REV`."
        )
    cases = [results.key(found) for found in (before, now)]
    if cases[0] != cases[1]:
        raise KernelgenError(f"{name} is of {cases[0]}, and this is {cases[1]}; choose that case with --case.")


def to_json(found: Profile, before: Profile | None = None) -> str:
    return json.dumps(found | ({"before": before} if before else {}))
