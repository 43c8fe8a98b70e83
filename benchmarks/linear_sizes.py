"""How fast linear_activation is on sizes drawn at random, beside cuBLAS.

    python benchmarks/linear_sizes.py --project DIR [--before DIR] [--seconds 60] [--seed 1] [--json FILE]

DIR is a built project that holds the recipe under its own name. Sizes are of three kinds in turns: N and K of layers of
models, N and K any multiples of 8, and N and K any numbers, mostly odd; an eighth have fewer than 64 rows, the others
up to 1,024. The dtype and the activation are drawn as well. The peer is PyTorch's linear without an activation:
cuBLAS's product with the bias. All take turns with a cold L2 cache; the CPU enqueues a size's samples while the GPU
waits, so that no launch is in their times. A ratio is the peer's median over the recipe's. `--before` measures another
project's recipe, of another package, in the same turns.
"""

import argparse
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import results_file
from kernelgen.lab import statistics
from kernelgen.worker.environment import describe
from project import import_package

LAYERS = (512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1600, 1664, 1792, 1920, 2048, 2304, 2560, 2816, 3072, 3200)
LAYERS += (3328, 3584, 4096, 4304, 4544, 4608, 5120, 5376, 5632, 6144, 6656, 7168, 8192, 8960, 9216, 10240, 11008)
LAYERS += (12288, 13824, 14336, 16384)
KINDS = ("layers", "multiples of 8", "any numbers")
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
ROWS = ((1, 63), (64, 255), (256, 1024))
WEIGHT_MB = ((0, 2), (2, 30), (30, 80), (80, math.inf))
LEAST = 0.9
# Cycles that the GPU waits before a size's samples, and before each, so that the CPU's time does not count.
FIRST_WAIT, WAIT = 1_000_000, 200_000
Calls = dict[str, Callable[[], Tensor]]
# Kind, dtype, activation, rows, N, K, and microseconds by name.
Row = tuple[str, str, str, int, int, int, dict[str, float]]


class Turns:
    """Times calls in random turns, each with a cold L2 cache."""

    def __init__(self, samples: int, most_calls: int) -> None:
        self.samples = samples
        size = max(2 * torch.cuda.get_device_properties(0).L2_cache_size, 64 * 2**20)
        self._flush = torch.empty(size, dtype=torch.uint8, device="cuda")
        count = samples * most_calls
        self._events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]

    def medians(self, calls: Calls) -> dict[str, float]:
        """Microseconds by name."""
        order = [name for _ in range(self.samples) for name in random.sample(list(calls), len(calls))]
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        torch.cuda._sleep(FIRST_WAIT)
        for name, (start, end) in zip(order, self._events, strict=False):
            torch.cuda._sleep(WAIT)
            self._flush.fill_(1)
            start.record()
            calls[name]()
            end.record()
        torch.cuda.synchronize()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for name, (start, end) in zip(order, self._events, strict=False):
            times[name].append(start.elapsed_time(end) * 1e3)
        return {name: round(statistics.median(values).value, 2) for name, values in times.items()}


def log_uniform(generator: random.Random, least: int, most: int) -> int:
    return round(math.exp(generator.uniform(math.log(least - 0.49), math.log(most + 0.49))))


def drawn(generator: random.Random, kind: str) -> tuple[int, int, int]:
    """Rows, N and K."""
    rows = log_uniform(generator, *((1, 63) if generator.random() < 1 / 8 else (64, 1024)))
    match kind:
        case "layers":
            return rows, generator.choice(LAYERS), generator.choice(LAYERS)
        case "multiples of 8":
            return rows, 8 * log_uniform(generator, 8, 2048), 8 * log_uniform(generator, 8, 2048)
    return rows, log_uniform(generator, 64, 16384), log_uniform(generator, 64, 16384)


def measured(recipes: dict[str, Any], turns: Turns, generator: random.Random, kind: str) -> Row:
    m, n, k = drawn(generator, kind)
    dtype, activation = generator.choice((torch.bfloat16, torch.float16)), generator.choice(ACTIVATIONS)
    x, weight, bias = (torch.randn(shape, device="cuda", dtype=dtype) for shape in ((m, k), (n, k), (n,)))
    weight *= k**-0.5
    calls: Calls = {"cuBLAS": lambda: functional.linear(x, weight, bias)}
    for name, recipe in recipes.items():
        calls[name] = lambda recipe=recipe: recipe(x, weight, bias, activation)
    return kind, str(dtype).removeprefix("torch."), activation, m, n, k, turns.medians(calls)


def groups(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """By kind and rows, and by the size of W."""
    named = []
    for kind in KINDS:
        for least, most in ROWS:
            group = [row for row in rows if row[0] == kind and least <= row[3] <= most]
            named.append((f"{kind}, {least} to {most} rows", group))
    for least, most in WEIGHT_MB:
        group = [row for row in rows if row[3] >= 64 and least <= 2e-6 * row[4] * row[5] < most]
        named.append((f"W of {least} to {most} MB, 64 rows and more", group))
    return [(name, group) for name, group in named if group]


def summary(rows: list[Row], recipe: str) -> list[dict[str, Any]]:
    """Of each group: how many sizes, the geometric mean of ratios, and how many are below LEAST."""
    lines = []
    for name, group in groups(rows):
        ratios = [times["cuBLAS"] / times[recipe] for *_, times in group]
        mean, below = math.exp(sum(map(math.log, ratios)) / len(ratios)), sum(ratio < LEAST for ratio in ratios)
        lines.append(
            {"sizes": name, "count": len(group), "mean": mean, "below": below / len(group), "least": min(ratios)}
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True, help="a built project")
    parser.add_argument("--before", type=Path, help="another, whose package has another name")
    parser.add_argument("--seconds", type=float, default=60, help="begin no size after so many")
    parser.add_argument("--samples", type=int, default=7, help="of each call of each size")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    projects = {"op": options.project, **({"before": options.before} if options.before else {})}
    recipes = {name: import_package(project.resolve()).linear_activation for name, project in projects.items()}
    torch.set_grad_enabled(False)
    torch.manual_seed(options.seed)
    turns, generator = Turns(options.samples, 1 + len(recipes)), random.Random(options.seed)
    end, rows = time.monotonic() + options.seconds, []
    while time.monotonic() < end:
        rows.append(measured(recipes, turns, generator, KINDS[len(rows) % len(KINDS)]))
    for recipe in recipes:
        print(f"{recipe}: cuBLAS's time over the recipe's")
        for line in summary(rows, recipe):
            print("  {sizes:44} {count:5}: {mean:.3f}, {below:.1%} below 0.9, least {least:.2f}".format(**line))
    if options.json:
        facts = {"kind": "kernelgen linear sizes", "command": "python benchmarks/linear_sizes.py --project DIR"}
        facts["environment"] = describe("cuda", options.project.resolve(), {"seed": options.seed})
        facts["groups"], facts["sizes"] = summary(rows, "op"), rows
        results_file.write(options.json, facts)


if __name__ == "__main__":
    main()
