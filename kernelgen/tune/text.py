"""A search space, its cost and the result of a tuning in words, for a person."""

from collections.abc import Iterator, Mapping
from typing import Any

from kernelgen.lab import comparison_text
from kernelgen.tune.lab_file import by_reason
from kernelgen.tune.request import TuningRequest
from kernelgen.tune.space import key
from kernelgen.tune.task import Task
from kernelgen.tune.tuning import TuningResult


def of_task(request: TuningRequest, task: Task) -> str:
    """The space, what the gates reject of it by shape class, and what is left."""
    tunables = task.space.tunables
    width = max(map(len, tunables))
    lines = [f"{request.op} on {task.chip}: {task.space.size} points"]
    lines += [f"  {name:{width}}  {', '.join(map(str, values))}" for name, values in tunables.items()]
    for shape_class in task.shape_classes:
        prefix = f"{shape_class.shapes}: " if shape_class.shapes else ""
        for gate, rejected in shape_class.rejected.items():
            example = rejected["examples"][0]["text"]
            lines.append(f"{prefix}{rejected['count']} rejected by {gate}, such as {example}")
        points, cases = (
            _are(len(some), noun) for some, noun in ((shape_class.kept, "point"), (shape_class.cases, "case"))
        )
        lines.append(f"{prefix}{points} left; {cases} measured for each.")
    lines += [f"left out: {', '.join(cases)}: {reason}." for reason, cases in by_reason(task.left_out).items()]
    return "\n".join(lines)


def _are(count: int, noun: str) -> str:
    return f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"


def of_cost(cost: Mapping[str, Any]) -> str:
    """The figures of `cost.estimate_cost` in a sentence."""
    measuring = cost["measuring_s"]
    measured = f"{measuring:.1f} s to prove and measure" if measuring else "no GPU here to measure on"
    return (
        f"{cost['trials']} trials, each {cost['compiling_s']:.1f} s to compile ({cost['jobs']} at once) and "
        f"{measured}: about {cost['minutes']:.1f} minutes"
    )


def of_result(request: TuningRequest, result: TuningResult) -> str:
    """How each search ended, and what was confirmed and written."""
    lines = [line for part in result.record["searches"] for line in _of_search(request.op, part)]
    if result.left_to_others:
        return "\n".join([*lines, "Another worker confirms the best."])
    if result.written:
        path = result.written.relative_to(request.root)
        lines.append(f"written to {path}; build to use it: kernelgen build")
    else:
        lines.append(f"The default of {request.op} stands; nothing was written.")
    return "\n".join([*lines, comparison_text.rule(request.thresholds)])


def _of_search(op: str, part: Mapping[str, Any]) -> Iterator[str]:
    stats = part["stats"]
    failed = f", {stats['failed']} of them no good" if stats["failed"] else ""
    head = f"{op}{' · ' + part['shapes'] if part['shapes'] else ''}: {stats['done']} trials"
    yield f"{head}{failed}; {part['ended']} after {stats['seconds']:.0f} s"
    for confirmation in part.get("confirmed", ()):
        yield from _of_confirmation(confirmation)


def _of_confirmation(confirmation: Mapping[str, Any]) -> Iterator[str]:
    verdict = "confirmed" if confirmation["passed"] else "not confirmed"
    problem = f": {confirmation['problem']}" if confirmation["problem"] else ""
    yield f"  {verdict}: {key(confirmation['values'])}{problem}"
    comparison = confirmation["comparison"] or {"cases": []}
    for case in comparison["cases"]:
        change, low, high = (100 * (ratio - 1) for ratio in case["ratio"])
        yield f"    {case['case']}: {change:+.1f}% ({low:+.1f}, {high:+.1f}) {case['verdict']}"
        yield from (f"      {note}" for note in case["notes"])
    yield from (f"    {note}" for note in comparison.get("notes", ()))
