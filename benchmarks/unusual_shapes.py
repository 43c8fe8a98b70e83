"""How fast the recipes are on shapes that no table has (unusual_cases.py), beside PyTorch and torch.compile.

    python benchmarks/unusual_shapes.py --project DIR [--before DIR] [--recipes rms_norm] [--json FILE]
    python benchmarks/unusual_shapes.py --compile-only --part 0/8

DIR is a built project with the recipes under their own names; this Python has its torch and kernelgen's lab. The recipe
and its peers take turns in each case, forward and backward, on random inputs and with a cold L2 cache. A ratio is the
fastest peer's time over the recipe's: above 1, the recipe is faster. Norms and swiglu are measured in training, where
torch.compile's forward keeps what its backward needs, as the recipes always do. `--before` measures another project's
recipes in the same turns, such as those of an earlier revision; its package has another name.

Most of a run is torch.compile's compiling. `--compile-only` fills its cache; several processes with a part each do that
in a minute, after which a run of all recipes takes about two.
"""

import argparse
import math
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor

import results_file
import unusual_cases
from kernelgen.lab import statistics
from kernelgen.worker.clock import CudaClock
from kernelgen.worker.environment import describe
from peers import versions
from project import import_package
from unusual_cases import CASES, PARTIAL, Case

OP, BEFORE = "op", "before"
WARM_UP = 3
LINE = "{recipe:18} {case:42} {dtype:9} {direction:9} {us:9.1f} us  {ratio:5.2f} x {best}"


def interleaved(cases: dict[str, list[Case]]) -> list[Case]:
    """The recipes in turns, so that a run that is cut short has cases of each."""
    longest = max(map(len, cases.values()))
    return [group[i] for i in range(longest) for group in cases.values() if i < len(group)]


def functions_of(case: Case, projects: dict[str, ModuleType], backward: bool) -> dict[str, Callable[..., Any]]:
    """All that is measured, by name. Only some recipes of a project are there in a quick comparison."""
    recipes = {
        name: unusual_cases.recipe_call(getattr(package, case.recipe), case)
        for name, package in projects.items()
        if hasattr(package, case.recipe)
    }
    return {**recipes, **unusual_cases.peers(case, backward), **PARTIAL.get(case.recipe, {})}


def arguments(case: Case, backward: bool) -> tuple[Any, ...]:
    needs_grad = backward or case.is_measured_in_training
    return tuple(arg.requires_grad_(needs_grad) if isinstance(arg, Tensor) else arg for arg in unusual_cases.make(case))


def call_of(
    function: Callable[..., Any], args: tuple[Any, ...], cotangents: list[Tensor], backward: bool
) -> Callable[[], Any]:
    """The forward; or the gradient alone, of all tensors, for which the forward runs here."""
    if not backward:
        return lambda: function(*args)
    output = function(*args)
    if not cotangents:
        cotangents.append(torch.randn_like(output))
    leaves = [arg for arg in args if isinstance(arg, Tensor)]
    return lambda: torch.autograd.grad(output, leaves, cotangents[0], retain_graph=True)


def measure(
    clock: CudaClock, case: Case, functions: dict[str, Callable[..., Any]], backward: bool, samples: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds by name, and why others could not run."""
    args = arguments(case, backward)
    calls, left_out, cotangents = {}, {}, []
    for name, function in functions.items():
        try:
            calls[name] = call_of(function, args, cotangents, backward)
            for _ in range(WARM_UP):
                clock.sample([calls[name]])
        except Exception as error:
            if name == OP:
                raise
            calls.pop(name, None)
            left_out[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name in random.sample(list(calls), len(calls)):
            seconds[name].append(clock.sample([calls[name]])[0])
    return seconds, left_out


def row(case: Case, backward: bool, seconds: dict[str, list[float]], left_out: dict[str, str]) -> dict[str, Any]:
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    own = medians[OP].value
    rivals = [name for name in medians if name not in (OP, BEFORE, *PARTIAL.get(case.recipe, {}))]
    best = min(rivals, key=lambda name: medians[name].value)
    return {
        "recipe": case.recipe,
        "case": case.name,
        "dtype": str(case.dtype).removeprefix("torch."),
        "direction": "backward" if backward else "forward",
        "elements": unusual_cases.elements(case),
        "best": best,
        "ratio": medians[best].value / own,
        **({"cublas_ratio": medians["cuBLAS"].value / own} if "cuBLAS" in medians and not backward else {}),
        **({"before_ratio": medians[BEFORE].value / own} if BEFORE in medians else {}),
        "us": {name: [round(1e6 * value, 2) for value in (m.value, m.low, m.high)] for name, m in medians.items()},
        "left_out": left_out,
    }


def rows(cases: list[Case], projects: dict[str, ModuleType], samples: int, end: float) -> Iterator[dict[str, Any]]:
    clock = CudaClock()
    for number, case in enumerate(cases):
        if time.monotonic() > end:
            print(f"out of time: {len(cases) - number} cases were not measured", file=sys.stderr)
            return
        torch._dynamo.reset()  # Each case is compiled for its own shape, and torch.compile gives up after a few.
        for backward in (False, True) if case.has_gradient else (False,):
            functions = functions_of(case, projects, backward)
            try:
                yield row(case, backward, *measure(clock, case, functions, backward, samples))
            except (RuntimeError, NotImplementedError) as error:
                print(f"{case.recipe} {case.name}: {error}", file=sys.stderr)


def compile_all(cases: list[Case]) -> None:
    """Fills torch.compile's cache."""
    for case in cases:
        torch._dynamo.reset()
        backward = case.is_measured_in_training
        if compiled := unusual_cases.peers(case, backward).get("torch.compile"):
            output = compiled(*arguments(case, backward))
            if backward:
                output.backward(torch.randn_like(output))
        torch.cuda.empty_cache()


def summarise(measured: list[dict[str, Any]]) -> None:
    """A line for each recipe and direction."""
    keys = dict.fromkeys((result["recipe"], result["direction"]) for result in measured)
    for recipe, direction in keys:
        group = [result for result in measured if (result["recipe"], result["direction"]) == (recipe, direction)]
        line = f"{recipe:18} {direction:9} {len(group):3} cases:"
        for key in ("ratio", "cublas_ratio", "before_ratio"):
            ratios = [result[key] for result in group if key in result]
            if ratios:
                below = sum(ratio < 0.85 for ratio in ratios)
                line += f"  {key} {geometric_mean(ratios):.3f}, least {min(ratios):.2f}, {below} below 0.85"
        print(line)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, help="a built project")
    parser.add_argument("--before", type=Path, help="another, whose package has another name")
    parser.add_argument("--recipes", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--samples", type=int, default=15, help="of each implementation of each case")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--compile-only", action="store_true", help="measure nothing")
    parser.add_argument("--part", default="0/1", help="with --compile-only: the i-th of n parts of the cases")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    torch._functorch.config.donated_buffer = False  # A gradient is computed again and again.
    cases = interleaved({recipe: CASES[recipe] for recipe in options.recipes})
    if options.compile_only:
        part, parts = map(int, options.part.split("/"))
        return compile_all(cases[part::parts])
    if not options.project:
        parser.error("--project DIR is needed: a built project")

    warnings.filterwarnings("ignore", module="unusual_cases")  # Of backends of attention that refuse a case.
    projects = {OP: import_package(options.project.resolve())}
    if options.before:
        projects[BEFORE] = import_package(options.before.resolve())
    facts: dict[str, Any] = {"kind": "kernelgen unusual shapes"}
    facts["command"] = "python benchmarks/unusual_shapes.py --project DIR"
    facts["environment"] = describe("cuda", options.project.resolve(), {"samples": options.samples})
    facts["peers"] = versions()
    facts["rows"] = []
    for result in rows(cases, projects, options.samples, end):
        facts["rows"].append(result)
        own_us = result["us"][OP][0]
        before = f"  {result['before_ratio']:.2f} x before" if "before_ratio" in result else ""
        cublas = f"  {result['cublas_ratio']:.2f} x cuBLAS" if "cublas_ratio" in result else ""
        print(LINE.format(**{**result, "us": own_us}) + cublas + before, flush=True)
    if options.json:
        results_file.write(options.json, facts)
    summarise(facts["rows"])


if __name__ == "__main__":
    main()
