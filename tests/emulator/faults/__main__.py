"""The corpus as a command: its table, and a run that plants every fault.

python -m tests.emulator.faults --table
python -m tests.emulator.faults --run [--only WORD] [--seeds 12] [--write]
python -m tests.emulator.faults --right --seeds 200
"""

import argparse
import collections
import dataclasses
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.emulator.faults import Fault, Kind
from tests.emulator.faults.recipes import RECIPE_FAULTS
from tests.emulator.faults.styles import STYLE_FAULTS

RESULTS = Path(__file__).parent / "results.json"
CORPUS = [*STYLE_FAULTS, *RECIPE_FAULTS]


@dataclasses.dataclass(frozen=True)
class Result:
    """How many seeds' reports name the fault, how many have another report or a wrong result, and how many neither."""

    named: int = 0
    otherwise: int = 0
    missed: int = 0
    example: str = ""

    @property
    def outcome(self) -> str:
        if self.missed:
            return "caught under some seeds" if self.named + self.otherwise else "missed"
        return "caught otherwise" if self.otherwise else "named"


def main() -> int:
    options = _options()
    if options.table:
        print(table(recorded()))
        return 0
    start = time.perf_counter()
    code = right(options.seeds) if options.right else planted(options)
    from tests.emulator.faults.plant import cpu_seconds

    print(f"{time.perf_counter() - start:.0f} s, {cpu_seconds():.0f} s of CPU time")
    return code


def recorded() -> dict[str, Result]:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {name: Result(**result) for name, result in results.items()}


# ---- The table ----------------------------------------------------------------------------------------------------


def table(results: dict[str, Result]) -> str:
    """Markdown: a row for each kind, the faults planted, and how many are caught in which way."""
    rows = ["| kind of fault | kernels | recipes | caught | by a report | by the result |", "|---|--:|--:|--:|--:|--:|"]
    for kind in Kind:
        rows.append(_row(kind.title, [fault for fault in CORPUS if fault.kind is kind], results))
    return "\n".join([*rows, _row("**all**", CORPUS, results)])


def _row(title: str, faults: list[Fault], results: dict[str, Result]) -> str:
    recipes = sum(fault in RECIPE_FAULTS for fault in faults)
    known = [results[fault.name] for fault in faults if fault.name in results]
    outcomes = collections.Counter(result.outcome for result in known)
    caught = len(known) - outcomes["missed"]
    counts: list[object] = [len(faults) - recipes, recipes, caught, outcomes["named"], caught - outcomes["named"]]
    if len(known) < len(faults):
        counts[2:] = ["-"] * 3
    return f"| {title} | {' | '.join(map(str, counts))} |"


# ---- Runs ---------------------------------------------------------------------------------------------------------


def right(seeds: int) -> int:
    """Runs the right kernels; the number of those that have a report or a wrong result."""
    from kernelgen.emulator.library import EmulatorError
    from tests.emulator.faults.plant import compile_style, outcome
    from tests.emulator.styles import STYLES

    alarms = 0
    for style in STYLES.values():
        start = time.perf_counter()
        try:
            kernel = compile_style(style)
        except EmulatorError as error:
            alarms += 1
            print(f"{style.name:24} does not compile: {str(error)[-300:]}")
            continue
        compiled = time.perf_counter() - start
        wrong = [(seed, result) for seed in range(seeds) if (result := outcome(style, kernel, seed))]
        alarms += bool(wrong)
        seconds = time.perf_counter() - start - compiled
        print(
            f"{style.name:24} {seeds - len(wrong)} of {seeds} seeds right; {compiled:.1f} s to compile, {seconds:.1f} s"
        )
        for seed, result in wrong[:1]:
            print(f"  seed {seed}: {result}")
    return alarms


def planted(options: argparse.Namespace) -> int:
    faults = [fault for fault in CORPUS if options.only in fault.name or options.only == fault.subject]
    results = recorded() if options.only else {}
    bad = 0
    for fault, result in _results(faults, options.seeds):
        results[fault.name] = result
        bad += result.outcome != "named" if fault.wanted else bool(result.missed == options.seeds)
        print(f"{fault.name:48} {result.outcome:24} {result.named}/{result.otherwise}/{result.missed} {result.example}")
        sys.stdout.flush()
    if options.write:
        names = {fault.name for fault in CORPUS}
        kept = {name: dataclasses.asdict(results[name]) for name in sorted(results) if name in names}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{len(faults) - bad} of {len(faults)} faults caught as the corpus demands")
    return bad


def _results(faults: list[Fault], seeds: int) -> Iterable[tuple[Fault, Result]]:
    from kernelgen.emulator.library import EmulatorError
    from tests.emulator.faults.plant import outcomes
    from tests.emulator.faults.recipe_checks import Recipes

    recipes = Recipes()
    for fault in faults:
        if fault in RECIPE_FAULTS:
            yield fault, _judged(fault, [recipes.failure(fault)])
            continue
        try:
            yield fault, _judged(fault, [str(result) if result else "" for result in outcomes(fault, range(seeds))])
        except EmulatorError as error:
            yield fault, Result(missed=seeds, example=f"does not compile: {str(error)[-300:]!r}")


def _judged(fault: Fault, failures: list[str]) -> Result:
    named = [failure for failure in failures if failure and fault.wanted and re.search(fault.wanted, failure)]
    caught = [failure for failure in failures if failure]
    others = [failure for failure in caught if failure not in named]
    example = " ".join((others or named or [""])[0].split())[:160]
    return Result(len(named), len(others), len(failures) - len(caught), example)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--table", action="store_true", help="print the table, from the last run that was written")
    action.add_argument("--run", action="store_true", help="plant every fault")
    action.add_argument("--right", action="store_true", help="run the right kernels")
    parser.add_argument("--only", default="", metavar="WORD", help="faults whose name holds the word, or of this style")
    parser.add_argument("--seeds", type=int, default=12, help="seeds for each kernel (12)")
    parser.add_argument("--write", action="store_true", help="record the outcomes, for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
