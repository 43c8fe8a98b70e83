"""The corpus as a command: its table, and a run that plants every fault.

python -m tests.emulator.faults --table
python -m tests.emulator.faults --run [--only WORD] [--seeds 12] [--jobs 2] [--write]
python -m tests.emulator.faults --right --seeds 200 [--jobs 2]
"""

import argparse
import collections
import dataclasses
import functools
import json
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import results_file
from tests.emulator.faults import Fault, Kind
from tests.emulator.faults.recipes import RECIPE_FAULTS
from tests.emulator.faults.styles import STYLE_FAULTS

# Each process compiles a style, or finds it compiled, and runs so many seeds of it.
SEEDS_AT_ONCE = 25
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
    with ProcessPoolExecutor(options.jobs) as pool:
        code = right(pool, options.seeds) if options.right else planted(pool, options)
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


def right(pool: ProcessPoolExecutor, seeds: int) -> int:
    """Runs the right kernels; the number of those that have a report or a wrong result."""
    from tests.emulator.styles import STYLES

    parts = [range(first, min(first + SEEDS_AT_ONCE, seeds)) for first in range(0, seeds, SEEDS_AT_ONCE)]
    alarms = 0
    for name in STYLES:
        wrong = [line for lines in pool.map(functools.partial(_alarms, name), parts) for line in lines]
        alarms += bool(wrong)
        print(f"{name:24} {seeds - len(wrong)} of {seeds} seeds right", *wrong[:1], sep="\n  ", flush=True)
    return alarms


def _alarms(name: str, seeds: range) -> list[str]:
    """What a right kernel is accused of, a line for each seed that does."""
    from kernelgen.emulator.library import EmulatorError
    from tests.emulator.faults.plant import compile_style, outcome
    from tests.emulator.styles import STYLES

    try:
        kernel = compile_style(STYLES[name])
    except EmulatorError as error:
        return [f"does not compile: {str(error)[-300:]}"] * len(seeds)
    results = ((seed, outcome(STYLES[name], kernel, seed)) for seed in seeds)
    return [f"seed {seed}: {result}" for seed, result in results if result]


def planted(pool: ProcessPoolExecutor, options: argparse.Namespace) -> int:
    faults = [fault for fault in CORPUS if options.only in fault.name or options.only == fault.subject]
    results = recorded() if options.only else {}
    bad = 0
    for fault, result in zip(faults, pool.map(functools.partial(_result, seeds=options.seeds), faults), strict=True):
        results[fault.name] = result
        bad += not result.named or result.otherwise > 0 if fault.wanted else not result.named + result.otherwise
        print(f"{fault.name:48} {result.outcome:24} {result.named}/{result.otherwise}/{result.missed} {result.example}")
        sys.stdout.flush()
        if options.write:
            _write(results)
    print(f"{len(faults) - bad} of {len(faults)} faults caught as the corpus demands")
    return bad


def _write(results: dict[str, Result]) -> None:
    names = {fault.name for fault in CORPUS}
    kept = {name: dataclasses.asdict(results[name]) for name in sorted(results) if name in names}
    results_file.write(RESULTS, kept)


def _result(fault: Fault, seeds: int) -> Result:
    from kernelgen.emulator.library import EmulatorError
    from tests.emulator.faults.plant import outcomes

    try:
        return _judged(fault, [str(result) if result else "" for result in outcomes(fault, range(seeds))])
    except EmulatorError as error:
        return Result(missed=seeds, example=f"does not compile: {str(error)[-300:]!r}")


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
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once (one a core)")
    parser.add_argument("--write", action="store_true", help="record the outcomes, for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
