"""How well `kernelgen tune` uses a machine with GPUs.

    python benchmarks/tune_gpu.py --project DIR --op OP [--cases CASE ...] [--points 64] [-j 16] [--json FILE]
    python benchmarks/tune_gpu.py ... [--gpus 4 2 1] [--longer 4] [--in-turn 0] [--verdicts 0] [--loads 0]

DIR is a built project with the recipe `elementwise` and the op. On 1, 2, 4 and 8 GPUs, as far as the machine has them,
the same number of points of the op's space is compiled, without anything cached, proved and measured. The figures are
the wall time over max(compiling / compilers at once, measuring / GPUs), and over the time that compiling and measuring
the points in turn would take; the latter is measured on a few points, with one compiler and one GPU. The median time
from asking for a candidate of `elementwise` to its verdict stands beside the time of the same kernel through
`torch.utils.cpp_extension.load`, which only compiles it.

The second form measures runs on several numbers of GPUs alone. `--longer` measures each point so many times longer, as
a search over many cases does.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import results_file
from kernelgen.tune import task, tuning
from kernelgen.tune.request import Reporter, TuningRequest
from kernelgen.tune.slot import TrialBudget
from kernelgen.worker.environment import describe
from project import import_package
from tune import efficiency, loads, show

FOR_VERDICTS = "elementwise"

# The kernel of `elementwise` as a PyTorch extension is usually written.
EXTENSION = """
#include <torch/extension.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAStream.h>

template <typename T>
__global__ void multiply_add_kernel(const T* a, const T* b, const T* c, T* out, int64_t n) {
  using accumulate = at::opmath_type<T>;
  for (int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) {
    out[i] = accumulate(a[i]) * accumulate(b[i]) + accumulate(c[i]);
  }
}

torch::Tensor multiply_add(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  auto x = a.contiguous(), y = b.contiguous(), z = c.contiguous();
  auto out = torch::empty_like(x);
  const int64_t n = x.numel(), blocks = std::min<int64_t>((n + THREADS - 1) / THREADS, 65536);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "multiply_add", [&] {
    multiply_add_kernel<<<blocks, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), z.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
  });
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("multiply_add", &multiply_add); }
"""


def searched(options: argparse.Namespace, op: str, points: int, gpus: int, jobs: int) -> dict[str, Any]:
    """Figures of a search of `points` points, spread over the op's space, all compiled anew and measured to the end."""
    project = options.project.resolve()
    shutil.rmtree(project / "build" / "tune" / f"{op}-cuda" / "candidates", ignore_errors=True)
    request = TuningRequest(
        project,
        import_package(project).__name__,
        op,
        Path(sys.executable),
        device="cuda",
        cases=options.cases if op == options.op else None,
        seeds=points,
        trials=0,
        best=0,
        jobs=jobs,
        gpus=gpus,
        budget=TrialBudget(
            rounds=TrialBudget.rounds * options.longer,
            total_rounds=TrialBudget.total_rounds * options.longer,
            min_rounds=TrialBudget.min_rounds * options.longer,
            stop_margin=float("inf"),
        ),
    )
    reporter = Reporter(stats=lambda shapes, stats: show(f"{op}, {gpus} GPUs: {stats.done} of {stats.total} points"))
    (part,) = tuning.tune(request, task.read_task(request), reporter).record["searches"]
    return efficiency(part)


def in_turn(options: argparse.Namespace) -> float:
    """Seconds a point takes when points are compiled and measured one after another."""
    figures = searched(options, options.op, options.in_turn, 1, 1)
    return (figures["compiling_s"] + figures["measuring_s"]) / figures["done"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--op", required=True, help="the op to search")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="its cases to measure, of one shape class")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("-j", type=int, default=16, dest="jobs", help="compilers at once")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4, 8], help="how many GPUs, in this order")
    parser.add_argument("--longer", type=int, default=1, help="how many times as long to measure a point")
    parser.add_argument("--in-turn", type=int, default=8, help="points to compile and measure in turn")
    parser.add_argument("--verdicts", type=int, default=32, help=f"points of {FOR_VERDICTS} to wait for")
    parser.add_argument("--loads", type=int, default=2, help="times that PyTorch's own way is taken")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "machine": {"system": platform.platform(), "cores": len(os.sched_getaffinity(0))},
        "environment": describe("cuda", options.project, {}),
        "op": options.op,
        "cases": options.cases,
        "longer": options.longer,
        "runs": [],
    }
    for new_figures in measured(options):
        figures["runs"] += [new_figures.pop("run")] if "run" in new_figures else []
        figures |= new_figures
        if options.json:  # After each, so that an interrupt loses little.
            results_file.write(options.json, figures)
    print(json.dumps(figures, indent=1))
    return 0


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Figures by name, as soon as each is measured; a `run` is one entry of the list `runs`."""
    if options.verdicts:
        figures = searched(options, FOR_VERDICTS, options.verdicts, 1, options.jobs)
        yield {"ask_to_verdict_median_s": figures["ask_to_verdict_median_s"], "verdicts": figures}
    if options.loads:
        versions = [EXTENSION.replace("THREADS", str(64 << number)) for number in range(options.loads)]
        with tempfile.TemporaryDirectory() as scratch:
            yield {"cpp_extension_load_s": loads(Path(scratch), "multiply_add.cu", versions)}
    alone = in_turn(options) if options.in_turn else None
    if alone:
        yield {"in_turn_s_a_point": alone}
    for gpus in (count for count in options.gpus if count <= torch.cuda.device_count()):
        figures = searched(options, options.op, options.points, gpus, options.jobs)
        over = {"in_turn_over_it": alone * figures["done"] / figures["seconds"]} if alone else {}
        yield {"run": {"gpus": gpus, **figures, **over}}


if __name__ == "__main__":
    sys.exit(main())
