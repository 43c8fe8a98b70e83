"""Whether an op became faster or slower: the rule, applied to two files or to two revisions.

A difference is *shown* if the intervals leave a gap, |Cliff's delta| is at least 0.3, and the test's p, corrected for
the number of cases as Holm (1979) has it, is below 0.05. Among shown differences:

- a *regression* is one that may be 3% or more: the upper end of the ratio's 99% interval reaches 1.03. The estimate
  itself is no test: of a slowdown of exactly 3% half of all estimates fall short of 3%. So the gate asks whether 3% can
  be ruled out. A case that is surely slower, and may be 3% slower, is stopped; what is surely less than 3% passes.
- an *improvement* is one whose estimate is at least 10%: whoever claims it bears the burden of proof.

Of the rest there is *no difference* where the interval rules out a regression of 3%. Where it does not, too little was
measured: the case is *inconclusive*, and a note says how much more would decide.

Where its code and its data happen to lie makes a process faster or slower for as long as it lives, which no number of
samples from it would show. So new processes measure again every case that seems to be either, or to be half of a
regression. An improvement stands if both measurements show one. A regression stands if both show the case to be slower,
at least one of them so much that 3% cannot be ruled out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.lab import results, statistics
from kernelgen.lab.evidence import software
from kernelgen.lab.pair import PairedResult
from kernelgen.lab.statistics import Difference
from kernelgen.protocol import OP

IMPROVEMENT, REGRESSION, WRONG = "improvement", "regression", "wrong result"
NO_DIFFERENCE, INCONCLUSIVE = "no difference", "inconclusive"
UNDECIDED = (NO_DIFFERENCE, INCONCLUSIVE)
# More blocks or samples are not worth asking for: the machine is too noisy, or the time too near to a threshold.
MOST_TO_ASK_FOR = 10_000
EXIT_IMPROVED, EXIT_REGRESSED, EXIT_NEITHER = 0, 1, 2
VERSION = 1


@dataclass(frozen=True)
class Thresholds:
    """What a difference has to reach: shares of the time before, |Cliff's delta|, and what p has to be below."""

    slower: float = 0.03
    faster: float = 0.10
    delta: float = 0.3
    p: float = 0.05

    def verdict(self, difference: Difference, p: float) -> str:
        """The verdict on a difference, by its corrected p."""
        if self.shown(difference, p) and difference.ratio.value > 1 and difference.ratio.high >= 1 + self.slower:
            return REGRESSION
        if self.shown(difference, p) and difference.ratio.value <= 1 / (1 + self.faster):
            return IMPROVEMENT
        return self.undecided(difference)

    def undecided(self, *differences: Difference) -> str:
        """The verdict where nothing is shown: no difference if every interval leaves a regression out."""
        ruled_out = all(d.count >= statistics.FEWEST and d.ratio.high < 1 + self.slower for d in differences)
        return NO_DIFFERENCE if ruled_out else INCONCLUSIVE

    def more_to_decide(self, difference: Difference) -> int | None:
        """About how many more blocks or samples would decide an inconclusive case; None if too many to ask for.

        The interval shrinks with the square root of their number. It decides once it leaves the threshold out or,
        around a ratio beyond the threshold, 1.
        """
        ratio = difference.ratio
        if ratio.value < 1 + self.slower:
            width, room = ratio.high - ratio.value, 1 + self.slower - ratio.value
        else:
            width, room = ratio.value - ratio.low, ratio.value - 1
        needed = max(math.ceil(difference.count * (width / room) ** 2), statistics.FEWEST)
        more = max(needed - difference.count, 1)
        return more if more <= MOST_TO_ASK_FOR else None

    def shown(self, difference: Difference, p: float) -> bool:
        enough = difference.count >= statistics.FEWEST
        return enough and difference.apart and abs(difference.delta) >= self.delta and p < self.p

    def hoped(self, ratio: float) -> bool:
        """Whether a ratio from a short measurement leaves hope of an improvement: half of one has to show."""
        return ratio <= 1 / (1 + self.faster / 2)

    def slowed(self, difference: Difference, p: float) -> bool:
        """Whether other processes might show a regression where these do not: half of one is shown."""
        return self.shown(difference, p) and difference.ratio.value >= 1 + self.slower / 2

    def is_decided(self, ratios: Sequence[float]) -> bool:
        """Whether more blocks would hardly change the verdict on one case: its interval lies wholly beyond a threshold,
        or so close to 1 that three quarters of a regression are ruled out."""
        ratio = statistics.paired_difference(ratios).ratio
        close = 1 + 0.75 * self.slower
        is_equal = 1 / close < ratio.low and ratio.high < close
        return is_equal or ratio.high <= 1 / (1 + self.faster) or ratio.low >= 1 + self.slower

    def agreed(self, first: Difference, p: float, second: Difference) -> str:
        """The verdict on a case that was measured twice, by different processes."""
        verdicts = {self.verdict(first, p), self.verdict(second, second.p)}
        if len(verdicts) == 1:
            return verdicts.pop()
        slowed = self.slowed(first, p) and self.slowed(second, second.p)
        return REGRESSION if slowed and REGRESSION in verdicts else self.undecided(first, second)


@dataclass
class CaseVerdict:
    """The verdict on one case; `before` and `after` are median seconds, NaN if there are none, and `p` is corrected for
    the number of cases."""

    case: str
    verdict: str
    before: float
    after: float
    difference: Difference | None = None
    p: float = 1.0
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["difference"], facts["p"]
        facts |= {name: None for name in ("before", "after") if math.isnan(facts[name])}
        if shown := self.difference:
            facts |= {"ratio": shown.ratio.as_list(), "intervals_apart": shown.apart, "cliffs_delta": shown.delta}
            facts |= {"p": shown.p, "p_holm": self.p, "count": shown.count}
        return facts


@dataclass
class Comparison:
    """All cases; the names say what was compared with what."""

    before: str
    after: str
    machine: str
    verdicts: list[CaseVerdict]
    thresholds: Thresholds = field(default_factory=Thresholds)
    notes: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 improved, 1 a case became slower or wrong, 2 neither was shown."""
        verdicts = {verdict.verdict for verdict in self.verdicts}
        if verdicts & {REGRESSION, WRONG}:
            return EXIT_REGRESSED
        return EXIT_IMPROVED if IMPROVEMENT in verdicts else EXIT_NEITHER

    def as_dict(self) -> dict[str, Any]:
        facts = {"kind": "kernelgen compare", "version": VERSION, "before": self.before, "after": self.after}
        facts |= {"machine": self.machine, "thresholds": asdict(self.thresholds), "exit_code": self.exit_code}
        return facts | {
            "notes": self.notes,
            "evidence": self.evidence,
            "cases": [verdict.as_dict() for verdict in self.verdicts],
        }


def judge(differences: Mapping[str, Difference], thresholds: Thresholds) -> dict[str, tuple[str, float]]:
    """The verdict on each, and its corrected p."""
    corrected = statistics.holm([difference.p for difference in differences.values()])
    pairs = zip(differences.items(), corrected, strict=True)
    return {name: (thresholds.verdict(difference, p), p) for (name, difference), p in pairs}


# ---- Two revisions, measured in one run -----------------------------------------------------------------------


def revisions(
    before: str,
    after: str,
    machine: str,
    measured: Sequence[PairedResult],
    thresholds: Thresholds,
    repeated: Sequence[PairedResult] = (),
) -> Comparison:
    """The verdicts on results of `pair.measure`; `repeated` holds those that new processes measured once more."""
    first, second = ({result.key: result for result in some} for some in (measured, repeated))
    differences = {name: statistics.paired_difference(result.ratios) for name, result in first.items()}
    verdicts = []
    for name, (text, p) in judge(differences, thresholds).items():
        result = first[name]
        aside = [f"{result.set_aside} rounds were set aside: the GPU was throttled"] if result.set_aside else []
        verdict = CaseVerdict(name, text, result.before, result.after, differences[name], p)
        both = [result, *([second[name]] if name in second else [])]
        faults, remarks, doubts = (_texts(both, kind) for kind in ("faults", "remarks", "doubts"))
        verdict.notes += [*faults, *remarks, *doubts, *aside]
        if faults:
            verdict.verdict = WRONG
        elif name in second:
            _confirm(verdict, statistics.paired_difference(second[name].ratios), thresholds)
        _say_what_would_decide(verdict, thresholds, "blocks")
        _believe_no_gain(verdict, doubts)
        verdicts.append(verdict)
    return Comparison(before, after, machine, verdicts, thresholds)


def _texts(measured: Sequence[PairedResult], kind: str) -> list[str]:
    return list(dict.fromkeys(text for result in measured for text in getattr(result, kind)))


def _believe_no_gain(verdict: CaseVerdict, doubts: Sequence[str]) -> None:
    """Where something was not checked, an improvement may be a cheat's."""
    if doubts and verdict.verdict == IMPROVEMENT:
        verdict.verdict = INCONCLUSIVE
        verdict.notes.append("so an improvement is not believed")


def lost(case: str, reason: str, *, is_new: bool) -> CaseVerdict:
    """The verdict on a case in which a version crashed. The new one is wrong; of the old one nothing follows."""
    return CaseVerdict(case, WRONG if is_new else INCONCLUSIVE, math.nan, math.nan, notes=[reason])


def _confirm(verdict: CaseVerdict, second: Difference, thresholds: Thresholds) -> None:
    first, change = verdict.verdict, f"{100 * (second.ratio.value - 1):+.1f}%"
    verdict.verdict = thresholds.agreed(verdict.difference, verdict.p, second)
    if first not in UNDECIDED and verdict.verdict in UNDECIDED:
        verdict.notes.append(f"{first} not confirmed: other processes found {change}")
    elif verdict.verdict not in UNDECIDED:
        verdict.notes.append(f"confirmed by other processes: {change}")


def _say_what_would_decide(verdict: CaseVerdict, thresholds: Thresholds, unit: str) -> None:
    """Notes how many more blocks or samples an inconclusive case needs."""
    if verdict.verdict != INCONCLUSIVE:
        return
    difference = verdict.difference
    # What one measurement shows and another does not takes about as much again.
    shown = thresholds.verdict(difference, verdict.p) != INCONCLUSIVE
    more = difference.count if shown else thresholds.more_to_decide(difference)
    enough = f"about {more:,} more {unit}" if more else f"more than {MOST_TO_ASK_FOR:,} {unit}"
    verdict.notes.append(
        f"{difference.count:,} {unit} leave open whether it is {thresholds.slower:.0%} slower; {enough} would decide"
    )


def doubtful(comparison: Comparison) -> list[str]:
    """The cases that other processes have to measure, too."""
    slowed = comparison.thresholds.slowed
    return [
        verdict.case
        for verdict in comparison.verdicts
        if verdict.verdict in (REGRESSION, IMPROVEMENT)
        or (verdict.verdict in UNDECIDED and verdict.difference and slowed(verdict.difference, verdict.p))
    ]


# ---- Two files ------------------------------------------------------------------------------------------------


def files(
    names: tuple[str, str],
    before: results.Results,
    after: results.Results,
    thresholds: Thresholds,
    cases: Sequence[str] | None = None,
) -> Comparison:
    """The verdicts on two results of `kernelgen bench`, which were measured one after the other.

    Raises:
        KernelgenError: they are of different machines, neither holds a case of `cases`, or they have no case in common.
    """
    machines = [results.machine(run["environment"]) for run in (before, after)]
    if machines[0] != machines[1]:
        raise KernelgenError(
            f"{names[0]} was measured on {machines[0]}, {names[1]} on {machines[1]}: times of different machines say "
            "nothing of the code. Measure both on one, or use `kernelgen compare --against REV OP`."
        )
    tables = [{results.key(case): case for case in run["cases"]} for run in (before, after)]
    common = _common(names, tables, cases)
    differences = {key: statistics.difference(*(_seconds(table[key]) for table in tables)) for key in common}
    verdicts = []
    for key, (text, p) in judge(differences, thresholds).items():
        pair = [table[key] for table in tables]
        medians = [case["functions"][OP]["median"][0] for case in pair]
        faults = [f"{name}: {fault}" for name, case in zip(names, pair, strict=True) for fault in case["faults"]]
        verdict = CaseVerdict(key, text, *medians, differences[key], p, faults)
        if faults:
            verdict.verdict = WRONG
        else:
            _blame_the_machine(verdict, pair, thresholds)
            doubts = list(dict.fromkeys(doubt for case in pair for doubt in case.get("doubts", [])))
            verdict.notes += doubts
            _say_what_would_decide(verdict, thresholds, "samples")
            _believe_no_gain(verdict, doubts)
        verdicts.append(verdict)
    notes = _environment_notes(before["environment"], after["environment"])
    for name, table in zip(names, tables, strict=True):
        only = [key for key in table if key not in common and cases is None]
        notes += [f"only in {name}: {', '.join(only)}"] if only else []
    evidence = [software(after["environment"]), "Measured one after the other, not interleaved."]
    evidence.append(f"Measured {before['created']} and {after['created']}.")
    return Comparison(*names, machines[0], verdicts, thresholds, notes, evidence)


def _common(names: tuple[str, str], tables: list[dict[str, Any]], cases: Sequence[str] | None) -> list[str]:
    common = [key for key in tables[0] if key in tables[1]]
    known = {case["case"] for table in tables for case in table.values()}
    for case in cases or []:
        if case not in known:
            raise KernelgenError(
                f"There is no case {case!r} in {names[0]} or {names[1]}; they have {', '.join(known)}."
            )
    if cases:
        common = [key for key in common if tables[0][key]["case"] in cases]
    if not common:
        raise KernelgenError(f"{names[0]} and {names[1]} have no case in common; measure both with the same --cases.")
    return common


def _seconds(case: dict[str, Any], name: str = OP) -> list[float]:
    return case["functions"][name]["seconds"]


def _blame_the_machine(verdict: CaseVerdict, pair: list[dict[str, Any]], thresholds: Thresholds) -> None:
    """A peer's code did not change. If its time moved as the op's did, by half as much or more, the machine changed."""
    if verdict.verdict in UNDECIDED:
        return
    for peer in set(pair[0]["peers"]) & set(pair[1]["peers"]):
        difference = statistics.difference(*(_seconds(case, peer) for case in pair))
        of_peer, of_op = difference.ratio.value - 1, verdict.difference.ratio.value - 1
        shown = difference.apart and abs(difference.delta) >= thresholds.delta
        if shown and of_peer * of_op > 0 and abs(of_peer) >= abs(of_op) / 2:
            change = f"{abs(of_peer):.1%} {'slower' if of_peer > 0 else 'faster'}"
            verdict.verdict = thresholds.undecided(verdict.difference)
            verdict.notes.append(f"{peer} is {change} too, so the machine changed; use `kernelgen compare --against`")
            return


def _environment_notes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    notes = []
    for name in ("torch", "cuda", "threads", "device"):
        if before.get(name) != after.get(name):
            notes.append(f"{name} differs: {before.get(name)} before, {after.get(name)} after")
    drivers = [(environment.get("gpu") or {}).get("driver") for environment in (before, after)]
    if drivers[0] != drivers[1]:
        notes.append(f"the driver differs: {drivers[0]} before, {drivers[1]} after")
    if bool(before["flags"].get("tf32")) != bool(after["flags"].get("tf32")):
        notes.append("TF32 was allowed in one of them only")
    return notes
