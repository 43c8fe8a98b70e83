"""An op's search space as its lab.py describes it, by class of shapes, and what the gates leave of it."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from kernelgen.errors import LabError
from kernelgen.tune import gates, space
from kernelgen.tune.device_limits import DeviceLimits, device_limits

# With more points the gates take minutes.
MOST_POINTS = 200_000
# Rejected points that are shown as examples of each gate.
EXAMPLES = 3
# Points whose estimates a worker is asked for at a time.
_BATCH = 500

# Orders something of a worker that lives in the project's Python (worker/tune.py), and returns its answer.
Ask = Callable[..., dict[str, Any]]


def describe(ask: Ask, op: str, device: str, capability: str | None, backward: bool) -> dict[str, Any]:
    """The space of an op on a kind of device, cpu or cuda, and a compute capability; needs no GPU.

    Returns:
        `tunables`; `classes`, each with `shapes`, `cases`, the numbers of the points that the gates `kept`, and by gate
        those `rejected` (`count`, `examples`); `left_out`, the cases, dtypes and reasons that kernels without these
        tunables serve; `apart`, the tunables of the other direction if forward and backward are tuned apart; `torch`,
        `cpu`, and `chip_known`, whether the gates know the limits of the GPU.

    Raises:
        LabError: lab.py has no tunables for the device, too many points, or something else than it should.
    """
    facts = ask("describe", device=device, capability=capability)
    tunables = facts["tunables"]
    whole = space.read(op, tunables, device, capability, backward)
    if whole.size > MOST_POINTS:
        raise LabError(f"{op} has {whole.size:,} points, more than {MOST_POINTS:,}: list fewer values in its lab.py.")
    key = space.part(tunables, device, capability, backward)
    if not facts["classes"]:
        cases = "; ".join(f"{', '.join(cases)}: {reason}" for reason, cases in by_reason(facts["left_out"]).items())
        raise LabError(f"What {op} has as tunables for {key} serves none of these cases: {cases}.")
    limits = device_limits(capability or "")
    estimates = functools.partial(ask, "estimates", device=device, capability=capability)
    classes = _gated(whole, facts["classes"], estimates, limits)
    other = space.part(tunables, device, capability, not backward)
    apart = [name for name in tunables[other] if name not in whole.tunables]
    known = {"torch": facts["torch"], "cpu": facts["cpu"], "chip_known": limits is not None}
    facts = {"left_out": facts["left_out"], **known}
    return {"tunables": dict(whole.tunables), "classes": classes, "apart": apart, **facts}


def by_reason(left_out: list[list[str]]) -> dict[str, list[str]]:
    """The cases that a task leaves out, by the reason, each once for all of its dtypes."""
    cases: dict[str, dict[str, None]] = {}
    for case, _, reason in left_out:
        cases.setdefault(reason, {})[case] = None
    return {reason: list(names) for reason, names in cases.items()}


def _gated(
    whole: space.Space, classes: list[dict[str, Any]], estimates: Ask, limits: DeviceLimits | None
) -> list[dict[str, Any]]:
    """The classes, each with the numbers of the points that pass all gates in all of its cases, and by gate how many do
    not, with examples."""
    gated = [{**part, "kept": [], "rejected": {}} for part in classes]
    cases = [case for part in classes for case in part["cases"]]
    points = enumerate(whole.points())
    while batch := list(itertools.islice(points, _BATCH)):
        answer = estimates(points=[values for _, values in batch], cases=cases)
        rejections = [gates.judge(estimate, limits) for estimate in answer["estimates"]]
        rows = [_of_classes([rejections[estimate] for estimate in row], classes) for row in answer["rows"]]
        points_of: dict[int, list[tuple[int, space.Values]]] = {}
        for point, row in zip(batch, answer["taken"], strict=True):
            points_of.setdefault(row, []).append(point)
        for row, alike in points_of.items():
            for part, rejection in zip(gated, rows[row], strict=True):
                if rejection is None:
                    part["kept"] += [number for number, _ in alike]
                else:
                    _count(part["rejected"], rejection, [values for _, values in alike])
    for part in gated:
        part["kept"].sort()
    return gated


def _of_classes(of_cases: list[gates.Rejection | None], classes: list[dict[str, Any]]) -> list[gates.Rejection | None]:
    """For each class the first rejection in one of its cases, which follow each other."""
    cases = iter(of_cases)
    return [next(filter(None, [*itertools.islice(cases, len(part["cases"]))]), None) for part in classes]


def _count(rejected: dict[str, dict[str, Any]], rejection: gates.Rejection, points: Sequence[space.Values]) -> None:
    gate = rejected.setdefault(rejection.gate, {"count": 0, "examples": []})
    gate["count"] += len(points)
    examples = points[: max(0, EXAMPLES - len(gate["examples"]))]
    gate["examples"] += [{"values": values, "text": rejection.text} for values in examples]
