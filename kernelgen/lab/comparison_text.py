"""A comparison as text: cells of a table, a comment for a pull request, and the rule in a sentence."""

from kernelgen.lab import results
from kernelgen.lab.compare import IMPROVEMENT, INCONCLUSIVE, REGRESSION, WRONG, CaseVerdict, Comparison, Thresholds

HEADINGS = ("case", "before", "after", "time, 99% interval", "Cliff's δ", "p (Holm)", "verdict")
_MARKS = {
    IMPROVEMENT: "🟢 improvement",
    REGRESSION: "🔴 regression",
    WRONG: "🔴 wrong result",
    INCONCLUSIVE: "🟡 inconclusive",
}


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A line of text cells for each case: case, before, after, change, Cliff's delta, p, verdict."""
    return [_row(verdict) for verdict in comparison.verdicts]


def _row(verdict: CaseVerdict) -> tuple[str, ...]:
    difference = verdict.difference
    if difference is None:
        return (verdict.case, *["-"] * 5, verdict.verdict)
    ends = ", ".join(f"{100 * (end - 1):+.1f}" for end in (difference.ratio.low, difference.ratio.high))
    change = f"{100 * (difference.ratio.value - 1):+.1f}% ({ends})"
    times = (results.seconds(verdict.before), results.seconds(verdict.after))
    return (verdict.case, *times, change, f"{difference.delta:+.2f}", f"{verdict.p:.2g}", verdict.verdict)


def markdown(comparison: Comparison) -> str:
    """A comment for a pull request."""
    named = {REGRESSION: "regressions", IMPROVEMENT: "improvements", WRONG: "wrong results", INCONCLUSIVE: INCONCLUSIVE}
    count = {name: [verdict.verdict for verdict in comparison.verdicts].count(name) for name in named}
    counted = [f"{n} {name if n == 1 else named[name]}" for name, n in count.items() if n]
    summary = ", ".join(counted) or "no difference"
    lines = [f"### `{comparison.before}` → `{comparison.after}`: {summary}", "", f"On {comparison.machine}.", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "| --- |" + " ---: |" * 5 + " --- |"]
    for row in rows(comparison):
        lines.append("| " + " | ".join([*row[:-1], _MARKS.get(row[-1], row[-1])]) + " |")
    notes = [f"{verdict.case}: {note}" for verdict in comparison.verdicts for note in verdict.notes]
    lines += ["", *(f"- {note}" for note in [*comparison.notes, *notes])] if notes or comparison.notes else []
    slower = [verdict.case for verdict in comparison.verdicts if verdict.verdict == REGRESSION]
    evidence = [*comparison.evidence, f"Cases that got slower: {', '.join(slower) or 'none shown'}."]
    return "\n".join([*lines, "", *(f"- {line}" for line in evidence), "", rule(comparison.thresholds)])


def rule(thresholds: Thresholds) -> str:
    """The rule in a sentence."""
    return (
        f"Shown: intervals apart, |Cliff's δ| ≥ {thresholds.delta:g} and p < {thresholds.p:g} after Holm's correction. "
        f"Regression: shown, and {thresholds.slower:.0%} slower is not ruled out. "
        f"Improvement: shown, and at least {thresholds.faster:.0%} faster. "
        f"No difference: {thresholds.slower:.0%} slower is ruled out; else inconclusive."
    )
