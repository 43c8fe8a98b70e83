"""How well `kernelgen tune` uses a machine without GPUs. (With GPUs: tune_gpu.py. How near it comes to the best point:
tune_search.py.)

    python benchmarks/tune.py [--chunks N] [--grains N] [--loads 2] [--simulate] [--json FILE]

It stamps the recipe elementwise, gives its CPU kernel a loop in which the tunables matter, and searches the whole
space: every point is compiled, proved and measured to the end, as the command does it. The figures are the wall time
over max(compiling / compilers at once, measuring), and the median time from asking for a candidate to its verdict;
beside the latter, the same kernel through `torch.utils.cpp_extension.load`, which compiles it and no more.

With --simulate, compilers and GPUs only wait, for a known time, around the real search and a real journal: the overhead
of the search itself, with 16 compilers and 1, 4 and 8 GPUs.
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
from typing import Any

import results_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kernelgen.tune import task, tuning  # noqa: E402
from kernelgen.tune.candidates import Candidate  # noqa: E402
from kernelgen.tune.request import Reporter, TuningRequest  # noqa: E402
from kernelgen.tune.search import Search  # noqa: E402
from kernelgen.tune.slot import MEASURED, TrialBudget, TrialResult  # noqa: E402
from kernelgen.tune.space import Space, Values, key  # noqa: E402
from kernelgen.tune.study import Study  # noqa: E402

OP, PACKAGE = "elementwise", "tuned_kernels"
CHUNKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
GRAINS = tuple(2**power for power in range(9, 21))

# A loop that copies each chunk through a buffer. For a chunk of one nothing tells the compiler that what is written is
# not read again; for a larger one the buffer does.
LOOP = """\
struct Defaults {
  static constexpr int64_t grain = 1 << 14;  // fewer elements are not worth a second thread
  static constexpr int chunk = 1;            // elements that are loaded and computed before any is stored
};

template <typename T>
T multiply_add(T a, T b, T c) {
  using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;
  return static_cast<T>(Accumulate(a) * Accumulate(b) + Accumulate(c));
}

template <typename Tuned, typename T>
void multiply_add(const T* a, const T* b, const T* c, T* out, int64_t n) {
  torch::stable::parallel_for(0, n, Tuned::grain, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    if constexpr (Tuned::chunk > 1) {
      for (; i + Tuned::chunk <= end; i += Tuned::chunk) {
        T results[Tuned::chunk];
        for (int k = 0; k < Tuned::chunk; ++k) {
          results[k] = multiply_add(a[i + k], b[i + k], c[i + k]);
        }
        std::copy(results, results + Tuned::chunk, out + i);
      }
    }
    for (; i < end; ++i) {
      out[i] = multiply_add(a[i], b[i], c[i]);
    }
  });
}

"""

# The same kernel as a PyTorch extension is usually written.
EXTENSION = """
#include <torch/extension.h>
#include <ATen/OpMathType.h>
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
load("m", [sys.argv[1]], build_directory=sys.argv[2], extra_cflags=["-O3"], extra_cuda_cflags=["-O3"])
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
    kernel = lab.with_name("cpu.cpp")
    text = kernel.read_text()
    start, end = text.index(f"using {OP}_kernel::Defaults;"), text.index(f"Tensor {OP}_cpu(")
    text = text[:start] + LOOP + text[end:]
    kernel.write_text(text.replace("#include <type_traits>", "#include <algorithm>\n#include <type_traits>"))
    return folder / "project"


def exhaustive(project: Path, space: Space) -> dict[str, Any]:
    """Every point of the space, measured to the end; the record of the search."""
    request = TuningRequest(
        project,
        PACKAGE,
        OP,
        Path(sys.executable),
        device="cpu",
        cases=["64K elements"],
        trials=space.size,
        best=0,
        budget=TrialBudget(stop_margin=float("inf")),
    )
    reporter = Reporter(stats=lambda shapes, stats: show(f"{stats.done} of {stats.total} points"))
    return tuning.tune(request, task.read_task(request), reporter).record["searches"][0]


def show(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def efficiency(part: dict[str, Any]) -> dict[str, Any]:
    stats = part["stats"]
    bound = max(stats["compiling_s"] / stats["jobs"], stats["measuring_s"] / stats["slots"])
    compiling = [trial["compiling_s"] for trial in part["trials"] if trial["compiling_s"]]
    facts = {name: stats[name] for name in ("seconds", "compiling_s", "measuring_s", "jobs", "slots", "done", "failed")}
    return facts | {
        "wall_over_bound": stats["seconds"] / bound,
        "ask_to_verdict_median_s": statistics.median(stats["verdicts_s"]),
        "compile_median_s": statistics.median(compiling),
        "measure_median_s": statistics.median(trial["measuring_s"] for trial in part["trials"]),
    }


def loads(folder: Path, name: str, versions: list[str]) -> list[float]:
    """Seconds that `torch.utils.cpp_extension.load` takes for a source of this name, each time after an edit."""
    seconds = []
    (folder / "extension").mkdir()
    for number, text in enumerate(versions):
        show(f"{number} of {len(versions)} loads")
        source = folder / name
        source.write_text(text)
        command = [sys.executable, "-c", LOAD, str(source), str(folder / "extension")]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(float(result.stdout.splitlines()[-1]))
    return seconds


# ---- Compilers and GPUs that only wait -----------------------------------------------------------------------

WAITING = Space({"a": tuple(range(16)), "b": tuple(range(16)), "c": tuple(range(10))})
COMPILE_S, MEASURE_S, JOBS, TRIALS = 2.0, 1.0, 16, 120


class WaitingCompiler:
    default = Candidate(Path("default"), [], 0.0)
    jobs = at_once = JOBS

    def compile(self, values: Values) -> Candidate:
        time.sleep(COMPILE_S)
        return Candidate(Path(key(values)) / "library", [], COMPILE_S)

    def close(self) -> None:
        pass


class WaitingSlot:
    def start(self, default: Candidate) -> None:
        pass

    def measure(self, candidate: Candidate, *_: Any) -> TrialResult:
        time.sleep(MEASURE_S)
        values = json.loads(str(candidate.library.parent))
        ratio = 1 + sum((value - 7) ** 2 for value in values.values()) / 100
        return TrialResult(MEASURED, ratio, {"case": ratio}, seconds=MEASURE_S)

    def close(self) -> None:
        pass


def simulated(gpus: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        study = Study(
            f"{scratch}/trials.log", {"op": OP, "device": "none"}, WAITING, range(WAITING.size), 20, TRIALS, 0
        )
        search = Search(study, WaitingCompiler(), [WaitingSlot() for _ in range(gpus)], [], budget=TrialBudget())
        search.run()
    bound = max(TRIALS * COMPILE_S / JOBS, TRIALS * MEASURE_S / gpus)
    return {
        "gpus": gpus,
        "seconds": search.stats.seconds,
        "over_bound": search.stats.seconds / bound,
        "in_turn_over_it": TRIALS * (COMPILE_S + MEASURE_S) / search.stats.seconds,
    }


def simulate(report: Path | None) -> int:
    facts = {"compile_s": COMPILE_S, "measure_s": MEASURE_S, "compilers": JOBS, "trials": TRIALS}
    results = {"simulated": True, **facts, "load": os.getloadavg(), "runs": [simulated(gpus) for gpus in (1, 4, 8)]}
    print(json.dumps(results, indent=1))
    if report:
        results_file.write(report, results)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=len(CHUNKS))
    parser.add_argument("--grains", type=int, default=len(GRAINS))
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and every point there, too")
    options = parser.parse_args()
    if options.simulate:
        return simulate(options.json)
    space = Space({"grain": GRAINS[-options.grains :], "chunk": CHUNKS[: options.chunks]})
    before = os.getloadavg()
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        versions = [EXTENSION.replace("GRAIN", str(1 << (12 + number))) for number in range(options.loads)]
        figures: dict[str, Any] = {"cpp_extension_load_s": loads(Path(scratch), "multiply_add.cpp", versions)}
        part = exhaustive(stamp(Path(scratch), space), space)
        figures |= {"search": efficiency(part)}
    cores = len(os.sched_getaffinity(0))
    machine = {"system": platform.platform(), "cores": cores, "load": [before, os.getloadavg()]}
    report = {"machine": machine, "seconds": time.time() - start, **figures}
    print(json.dumps(report, indent=1))
    if options.json:
        points = [
            {"values": trial["values"], "state": trial["state"], "ratios": trial["ratios"]} for trial in part["trials"]
        ]
        results_file.write(options.json, {**report, "points": points})
    return 0


if __name__ == "__main__":
    sys.exit(main())
