"""How fast the fused recipes are on this GPU, beside every peer that is installed.

    python benchmarks/fused.py --project DIR [--samples 50] [--ops rms_norm swiglu] [--json FILE]

DIR is a built project that holds the recipes under their own names, and this Python has its torch and kernelgen's lab.
The op and its peers take turns in each case and direction, on random inputs, with a cold L2 cache: medians with 95%
intervals. README.md of this folder describes the JSON. A peer that cannot run is left out, with the reason.
"""

import argparse
import math
import random
import sys
from pathlib import Path
from typing import Any

import torch

import results_file
from compiled import compiled
from kernelgen.errors import LabError
from kernelgen.lab import statistics
from kernelgen.protocol import OP
from kernelgen.worker import ceilings
from kernelgen.worker.environment import describe
from kernelgen.worker.op import Op, load
from peers import versions
from project import import_package
from timed_case import TimedCase

# The measured cases of each op's lab.py, and the share of this GPU's copy rate to reach, forward and backward. Bounds
# hold for tensors of 64 MiB and more.
CASES = {
    "rms_norm": ("32768 x 1024", "16384 x 4096", "8192 x 8192", "4096 x 32768", "16384 x 4096, residual"),
    "layer_norm": ("32768 x 1024", "16384 x 4096", "8192 x 8192", "4096 x 32768", "16384 x 4096, residual"),
    "swiglu": (
        *("32768 x 1024", "16384 x 4096", "4096 x 32768"),
        *("32768 x 1024, halves", "16384 x 4096, halves", "4096 x 32768, halves"),
    ),
}
BOUNDS = {"rms_norm": (0.88, 0.80), "layer_norm": (0.88, 0.80), "swiglu": (0.94, 0.94)}


def timed_case(op: Op, case: str, dtype: torch.dtype, backward: bool) -> tuple[TimedCase, dict[str, str]]:
    """A case with two sets of inputs, the recipe and the peers that can run, warmed up; and why other peers cannot."""
    # Each case is compiled for its own shape, and torch.compile gives up after a few of them.
    torch._dynamo.reset()
    timed = TimedCase(op, op.cases[case], dtype, "cuda", backward=backward)
    left_out = {}
    for name, function in {OP: op.function, **op.peers}.items():
        timed.functions[name] = function
        try:
            for _ in range(6):
                timed.sample(name)
        except Exception as error:
            if name == OP:
                raise
            del timed.functions[name]
            left_out[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return timed, left_out


def row(op: Op, case: str, dtype: torch.dtype, backward: bool, samples: int, bound: float) -> dict[str, Any]:
    """A row of the results; README.md describes it. `bound`: the share of the copy rate to reach."""
    timed, left_out = timed_case(op, case, dtype, backward)
    seconds: dict[str, list[float]] = {name: [] for name in timed.functions}
    for _ in range(samples):
        for name in random.sample(list(seconds), len(seconds)):
            seconds[name].append(timed.sample(name))
    moved, flops = (op.backward_bytes_moved, op.backward_flops) if backward else (op.bytes_moved, op.flops)
    implementations = {}
    for name, times in seconds.items():
        median = statistics.median(times)
        low, high = 1e6 * median.low, 1e6 * median.high
        implementations[name] = {"median_us": 1e6 * median.value, "low_us": low, "high_us": high}
    return {
        "op": op.name,
        "case": case,
        "dtype": str(dtype).removeprefix("torch."),
        "direction": "backward" if backward else "forward",
        "path": "portable",
        "implementations": implementations,
        "left_out": left_out,
        "bytes": moved(dtype, **op.cases[case]),
        "flops": flops(**op.cases[case]),
        "bound": {"of": "copy", "fraction": bound},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--ops", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--samples", type=int, default=50, help="samples of each implementation of each case")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    project = options.project.resolve()
    package = import_package(project).__name__

    dtype = getattr(torch, options.dtype)
    facts = {"kind": "kernelgen kernels", "title": "Norms and SwiGLU"}
    facts["command"] = "python benchmarks/fused.py --project DIR"
    facts["environment"] = describe("cuda", project, {"samples": options.samples})
    facts["peers"] = versions()
    facts["ceilings"] = ceilings.measure("cuda", (dtype,))
    facts["kernels"], facts["compile_seconds"] = compiled(project, tuple(CASES))
    print(f"copy: {facts['ceilings']['copy_bytes_per_s'] / 1e9:.0f} GB/s", flush=True)
    facts["rows"] = []
    for op in (load(package, name) for name in options.ops):
        for case in CASES[op.name]:
            for backward in (False, True):
                try:
                    bound = BOUNDS[op.name][backward]
                    facts["rows"].append(row(op, case, dtype, backward, options.samples, bound))
                except (LabError, torch.OutOfMemoryError) as error:
                    print(f"{op.name} {case}: {error}", file=sys.stderr)
                    continue
                show(facts["rows"][-1], facts["ceilings"]["copy_bytes_per_s"])
        if options.json:  # After each, so that an interrupt loses little.
            results_file.write(options.json, facts)


def show(row: dict[str, Any], copy: float) -> None:
    times = row["implementations"]
    rates = {name: row["bytes"] / time["median_us"] / 1e3 for name, time in times.items()}
    text = "  ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    of = row["bound"]["of"] if row["bound"] else "copy"
    share = rates[OP] / (copy / 1e9 if of == "copy" else rates.get(of, math.nan))
    verdict = ""
    if row["bound"]:
        bound = row["bound"]["fraction"]
        verdict = f", to be {bound}: {'met' if share >= bound else 'MISSED'}"
    if rates[OP] < max(rates.values()):
        verdict += ", not the fastest"
    case = f"{row['op']:12} {row['case']:30} {row['direction']:8}"
    print(f"{case} GB/s: {text}  {share:.3f} x {of}{verdict}", flush=True)


if __name__ == "__main__":
    main()
