"""Profiles a case: by torch's profiler, then by Nsight Compute where that can run; and keeps the profile.

A profile is one JSON object: {"kind", "version", "created", "kernelgen", "environment", "op", "case", "sizes", "dtype",
"backward", "bytes", "flops", "ceilings", "times": {"calls", "rows"}, "kernels": […], "reason"}. `times` are torch's;
`kernels` hold the counters (see `figures.ProfiledKernel`) and advice; `reason` is why there are none, or null.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import results, worker_process
from kernelgen.lab.ncu import advice, figures, runner
from kernelgen.lab.selection import Selection
from kernelgen.lab.steady import steady_variables
from kernelgen.toolchain import revision

KIND = "kernelgen profile"
# Raised whenever a reader of the older schema would misread the newer one.
VERSION = 1

# torch's profiler complains on standard error where there is no GPU.
_QUIET = {"KINETO_LOG_LEVEL": "9"}

Profile = dict[str, Any]
# From this share of a call's time on a kernel counts as doing all of its work, so the call's least bytes are its own.
_ALONE = 0.8


class FailedError(KernelgenError):
    """The op failed, crashed or hung while it was profiled."""

    is_verdict = True


@dataclass
class Profiler:
    """What profiles a project's op.

    Args:
        request: to worker/profile.py: package, op, case, dtype, backward, tf32, device, seed.
        folder: where the report, the CSV and the JSON go.
        limit_s: how long the process may say nothing before it counts as hung.
        tell: is told what is being done.
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
        profile = self._times()
        stem = self.folder / name_of(profile)
        profile["reason"] = self._why_not(profile) or self._counters(profile, stem)
        results.write(profile, stem.with_suffix(".json"))
        self.written.append(stem.with_suffix(".json"))
        return profile

    def _times(self) -> Profile:
        """By torch's profiler."""
        profile: Profile = {**results.heading(KIND, VERSION), "kernels": []}

        def on_event(event: dict[str, Any]) -> None:
            facts = dict(event)
            kind = facts.pop("event")
            if kind == "case":
                profile.update(facts)
            elif kind in ("environment", "times", "ceilings"):
                profile[kind] = facts
            else:
                _raise_failures(event)

        self._follow({"counters": False}, on_event)
        return profile

    def _follow(self, more: dict[str, Any], on_event: Callable[[dict[str, Any]], None], under: Any = ()) -> None:
        environment = {**steady_variables(), **_QUIET}
        request = {"work": "profile", "project": str(self.root), "environment": environment, **self.request, **more}
        if not worker_process.run(self.python, request, on_event, self.limit_s, under):
            raise KeyboardInterrupt

    def _why_not(self, profile: Profile) -> str | None:
        """Why Nsight Compute is not even tried."""
        if profile["environment"]["device"] != "cuda":
            return "counters are read on a GPU alone, and this ran on the CPU"
        if runner.find() is None:
            return (
                "Nsight Compute was not found: put its `ncu` on PATH; it comes with the CUDA toolkit, and as the "
                "package nsight-compute of NVIDIA's repositories"
            )
        return None

    def _counters(self, profile: Profile, stem: Path) -> str | None:
        """Fills in `kernels`, by Nsight Compute; returns why it could not."""
        self.tell("reading counters")
        tool, report, log = runner.find(), stem.with_suffix(".ncu-rep"), stem.with_suffix(".log")
        stem.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        under = runner.command(tool, report, log, figures.resolve(runner.available(tool)))
        same = {name: profile[name] for name in ("case", "dtype")} | {"device": "cuda"}
        try:
            self._follow({"counters": True, **same}, lambda event: _raise_failures(event, log), under)
            text = runner.export(tool, report)
        except LabError as error:
            # The same case ran without ncu just before, so this is not the op's doing.
            return _complaint(log) or str(error).rstrip(".")
        finally:
            problem = _complaint(log)
            log.unlink(missing_ok=True)
        launches = runner.read(text)
        if not launches:
            return problem or "ncu wrote no report"
        stem.with_suffix(".csv").write_text(text, encoding="utf-8")
        self.written += [report, stem.with_suffix(".csv")]
        profile["kernels"] = described(launches, profile.get("bytes"))
        return None


def _raise_failures(event: dict[str, Any], log: Path | None = None) -> None:
    if event["event"] == "failed":
        raise FailedError(f"{event['op']} · {event['case']} failed: {event['reason']}.")
    if event["event"] == "lost":
        if log and (complaint := _complaint(log)):
            raise LabError(complaint)
        under = " under Nsight Compute" if log else ""
        raise FailedError(f"{event['op']} · {event['case']}{under}: the process {event['reason']}.")


def _complaint(log: Path) -> str | None:
    return runner.problem(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else None


def described(launches: list[runner.Launch], least_bytes: float | None) -> list[dict[str, Any]]:
    """The launches of one call as JSON: figures, the share of the call's time, and advice.

    Args:
        least_bytes: the fewest that the call has to move.
    """
    kernels = [figures.profiled_kernel(launch) for launch in launches]
    whole = sum(kernel.seconds for kernel in kernels) or 1.0
    facts = []
    for kernel in kernels:
        share = kernel.seconds / whole
        least = least_bytes if share >= _ALONE else None
        facts.append({**kernel.as_dict(), "share": share, "least": least, "says": advice.advice(kernel, least)})
    return facts


def name_of(profile: Profile) -> str:
    """What a profile's files are called."""
    words = [profile["op"], profile["case"], profile["dtype"], *["backward"] * bool(profile["backward"])]
    return "-".join(re.sub(r"[^a-z0-9_]+", "-", word.lower()).strip("-") for word in words)


def read(path: Path) -> Profile:
    """A profile from a file.

    Raises:
        KernelgenError: there is no such file, it holds something else, or its schema has another version.
    """
    return results.read_as({KIND: VERSION}, path)


def heaviest(profile: Profile) -> figures.ProfiledKernel | None:
    """The kernel that takes the most time."""
    facts = max(profile["kernels"], key=lambda kernel: kernel["seconds"], default=None)
    return facts and figures.ProfiledKernel.from_dict(facts)


def seconds(profile: Profile) -> float:
    """A call's time on the device, all kernels together: by the counters where there are any, else by torch."""
    parts = profile["kernels"] or profile["times"]["rows"]
    return sum(part["seconds"] for part in parts)


def check_comparable(before: Profile, name: str, now: Profile) -> None:
    """Makes sure that two profiles are of one case on one machine.

    Raises:
        KernelgenError: they are not; the message says what differs.
    """
    machines = [results.machine(profile["environment"]) for profile in (before, now)]
    if machines[0] != machines[1]:
        raise KernelgenError(
            f"{name} was taken on {machines[0]}, and this is {machines[1]}: figures of different machines say "
            "nothing of the code. Profile both on one, or use `--against REV`."
        )
    cases = [results.key(profile) for profile in (before, now)]
    if cases[0] != cases[1]:
        raise KernelgenError(f"{name} is of {cases[0]}, and this is {cases[1]}; choose that case with --case.")


# ---- A profile and an earlier one -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfileRun:
    """A profile, the one before it if there is one, and the files that were written."""

    profile: Profile
    before: Profile | None
    written: list[Path]

    def as_dict(self) -> dict[str, Any]:
        return self.profile | ({"before": self.before} if self.before else {})


def profile_op(
    selection: Selection,
    request: dict[str, Any],
    folder: Path,
    *,
    against: str | None = None,
    limit_s: float = 300.0,
    tell: Callable[[str], None] = lambda text: None,
) -> ProfileRun:
    """Profiles the first of the selected ops.

    Args:
        request, folder, limit_s, tell: as `Profiler` has them.
        against: a file that holds an earlier profile, or a revision, which is built aside and profiled too.

    Raises:
        KernelgenError: there is no such file or revision, it is of another case or machine, or it does not build;
            and as `Profiler.run`.
    """
    facts = {"package": selection.package, "op": selection.ops[0], **request}
    earlier = read(Path(against)) if (against or "").endswith(".json") else None
    profiler = Profiler(selection.python, selection.root, facts, folder.resolve(), limit_s, tell)
    profile = profiler.run()
    if earlier is not None:
        check_comparable(earlier, against, profile)
    elif against:
        with revision.checked_out(selection.root, against) as (then, _):
            revision.copy_cases(selection.root, then, selection.package, selection.ops[0], against)
            revision.build(then, selection.python, facts["device"])
            facts |= {name: profile[name] for name in ("case", "dtype")}
            earlier = Profiler(selection.python, then, facts, folder.resolve() / "before", limit_s, tell).run()
    return ProfileRun(profile, earlier, profiler.written)
