"""How `kernelgen tune` chooses points beside Optuna's own samplers, on tables of times that were measured before.

    python benchmarks/tune_samplers.py [--tables FILE ...] [--seeds 30] [--samplers NAME ...] [--json FILE]

The tables are those of tune_search.py and tune_search_gpu.py. `kernelgen tune` takes 4 of 5 points from a Gaussian
process and one from Optuna's TPE; the process also stands alone. All make the same trials as in tune_search.py: a tenth
of the points, the first 20 from one Latin hypercube, with the table's noise and the same comparison of the three best.

Optuna's samplers know nothing of the gates. A point that a gate rejects, or that was tried before, gets its answer at
once and counts as no trial; after three such answers chance chooses.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import optuna

import results_file
import tune_search
from kernelgen.tune import sampler
from kernelgen.tune.space import Space, key

MOST_REPEATS, STARTUP = 3, 10
Search = Callable[[Space, Sequence[str], int, int, Callable[[str], float]], list[str]]


def gaussian_process(space: Space, names: Sequence[str], count: int, seed: int, look: Any) -> list[str]:
    """The points that kernelgen's Gaussian process chooses, the best first."""
    random, left = Random(seed), {name: json.loads(name) for name in names}
    times = {}
    seeds = sampler.latin_hypercube(space, list(left.values()), tune_search.SEEDED, seed)
    while len(times) < count:
        tried = [(json.loads(name), seconds) for name, seconds in times.items()]
        values = seeds.pop(0) if seeds else sampler.promising(space, list(left.values()), tried, [], random)
        times[key(values)] = look(key(values))
        del left[key(values)]
    return sorted(times, key=times.__getitem__)


def of_optuna(
    make: Callable[[int], Any], space: Space, names: Sequence[str], count: int, seed: int, look: Any
) -> list[str]:
    """The points that a sampler of Optuna's chooses, the best first."""
    random, left = Random(seed), {name: json.loads(name) for name in names}
    study = optuna.create_study(sampler=make(seed))
    distributions = {
        name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in space.tunables.items()
    }
    for values in sampler.latin_hypercube(space, list(left.values()), tune_search.SEEDED, seed):
        study.enqueue_trial(space.indices(values))
    times: dict[str, float] = {}
    repeats = 0
    while len(times) < count:
        if repeats >= MOST_REPEATS:
            study.enqueue_trial(space.indices(random.choice(list(left.values()))))
        trial = study.ask(distributions)
        name = key(space.values(trial.params))
        if name in left:
            del left[name]
            times[name] = look(name)
            repeats = -1
        repeats += 1
        if name in times:
            study.tell(trial, times[name])
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return sorted(times, key=times.__getitem__)


def tpe(seed: int) -> Any:
    return optuna.samplers.TPESampler(n_startup_trials=STARTUP, multivariate=True, constant_liar=True, seed=seed)


def gp(seed: int) -> Any:
    return optuna.samplers.GPSampler(n_startup_trials=STARTUP, seed=seed)


SAMPLERS: dict[str, Search] = {
    "kernelgen tune": tune_search.guided,
    "Gaussian process": gaussian_process,
    "TPESampler": partial(of_optuna, tpe),
    "GPSampler": partial(of_optuna, gp),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tables = sorted((Path(__file__).parent / "results").glob("tune_search*.json"))
    parser.add_argument("--tables", nargs="+", type=Path, default=tables, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=30, help="searches of each table")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each search there, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows: list[dict[str, Any]] = []
    for path in options.tables:
        table = json.loads(path.read_text(encoding="utf-8"))
        space = Space({name: tuple(values) for name, values in table["tunables"].items()})
        times = {key(point["values"]): point["seconds"] for point in table["table"]}
        for name in options.samplers:
            searches = [row(path.stem, name, space, times, seed) for seed in range(options.seeds)]
            rows += searches
            show(searches)
            if options.json:
                results_file.write(options.json, {"optuna": optuna.__version__, "searches": rows})
    return 0


def row(table: str, name: str, space: Space, times: tune_search.Times, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    ratio = tune_search.best_of(SAMPLERS[name], space, times, seed)["confirmed"]
    seconds = time.perf_counter() - start
    return {"table": table, "sampler": name, "seed": seed, "best": ratio, "seconds": round(seconds, 2)}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """One line of a table and a sampler: how many searches end within 2% of the best, and how far off they are."""
    best = sorted(row["best"] for row in rows)
    near = sum(ratio <= tune_search.NEAR for ratio in best) / len(best)
    off = [f"{100 * (ratio - 1):.1f}%" for ratio in (statistics.median(best), statistics.fmean(best))]
    seconds = statistics.median(row["seconds"] for row in rows)
    print(f"{rows[0]['table']}, {rows[0]['sampler']}: {near:.0%}; {off[0]}, {off[1]} off; {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
