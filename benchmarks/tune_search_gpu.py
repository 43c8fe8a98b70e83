"""How near to the best point the search of `kernelgen tune` comes in a GPU kernel's space, on tables of its times.

    python benchmarks/tune_search_gpu.py --project DIR --out DIR [--cases CASE ...] [--rounds 11] [--seeds 200] [-j 16]

DIR is a built project with the recipe `linear_activation`, on a GPU of compute capability 9.0. The kernel is that
recipe's for wgmma, for bfloat16 and without an activation; its space is that of its lab.py with one height of bands, as
far as the gates let it pass. Every point is compiled, held against cuBLAS, and measured for each of the cases in
several rounds, in another order each time and with a cold L2 cache. What cannot be launched or is wrong is left out.
Each case's table is then searched as tune_search.py says, and written to --out.
"""

import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from kernelgen.tune import gates
from kernelgen.tune.device_limits import device_limits
from kernelgen.tune.space import Space, Values, key
from kernelgen.worker.clock import Call, CudaClock, captured
from kernelgen.worker.environment import describe
from project import import_package
from tune_search import Times, report, save

OP, CHIP = "linear_activation", "9.0"
CASES = ("256 tokens", "2048 x 4096 x 4096", "128 tokens, few columns")
# Bands of tiles matter least, and three heights of them would triple what there is to compile.
FIXED = {"band": (8,)}

SOURCE = """
#define INSTANCE_T bfloat16
#define INSTANCE_GROUP(Instantiate, Activation)
#include "sm90/forward.cu"

using namespace linear_activation_kernel;
using namespace linear_activation_kernel::sm90;

struct Values : Defaults<Large> {
MEMBERS
};

extern "C" cudaError_t forward(
    const bfloat16* x,
    const bfloat16* w,
    const bfloat16* b,
    bfloat16* y,
    int64_t m,
    int64_t n,
    int64_t k,
    int multiprocessors,
    cudaStream_t stream) {
  return launch<bfloat16, None, Tile<Values>>({x, w, b, y, nullptr, m, n, k}, multiprocessors, stream);
}
"""


def points(lab: Any, space: Space, sizes: dict[str, int]) -> Iterator[Values]:
    """The points that pass the gates."""
    estimate, chip = lab.ESTIMATES[f"cuda {CHIP}"], device_limits(CHIP)
    for values in space.points():
        if gates.judge(estimate(values, torch.bfloat16, **sizes), chip) is None:
            yield values


def compiled(project: Path, folder: Path, values: Values) -> Path | None:
    """A library with these values; None where the compiler refuses them."""
    members = (
        f"  static constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {int(value)};"
        for name, value in values.items()
    )
    stem = folder / "-".join(str(int(value)) for value in values.values())
    stem.with_suffix(".cu").write_text(SOURCE.replace("MEMBERS", "\n".join(members)))
    (package,) = (path.parent for path in (project / "src").glob("*/__init__.py"))
    includes = (package / "include", package / "ops" / OP, project / "build" / "release" / "generated")
    command = ["nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a"]
    command += [*(f"-I{path}" for path in includes), "-DHAS_SM_80=1", "-DHAS_SM_90A=1", "-DOP_NAMESPACE=table"]
    command += ["-Xcompiler=-fPIC", "-shared", "-o", str(stem.with_suffix(".so")), str(stem.with_suffix(".cu"))]
    result = subprocess.run(command, capture_output=True, check=False)
    return stem.with_suffix(".so") if result.returncode == 0 else None


def call_of(library: Path, x: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Call:
    forward = ctypes.CDLL(str(library)).forward
    forward.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3 + [ctypes.c_int, ctypes.c_void_p]
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    (m, k), n = x.shape, len(w)

    def call() -> Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (tensor.data_ptr() for tensor in (x, w, b, y))
        if error := forward(*pointers, m, n, k, multiprocessors, stream):
            raise RuntimeError(f"CUDA error {error}")
        return y

    return call


def is_right(call: Call, expected: Tensor) -> bool:
    """Whether the call can be launched, and gives the product but for rounding."""
    try:
        result = call().float()
    except RuntimeError:
        return False
    return torch.allclose(result, expected.float(), rtol=2**-6, atol=2**-6 * float(expected.float().std()))


def measured(libraries: dict[str, Path], sizes: dict[str, int], rounds: int) -> Times:
    """The seconds of every point that gives the right result, in each round."""
    m, n, k = (sizes[name] for name in "mnk")
    draw = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    x, w, b = draw(m, k), draw(n, k) * k**-0.5, draw(n)
    expected, clock, replays = torch.nn.functional.linear(x, w, b), CudaClock(), {}
    for name, library in libraries.items():
        call = call_of(library, x, w, b, torch.empty_like(expected))
        if is_right(call, expected) and (replay := captured(call)):
            replays[name] = replay
    times: Times = {name: [] for name in replays}
    order, random = list(replays), Random(0)
    for name in order:
        clock.sample([replays[name]])
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            times[name].append(float(f"{clock.sample([replays[name]])[0]:.5g}"))
    return times


def compile_all(project: Path, folder: Path, points: list[Values], jobs: int) -> dict[str, Path]:
    compile_point: Callable[[Values], Path | None] = partial(compiled, project, folder)
    with ThreadPoolExecutor(jobs) as pool:
        libraries = dict(zip(map(key, points), pool.map(compile_point, points), strict=True))
    return {name: path for name, path in libraries.items() if path}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results, one for each case")
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="CASE", help="those of lab.py to measure")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seeds", type=int, default=200, help="searches of each table")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)), dest="jobs", help="compilers at once")
    options = parser.parse_args()
    project, cases = options.project.resolve(), options.cases
    lab = importlib.import_module(f"{import_package(project).__name__}.ops.{OP}.lab")
    space = Space({**lab.TUNABLES[f"cuda {CHIP}"], **FIXED})
    kept = list(points(lab, space, lab.CASES[cases[0]]))
    options.out.mkdir(parents=True, exist_ok=True)
    measured_on = {"environment": describe("cuda", options.project, {}), "op": OP}
    with tempfile.TemporaryDirectory() as scratch:
        print(f"compiling {len(kept)} points", file=sys.stderr)
        libraries = compile_all(project, Path(scratch), kept, options.jobs)
        for case in cases:
            times = measured(libraries, lab.CASES[case], options.rounds)
            print(f"{case}: measured {len(times)} of {len(libraries)} that compile", file=sys.stderr)
            results = {"measured": {**measured_on, "case": case}, **report(space, times, options.seeds)}
            save(results, times, options.out / f"tune_search_gpu_{case.replace(',', '').replace(' ', '_')}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
