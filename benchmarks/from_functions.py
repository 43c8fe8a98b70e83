"""How fast the kernels are that `add-op --from` writes, beside torch.compile(dynamic=False) of the same functions.

    python benchmarks/from_functions.py --project DIR [--device cpu] [--samples 30] [--ops gelu_bias] [--json FILE]
    python benchmarks/from_functions.py --project DIR --fill-cache 16 [--ops gelu_bias]
    python benchmarks/from_functions.py --project DIR --device cpu --shards 8 [--fill-cache 16] [--json FILE]
    OMP_NUM_THREADS=1 python benchmarks/from_functions.py --project DIR --device cpu --processor-time [--json FILE]

--steps measures a forward with its gradient as well: torch.compile's forward stores numbers of elements where its
gradient reads less so, which a forward and a gradient by themselves do not show.

DIR is stamped with an op of each function below, and built, if it is not there. This Python has torch and the lab.
The op and torch.compile take turns in each case of the op's lab.py, forward and backward; on a GPU with a cold L2
cache. A ratio is torch.compile's time over the op's: above 1, the op is faster. Most of a run is torch.compile's
compiling: --fill-cache has so many processes do that and measures nothing, before a run that has the GPU to itself; the
ops need not be built for it. On a CPU of many cores --shards measures so many ops side by side, each on cores of its
own. On one that other programs use as well, --processor-time measures what the process uses of it, which waits for none
of them; with one thread, since threads that wait for others use it too.
"""

import argparse
import ast
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

import results_file
from kernelgen.lab import statistics
from kernelgen.protocol import OP
from kernelgen.worker import clock
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, dtype_name, load
from project import import_package
from timed_case import TimedCase

FOLDER = Path(__file__).parents[1] / "tests" / "worker"
FILES = (FOLDER / "functions_to_trace.py", FOLDER / "row_functions_to_trace.py")
# The file of each function.
FUNCTIONS = {
    node.name: file for file in FILES for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)
}
# Of these, those that are measured: activations, gates, losses, tensors that are broadcast, and reductions of rows.
NAMES = (
    *("gelu", "gelu_bias", "silu", "mish", "softplus", "hardswish", "relu_squared", "quick_gelu", "soft_cap"),
    *("swiglu", "geglu", "gated_residual", "scale_shift", "adaln", "huber", "bce_with_logits", "focal", "gaussian"),
    *("softmax", "log_softmax", "rms", "layer", "log_sum_exp", "smooth_cross_entropy", "gated_rms", "kl"),
)
COMPILED = "torch.compile"
WARM_UP = 4
# Processes that compile side by side have no use for helpers of their own.
ONE_THREAD = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
# Of glibc's mallopt: freed memory above the first goes back to the system, and results above the second do at once.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST_TRIMMED, MOST_MAPPED = 2**31 - 1, 2**25
LINE = "{op:20} {case:26} {dtype:9} {direction:9} {us:8.1f} us {gbytes_per_s:6.0f} GB/s {ratio:6.2f}"


def make(project: Path, names: list[str]) -> None:
    """Stamps and builds a project with an op of each function."""
    kernelgen = [sys.executable, "-m", "kernelgen"]
    subprocess.run([*kernelgen, "new", project, "--defaults", "--data", "recipes=[]"], check=True)
    for name in names:
        subprocess.run(
            [*kernelgen, "add-op", name, "--from", f"{FUNCTIONS[name]}:{name}", "--project", project],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    subprocess.run([*kernelgen, "build", "--project", project], check=True)


class ProcessorClock(clock.CpuClock):
    """The time that a processor works for this process."""

    def sample(self, calls: Sequence[clock.Call]) -> clock.Sample:
        start = time.process_time_ns()
        results = [call() for call in calls]
        return (time.process_time_ns() - start) / 1e9 / len(calls), results


def timed_case(op: Op, case: str, dtype: torch.dtype, options: argparse.Namespace, direction: str) -> TimedCase:
    sizes = (op.cases if options.device == "cuda" else op.cpu_cases)[case]
    own_clock = ProcessorClock() if options.processor_time else None
    backward, step = direction == "backward", direction == "step"
    timed = TimedCase(op, sizes, dtype, options.device, backward=backward, step=step, own_clock=own_clock)
    timed.functions |= {OP: op.function, COMPILED: op.peers[COMPILED]}
    return timed


def row(timed: TimedCase, case: str, samples: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in timed.functions}
    for name in seconds:
        for _ in range(WARM_UP):
            timed.sample(name)
    for _ in range(samples):
        for name in random.sample(list(seconds), len(seconds)):
            seconds[name].append(timed.sample(name))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    op, given = timed.op, {"dtype": timed.dtype, **timed.sizes}
    forward, backward = op.bytes_moved(**given), op.backward_bytes_moved(**given) if op.gradient else 0
    direction = "step" if timed.step else "backward" if timed.backward else "forward"
    moved = {"forward": forward, "backward": backward, "step": forward + backward}[direction]
    return {
        "op": timed.op.name,
        "case": case,
        "dtype": dtype_name(timed.dtype),
        "direction": direction,
        "implementations": {
            name: {"median_us": 1e6 * m.value, "low_us": 1e6 * m.low, "high_us": 1e6 * m.high}
            for name, m in medians.items()
        },
        "gbytes_per_s": moved / medians[OP].value / 1e9,
        "ratio": medians[COMPILED].value / medians[OP].value,
    }


def directions(op: Op, options: argparse.Namespace) -> Sequence[str]:
    if not op.gradient:
        return ("forward",)
    return ("forward", "backward", "step") if options.steps else ("forward", "backward")


def rows(project: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    package = import_package(project).__name__
    for name in options.ops:
        torch._dynamo.reset()
        op = load(package, name)
        cases = op.cases if options.device == "cuda" else op.cpu_cases
        for case in (case for case in cases if case in (options.cases or cases)):
            for dtype in (dtype for dtype in op.bench_dtypes if dtype_name(dtype) in options.dtypes):
                for direction in directions(op, options):
                    timed = timed_case(op, case, dtype, options, direction)
                    if options.compile_only:
                        timed.sample(COMPILED)
                    else:
                        yield row(timed, case, options.samples)


def fill_cache(project: Path, options: argparse.Namespace) -> None:
    """Compiles each op's functions in a process of its own, so many at once as there are to be."""
    shared = ["--project", project, "--device", options.device, "--dtypes", *options.dtypes, "--compile-only"]
    shared += ["--steps"] * options.steps
    cases = ["--cases", *options.cases] if options.cases else []
    # On a CPU, code is for a number of threads.
    variables = os.environ | (threads_of_shard(options.shards) if options.shards else ONE_THREAD)

    def compile_alone(name: str) -> None:
        subprocess.run([sys.executable, __file__, *shared, *cases, "--ops", name], env=variables)

    with ThreadPoolExecutor(options.fill_cache) as pool:
        list(pool.map(compile_alone, options.ops))


def keep_freed_memory() -> None:
    """Has results reuse the memory of others: the page faults of new memory take as long as a kernel, and the order in
    which memory was freed decides whose results have them."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, MOST_TRIMMED)
        libc.mallopt(M_MMAP_THRESHOLD, MOST_MAPPED)


def threads_of_shard(shards: int) -> dict[str, str]:
    """The variables of a process that has the cores of a shard."""
    cores = len(os.sched_getaffinity(0)) // shards
    if not cores:
        sys.exit(f"There are fewer cores than the {shards} shards: ask for fewer.")
    return ONE_THREAD | {"OMP_NUM_THREADS": str(cores)}


def sharded(project: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What each op's process wrote, which measures on as many cores as every shard has."""
    variables = os.environ | threads_of_shard(options.shards)
    cores, of_shard = sorted(os.sched_getaffinity(0)), int(variables["OMP_NUM_THREADS"])
    free: SimpleQueue[list[int]] = SimpleQueue()
    for i in range(options.shards):
        free.put(cores[i * of_shard : (i + 1) * of_shard])
    shared = ["--project", project, "--device", options.device, "--samples", str(options.samples)]
    shared += ["--dtypes", *options.dtypes, *(["--cases", *options.cases] if options.cases else [])]
    shared += ["--steps"] * options.steps

    def measure(name: str, folder: str) -> dict[str, Any]:
        mine, file = free.get(), Path(folder) / f"{name}.json"
        subprocess.run(
            [sys.executable, __file__, *shared, "--ops", name, "--json", file],
            env=variables,
            preexec_fn=partial(os.sched_setaffinity, 0, mine),
        )
        free.put(mine)
        return json.loads(file.read_text()) if file.exists() else {"environment": {}, "rows": []}

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.shards) as pool:
        yield from pool.map(partial(measure, folder=folder), options.ops)


def revision() -> str | None:
    """The commit of kernelgen, which wrote the kernels: a project may be in no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def save(options: argparse.Namespace, environment: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    if options.json:
        value = {"command": " ".join(sys.argv), "environment": environment, "rows": measured}
        results_file.write(options.json, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--ops", nargs="+", choices=list(FUNCTIONS), default=list(NAMES))
    parser.add_argument("--cases", nargs="+", help="of lab.py (default: all)")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--steps", action="store_true", help="measure a forward with its gradient as well")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fill-cache", type=int, metavar="PROCESSES")
    parser.add_argument("--shards", type=int, metavar="PROCESSES", help="measure so many ops side by side, on a CPU")
    parser.add_argument("--processor-time", action="store_true", help="of one thread, on a CPU that others use as well")
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.processor_time and (options.device != "cpu" or options.shards or torch.get_num_threads() > 1):
        parser.error("--processor-time measures one thread on a CPU: add --device cpu, and set OMP_NUM_THREADS=1.")
    # Each case is a compilation of its own, forward and backward.
    torch._dynamo.config.recompile_limit = 64
    project = options.project.resolve()
    if not project.exists():
        make(project, options.ops)
    if options.fill_cache:
        return fill_cache(project, options)
    if options.device == "cpu":
        keep_freed_memory()
    measured: list[dict[str, Any]] = []
    if options.shards:
        for result in sharded(project, options):
            measured += result["rows"]
            save(options, result["environment"], measured)
    else:
        environment = describe(options.device, project, {"samples": options.samples}) | {"git": revision()}
        for result in rows(project, options):
            measured.append(result)
            print(LINE.format(**result, us=result["implementations"][OP]["median_us"]), flush=True)
            save(options, environment, measured)  # After each row: a run that is cut short has results.
    if not measured:
        return
    logs = [math.log(row["ratio"]) for row in measured]
    worst = min(measured, key=lambda row: row["ratio"])
    print(f"\ngeometric mean {math.exp(sum(logs) / len(logs)):.3f}, worst {worst['ratio']:.3f}")
    print("worst: {op}, {case}, {dtype}, {direction}".format(**worst))


if __name__ == "__main__":
    main()
