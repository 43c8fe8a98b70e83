"""What README and docs/performance.md say of the recipes' speed, in geometric means.

README's are over the rows of `results/kernels-*.json`: only the path that a Hopper GPU takes by default counts, in
bfloat16. A ratio is a peer's time over the recipe's: above 1 the recipe is faster.
"""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

RESULTS = Path(__file__).parent / "results"
UNUSUAL = RESULTS / "unusual_shapes.json"
SPILLS = RESULTS / "spills.json"
# The least ratio that a shape may have.
LEAST = 0.85
RECIPE = "op"
DTYPE = "bfloat16"
# The recipes with code of their own for Hopper, and the names of its path in results.
HOPPER_PATHS = {
    "flash_attention": ("hopper", "sm90"),
    "linear_activation": ("sm_90a", "sm90"),
    "linear_fp8": ("sm90",),
}
# What the results call PyTorch's eager operators.
PYTORCH = ("torch", "eager", "torch flash")
COMPILED = "torch.compile"
# Peers that compute less than the recipe: no ratio is taken to them.
PARTIAL = ("linear", "without bias and activation")
# Names that readers know; a peer that is not here keeps the name of its results.
PEERS = {"torch cudnn": "cuDNN", "flash-attn 4": "FlashAttention 4", "_addmm_activation": "cuBLASLt"}
DIRECTIONS = {"forward": "forward", "backward": "backward", "both": "forward + backward"}


@dataclass(frozen=True)
class Ratio:
    """A peer's time over the recipe's: the geometric mean over `cases`, the least and the greatest."""

    op: str
    direction: str
    peer: str
    cases: int
    mean: float
    low: float
    high: float


def load() -> list[dict[str, Any]]:
    """The results of kernels, in the order of docs/performance.md."""
    return [json.loads(file.read_text()) for file in sorted(RESULTS.glob("kernels-*.json"))]


def ratios(results: list[dict[str, Any]]) -> list[Ratio]:
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in (row for result in results for row in result["rows"]):
        if row["dtype"] != DTYPE or row["path"] not in HOPPER_PATHS.get(row["op"], ("portable",)):
            continue
        own_time = row["implementations"][RECIPE]["median_us"]
        for peer, time in row["implementations"].items():
            if peer != RECIPE and peer not in PARTIAL:
                key = row["op"], DIRECTIONS[row["direction"]], peer
                values.setdefault(key, []).append(time["median_us"] / own_time)
    return [Ratio(*key, len(group), geometric_mean(group), min(group), max(group)) for key, group in values.items()]


def machine(results: list[dict[str, Any]]) -> str:
    """The GPU and the version of PyTorch that all results share."""
    environments = {(r["environment"]["gpu"]["name"], r["environment"]["torch"]) for r in results}
    (gpu, torch), *others = environments
    if others:
        raise ValueError(f"results/kernels-*.json were measured on different machines: {environments}")
    return f"{gpu}, PyTorch {torch.partition('+')[0]}"


def table(results: list[dict[str, Any]]) -> list[str]:
    """The table of README: ratios by recipe and direction."""
    lines = ["| recipe | direction | PyTorch | torch.compile | other kernels |", "|" + " --- |" * 5]
    groups: dict[tuple[str, str], list[Ratio]] = {}
    for ratio in ratios(results):
        groups.setdefault((ratio.op, ratio.direction), []).append(ratio)
    for (op, direction), group in groups.items():
        pytorch = next((f"{ratio.mean:.2f}" for ratio in group if ratio.peer in PYTORCH), "")
        compiled = next((f"{ratio.mean:.2f}" for ratio in group if ratio.peer == COMPILED), "")
        others = (ratio for ratio in group if ratio.peer not in (*PYTORCH, COMPILED))
        kernels = ", ".join(f"{PEERS.get(ratio.peer, ratio.peer)} {ratio.mean:.2f}" for ratio in others)
        lines.append(f"| `{op}` | {direction} | {pytorch} | {compiled} | {kernels} |")
    return lines


def compiling() -> str:
    """The sentence of README on how long the objects of a recipe's `.cu` files take to compile."""
    results = json.loads(SPILLS.read_text())
    seconds: dict[str, list[float]] = {}
    for row in results["rows"]:
        if row["architecture"] == "9.0a":
            seconds.setdefault(row["object"].partition("/")[0], []).append(row["seconds"])
    spans = {op: " to ".join(dict.fromkeys(f"{end(times):.0f}" for end in (min, max))) for op, times in seconds.items()}
    *first, last = (f"{span} s for `{op}`" for op, span in spans.items())
    sentence = f"Compiling an object of a `.cu` file for 9.0a takes {', '.join(first)} and {last},"
    return "\n".join(textwrap.wrap(f"{sentence} on a core of an {results['cpu'].replace('(R)', '')}.", 120))


def unusual_groups(results: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of unusual_shapes.py by recipe and direction."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    recipes = list(dict.fromkeys(row["recipe"] for row in results["rows"]))
    for row in sorted(results["rows"], key=lambda row: (recipes.index(row["recipe"]), row["direction"] != "forward")):
        groups.setdefault((row["recipe"], row["direction"]), []).append(row)
    return groups


def unusual_table(results: dict[str, Any]) -> list[str]:
    """The distribution of the ratios to the fastest peer."""
    lines = [
        "| recipe | direction | shapes | geometric mean | least | below 0.85 | of cuBLAS alone |",
        "|" + " --- |" * 7,
    ]
    for (recipe, direction), rows in unusual_groups(results).items():
        values = [row["ratio"] for row in rows]
        cublas = [row["cublas_ratio"] for row in rows if "cublas_ratio" in row]
        alone = f"{geometric_mean(cublas):.2f}, least {min(cublas):.2f}" if cublas else ""
        below = sum(value < LEAST for value in values)
        cells = len(values), f"{geometric_mean(values):.2f}", f"{min(values):.2f}", below, alone
        lines.append(f"| `{recipe}` | {direction} | {' | '.join(map(str, cells))} |")
    return lines
