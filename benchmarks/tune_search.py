"""How near to the best point the search of `kernelgen tune` comes, on a table of times that were measured before.

    python benchmarks/tune_search.py [--rounds 15] [--seeds 200] [--table FILE] [--json FILE]

(tune_search_gpu.py does the same with a GPU kernel's tables.)

The table is that of a matrix product in C++ on one core, with five tunables, compiled with $CXXFLAGS (default: -O3).
Every point is measured once in each of several rounds, in another order each time, by the thread's CPU time, which
other programs hardly disturb. The median over the rounds counts as a point's true time; the rounds are its noise.

Then the command's own search looks for the best of the table, with another seed each time and a tenth of the points as
trials. A trial sees the median of six of the point's rounds, drawn by chance, since the command measures six rounds or
more. As in the command, the three best are then compared by all rounds, and the best of them counts, by its true time.
Beside it stand as many points that are drawn by chance, with the same noise and the same comparison at the end.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import results_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kernelgen.tune.slot import TrialBudget  # noqa: E402
from kernelgen.tune.space import Space, key  # noqa: E402
from kernelgen.tune.study import Study  # noqa: E402
from kernelgen.worker.environment import cpu_name  # noqa: E402

# Rows and columns of a block of the result, steps of the inner dimension, rows whose sums are kept at a time, and
# whether the block of b is copied to one place first.
SPACE = Space(
    {
        "rows": (8, 16, 32, 64, 128),
        "columns": (8, 16, 32, 64, 128),
        "depth": (8, 16, 32, 64, 128),
        "held": (1, 2, 4, 8),
        "packed": (False, True),
    }
)
NEAR, SHARE, SEEDED, CONFIRMED = 1.02, 0.1, 20, 3
# The seconds of each point, in each round.
Times = dict[str, list[float]]

PROGRAM = """
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

constexpr int kSize = 128, kCalls = 3;
alignas(64) float a[kSize * kSize], b[kSize * kSize], c[kSize * kSize];

template <int kRows, int kColumns, int kDepth, int kHeld, bool kPacked>
void multiply() {
  std::fill(c, c + kSize * kSize, 0.0f);
  alignas(64) float copy[kDepth * kColumns];
  for (int i0 = 0; i0 < kSize; i0 += kRows) {
    for (int k0 = 0; k0 < kSize; k0 += kDepth) {
      for (int j0 = 0; j0 < kSize; j0 += kColumns) {
        const float* block = b + k0 * kSize + j0;
        if (kPacked) {
          for (int k = 0; k < kDepth; ++k) std::copy_n(block + k * kSize, kColumns, copy + k * kColumns);
          block = copy;
        }
        for (int i = i0; i < i0 + kRows; i += kHeld) {
          float sums[kHeld][kColumns];
          for (int r = 0; r < kHeld; ++r) std::copy_n(c + (i + r) * kSize + j0, kColumns, sums[r]);
          for (int k = 0; k < kDepth; ++k) {
            const float* row = block + k * (kPacked ? kColumns : kSize);
            for (int r = 0; r < kHeld; ++r) {
              const float factor = a[(i + r) * kSize + k0 + k];
              for (int j = 0; j < kColumns; ++j) sums[r][j] += factor * row[j];
            }
          }
          for (int r = 0; r < kHeld; ++r) std::copy_n(sums[r], kColumns, c + (i + r) * kSize + j0);
        }
      }
    }
  }
}

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int, char** arguments) {
  void (*const points[])() = {POINTS};
  std::mt19937 random(0);
  for (float* each : {a, b}) {
    for (int i = 0; i < kSize * kSize; ++i) each[i] = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  std::vector<int> order(sizeof(points) / sizeof(*points));
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < std::atoi(arguments[1]); ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (int point : order) {
      double best = 1e9;
      points[point]();
      for (int call = 0; call < kCalls; ++call) {
        const double start = now();
        points[point]();
        best = std::min(best, now() - start);
      }
      std::printf("%d %.9g %.9g\\n", point, best, c[point]);
    }
  }
}
"""


def measured(rounds: int) -> Times:
    """The seconds of every point, in each round."""
    points = list(SPACE.points())
    with tempfile.TemporaryDirectory() as scratch:
        source, program = Path(scratch, "points.cpp"), Path(scratch, "points")
        calls = (f"multiply<{', '.join(json.dumps(value) for value in values.values())}>" for values in points)
        source.write_text(PROGRAM.replace("POINTS", ", ".join(calls)))
        print(f"compiling {len(points)} points", file=sys.stderr)
        subprocess.run(["c++", "-std=c++17", *flags(), str(source), "-o", str(program)], check=True)
        print(f"measuring them {rounds} times", file=sys.stderr)
        lines = subprocess.check_output([str(program), str(rounds)], text=True).splitlines()
    times: Times = {key(values): [] for values in points}
    for line in lines:
        number, seconds, _ = line.split()
        times[key(points[int(number)])].append(float(f"{float(seconds):.5g}"))
    return times


def flags() -> list[str]:
    return shlex.split(os.environ.get("CXXFLAGS", "-O3"))


def guided(space: Space, names: Sequence[str], count: int, seed: int, look: Callable[[str], float]) -> list[str]:
    """The points that the command's search asks for, the fastest first by the times that it was told."""
    measured_names = set(names)
    kept = [number for number, values in enumerate(space.points()) if key(values) in measured_names]
    with tempfile.TemporaryDirectory() as scratch:
        about = {"op": "product", "device": "any"}
        study = Study(f"{scratch}/trials.log", about, space, kept, SEEDED, count, seed)
        seconds = {}
        while trial := study.ask():
            name = key(trial.values)
            seconds[name] = look(name)
            study.tell(trial.number, seconds[name], {"ratio": seconds[name], "state": "measured"})
    return sorted(seconds, key=seconds.__getitem__)


def by_chance(space: Space, names: Sequence[str], count: int, seed: int, look: Callable[[str], float]) -> list[str]:
    seconds = {name: look(name) for name in Random(seed).sample(names, count)}
    return sorted(seconds, key=seconds.__getitem__)


def best_of(search: Callable[..., list[str]], space: Space, times: Times, seed: int) -> dict[str, float]:
    """The true time of the point that a search ends with over the best point's: the first of its ranking
    (`unconfirmed`), and the best of the few that it confirms."""
    true_times = {name: statistics.median(rounds) for name, rounds in times.items()}
    random = Random(f"noise {seed}")

    def look(name: str) -> float:
        return statistics.median(random.choices(times[name], k=TrialBudget.min_rounds))

    ranked = search(space, list(times), round(SHARE * len(times)), seed, look)
    fastest = min(true_times.values())
    return {
        "unconfirmed": true_times[ranked[0]] / fastest,
        "confirmed": min(true_times[name] for name in ranked[:CONFIRMED]) / fastest,
    }


def spread(searches: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How often a search ends within 2% of the best, and how far off it is."""
    figures = {}
    for name in ("unconfirmed", "confirmed"):
        ordered = sorted(search[name] for search in searches)
        near = sum(ratio <= NEAR for ratio in ordered) / len(ordered)
        figures[name] = {
            "within_2_percent": near,
            "median": statistics.median(ordered),
            "p90": ordered[-len(ordered) // 10],
        }
    return figures


def report(space: Space, times: Times, seeds: int) -> dict[str, Any]:
    """How near to the best point searches of a table end: the command's, and random ones."""
    medians = {name: statistics.median(rounds) for name, rounds in times.items()}
    fastest = min(medians.values())
    noise = [statistics.quantiles(rounds, n=4) for rounds in times.values()]
    with multiprocessing.Pool() as pool:
        runs = {
            "search": pool.map(partial(best_of, guided, space, times), range(seeds)),
            "by_chance": pool.map(partial(best_of, by_chance, space, times), range(seeds)),
        }
    return {
        "tunables": space.tunables,
        "points": len(times),
        "trials": round(SHARE * len(times)),
        "rounds": len(next(iter(times.values()))),
        "searches": seeds,
        "slowest_over_fastest": max(medians.values()) / fastest,
        "points_within_2_percent": sum(value <= NEAR * fastest for value in medians.values()),
        "half_of_a_points_rounds_lie_within": statistics.median((high - low) / middle for low, middle, high in noise),
        **{name: spread(run) for name, run in runs.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--table", type=Path, metavar="FILE", help="search the table of this earlier result, of either")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the table there, too")
    options = parser.parse_args()
    if options.table:
        earlier = json.loads(options.table.read_text(encoding="utf-8"))
        space = Space({name: tuple(values) for name, values in earlier["tunables"].items()})
        times = {key(point["values"]): point["seconds"] for point in earlier["table"]}
        measured_on = earlier["measured"]
    else:
        space, times = SPACE, measured(options.rounds)
        machine = {"system": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count(), "load": os.getloadavg()}
        measured_on = {"machine": machine, "flags": " ".join(flags())}
    results = {"measured": measured_on, **report(space, times, options.seeds)}
    print(json.dumps(results, indent=1))
    if options.json:
        save(results, times, options.json)
    return 0


def save(results: dict[str, Any], times: Times, path: Path) -> None:
    """The figures, and the table at their end."""
    points = [{"values": json.loads(name), "seconds": seconds} for name, seconds in times.items()]
    results_file.write(path, {**results, "table": points})


if __name__ == "__main__":
    sys.exit(main())
