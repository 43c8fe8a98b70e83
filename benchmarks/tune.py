"""How well `kernelgen tune` uses a machine, and how soon it finds what there is to find. On the CPU.

    python benchmarks/tune.py [--chunks N] [--grains N] [--replays 200] [--loads 2] [--json FILE]

It stamps the recipe elementwise and searches a space of its CPU kernel in full: every point is compiled, proved and
measured to the end, as the command does it. From that come

- the wall time over max(compiling / compilers at once, measuring), and the median time from asking for a candidate to
  its verdict. Beside the latter: the same kernel through `torch.utils.cpp_extension.load`, which only compiles it;
- how often the sampler, replayed on the times that were found and with another seed each time, comes within 2% of the
  best after a tenth of the space, and how often as many points drawn by chance do.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kernelgen.lab.tune import tuning  # noqa: E402
from kernelgen.lab.tune.lane import Effort  # noqa: E402
from kernelgen.lab.tune.space import Space, key  # noqa: E402
from kernelgen.lab.tune.study import Study  # noqa: E402

OP, PACKAGE = "elementwise", "tuned_kernels"
CHUNKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
GRAINS = tuple(2**power for power in range(9, 21))
NEAR, SHARE = 1.02, 0.1

# The same kernel as a PyTorch extension is usually written.
EXTENSION = """
#include <torch/extension.h>
#include <ATen/Parallel.h>

torch::Tensor multiply_add(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  auto x = a.contiguous(), y = b.contiguous(), z = c.contiguous();
  auto out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "multiply_add", [&] {
    using accumulate = at::opmath_type<scalar_t>;
    const auto *p = x.data_ptr<scalar_t>(), *q = y.data_ptr<scalar_t>(), *r = z.data_ptr<scalar_t>();
    auto* o = out.data_ptr<scalar_t>();
    at::parallel_for(0, out.numel(), GRAIN, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = accumulate(p[i]) * accumulate(q[i]) + accumulate(r[i]);
    });
  });
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("multiply_add", &multiply_add); }
"""

LOAD = """
import sys, time, warnings
warnings.simplefilter("ignore")
from torch.utils.cpp_extension import load
start = time.perf_counter()
load("m", [sys.argv[1]], build_directory=sys.argv[2], extra_cflags=["-O3"])
print(time.perf_counter() - start)
"""


def stamp(folder: Path, space: Space) -> Path:
    """A project of the one op, with this space for its CPU kernel."""
    from copier import run_copy

    source = folder / "template"
    shutil.copytree(ROOT / "template", source / "template")
    shutil.copy(ROOT / "copier.yml", source)
    data = {"project_name": "tuned-kernels", "ops": [{"name": OP, "recipe": "elementwise"}]}
    run_copy(str(source), folder / "project", data=data, defaults=True, quiet=True)
    lab = folder / "project" / "src" / PACKAGE / "ops" / OP / "lab.py"
    lab.write_text(f'{lab.read_text()}\nTUNABLES = {{"cpu": {dict(space.tunables)!r}}}\n')
    return folder / "project"


def exhaustive(project: Path, space: Space) -> dict[str, Any]:
    """Every point of the space, measured to the end; the record of the search."""
    plan = tuning.Plan(
        project,
        PACKAGE,
        OP,
        Path(sys.executable),
        device="cpu",
        cases=["64K elements"],
        trials=space.size,
        best=0,
        effort=Effort(hopeless=float("inf")),
    )
    views = tuning.Views(stats=lambda shapes, stats: show(f"{stats.done} of {stats.total} points"))
    part = tuning.tune(plan, tuning.survey(plan), views).record["searches"][0]
    return part


def show(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def efficiency(part: dict[str, Any]) -> dict[str, Any]:
    stats = part["stats"]
    bound = max(stats["compiling_s"] / stats["jobs"], stats["measuring_s"] / stats["lanes"])
    compiling = [trial["compiling_s"] for trial in part["trials"] if trial["compiling_s"]]
    facts = {name: stats[name] for name in ("seconds", "compiling_s", "measuring_s", "jobs", "lanes", "done", "failed")}
    return facts | {
        "wall_over_bound": stats["seconds"] / bound,
        "ask_to_verdict_median_s": statistics.median(stats["verdicts_s"]),
        "compile_median_s": statistics.median(compiling),
        "measure_median_s": statistics.median(trial["measuring_s"] for trial in part["trials"]),
    }


def replay(space: Space, times: dict[str, float], seed: int, count: int) -> float:
    """The best of so many points that the sampler asks for, over the best that there is."""
    with tempfile.TemporaryDirectory() as scratch:
        kept = [number for number, values in enumerate(space.all()) if key(values) in times]
        about = {"op": OP, "device": "cpu"}
        study = Study(f"{scratch}/trials.log", about, space, kept, max(4, count // 3), count, seed)
        best = float("inf")
        while ask := study.ask():
            found = times[key(ask.values)]
            study.tell(ask.number, found, {"ratio": found, "state": "measured"})
            best = min(best, found)
    return best / min(times.values())


def sampling(space: Space, part: dict[str, Any], replays: int) -> dict[str, Any]:
    times = {key(trial["values"]): trial["ratio"] for trial in part["trials"] if trial["ratio"] is not None}
    count = round(SHARE * len(times))
    guided = []
    for seed in range(replays):
        show(f"{seed} of {replays} replays")
        guided.append(replay(space, times, seed, count))
    random = Random(0)
    chance = [min(random.sample(list(times.values()), count)) / min(times.values()) for _ in range(10_000)]
    ordered = sorted(times.values())
    return {
        "points": len(times),
        "trials": count,
        "replays": replays,
        "points_within_2_percent": sum(ratio <= NEAR * ordered[0] for ratio in ordered),
        "best_over_default": ordered[0],
        "worst_over_default": ordered[-1],
        "sampler": spread(guided),
        "by_chance": spread(chance),
    }


def spread(found: list[float]) -> dict[str, float]:
    """How often the best of a search is within 2% of the best, and how far off it is."""
    ordered = sorted(found)
    near = sum(ratio <= NEAR for ratio in found) / len(found)
    return {"within_2_percent": near, "median": statistics.median(found), "p90": ordered[len(ordered) * 9 // 10]}


def loads(folder: Path, times: int) -> list[float]:
    """Seconds that `torch.utils.cpp_extension.load` takes for the kernel, each time after an edit of its grain."""
    found = []
    (folder / "extension").mkdir()
    for number in range(times):
        show(f"{number} of {times} loads")
        source = folder / "multiply_add.cpp"
        source.write_text(EXTENSION.replace("GRAIN", str(1 << (12 + number))))
        command = [sys.executable, "-c", LOAD, str(source), str(folder / "extension")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(float(done.stdout.splitlines()[-1]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=len(CHUNKS))
    parser.add_argument("--grains", type=int, default=len(GRAINS))
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and every point there, too")
    options = parser.parse_args()
    space = Space({"grain": GRAINS[-options.grains :], "chunk": CHUNKS[: options.chunks]})
    before = os.getloadavg()
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        part = exhaustive(stamp(Path(scratch), space), space)
        figures = {"search": efficiency(part), "sampling": sampling(space, part, options.replays)}
        figures["cpp_extension_load_s"] = loads(Path(scratch), options.loads)
    cores = len(os.sched_getaffinity(0))
    machine = {"system": platform.platform(), "cores": cores, "load": [before, os.getloadavg()]}
    report = {"machine": machine, "seconds": time.time() - start, **figures}
    print(json.dumps(report, indent=1))
    if options.json:
        points = [
            {"values": trial["values"], "state": trial["state"], "ratios": trial["ratios"]} for trial in part["trials"]
        ]
        options.json.write_text(json.dumps({**report, "points": points}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
