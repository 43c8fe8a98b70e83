"""The tables of docs/fp8.md, from what fp8.py and fp8_block.py measured."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from summary import RECIPE

RESULTS = Path(__file__).with_name("results")
TORCH, TORCH_LAYER, BARE = "torch scaled_mm", "torch linear", "without bias and activation"
TIMES = "\N{MULTIPLICATION SIGN}"
VERSIONS = {
    "bfloat16": "bfloat16: this project's norms, PyTorch's products",
    "ours, rows": "these recipes, by row",
    "ours, blocks": "these recipes, by groups and blocks",
    "ours, rows, attention": "by row, attention in 8 bits too",
    "ours, blocks, attention": "by groups and blocks, attention in 8 bits too",
    "torch, rows": "torch.compile and PyTorch's products, by row",
}


def tables() -> list[str]:
    """All of them, with what they are of."""
    kernels = json.loads((RESULTS / "kernels-fp8.json").read_text())
    block = json.loads((RESULTS / "fp8_block_h200.json").read_text())
    machine, rows = kernels["environment"], [row for row in kernels["rows"] if row["op"] == "linear_fp8"]
    return [
        f"`{kernels['command']}` on an {machine['gpu']['name']}, torch {machine['torch']}. Products of x (M, K) and a",
        "weight (N, K), 4,096 of each where only tokens are named, in microseconds, beside",
        "`torch.nn.functional.scaled_mm` with the same scales, and by row with its own fast accumulation:",
        "",
        *products(rows),
        "",
        "A bias and an activation in the epilogue, beside the bare product:",
        "",
        *epilogues(rows),
        "",
        "A layer of 8,192 rows and 4,096 columns in training; peers quantise behind `torch.compile`, or compute in",
        "bfloat16:",
        "",
        *training(rows),
        "",
        f"A transformer block of {block['tokens']:,} tokens (hidden 4,096, MLP 14,336), `{block['command']}` on an",
        f"{block['environment']['gpu']['name']}; the error is that of what the block adds to its input:",
        "",
        *versions(block["versions"]),
        "",
    ]


def products(rows: Iterable[dict[str, Any]]) -> list[str]:
    by_size: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        times, (size, scaling, *more) = _times(row), row["case"].split(", ")
        if scaling in ("rows", "blocks") and BARE not in times:
            by_size.setdefault(", ".join([_size(size), *more]), {})[scaling] = times
    lines = [
        f"| M {TIMES} N {TIMES} K | by row | PyTorch | of its speed | groups and blocks | PyTorch | of its speed |",
        _rule(7),
    ]
    for size, scalings in by_size.items():
        cells = [cell for scaling in ("rows", "blocks") for cell in _beside(scalings.get(scaling, {}), TORCH)]
        lines.append(_line([size, *cells]))
    return lines


def epilogues(rows: Iterable[dict[str, Any]]) -> list[str]:
    lines = ["| product | with bias and activation | bare | more |", _rule(4)]
    for row in rows:
        if (times := _times(row)).get(BARE):
            more = f"{times[RECIPE] / times[BARE] - 1:.1%}"
            lines.append(_line([_size(row["case"]), *map(_us, (times[RECIPE], times[BARE])), more]))
    return lines


def training(rows: Iterable[dict[str, Any]]) -> list[str]:
    head = "| gradient | direction | `linear_fp8` | PyTorch by row | of its speed | PyTorch, bfloat16 | of its speed |"
    lines = [head, _rule(7)]
    for row in (row for row in rows if "training" in row["case"]):
        times = _times(row)
        both = [*_beside(times, TORCH), *_beside(times, TORCH_LAYER)[1:]]
        lines.append(_line([row["case"].partition("gradient ")[2], row["direction"], *both]))
    return lines


def versions(measured: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| block | microseconds | over bfloat16 | error |", _rule(4)]
    for name, version in measured.items():
        cells = [VERSIONS[name], f"{version['us']:,.0f}", f"{version['speed']:.2f}", f"{version['error']:.4f}"]
        lines.append(_line(cells))
    return lines


def _times(row: dict[str, Any]) -> dict[str, float]:
    return {name: times["median_us"] for name, times in row["implementations"].items()}


def _beside(times: dict[str, float], peer: str) -> list[str]:
    """The recipe's time, the peer's, and the share of its speed; empty where one is missing."""
    own, other = times.get(RECIPE), times.get(peer)
    return [_us(own), _us(other), f"{other / own:.2f}" if own and other else ""]


def _us(value: float | None) -> str:
    return f"{value:,.1f}" if value else ""


def _size(case: str) -> str:
    return case.replace(" x ", f" {TIMES} ")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _rule(columns: int) -> str:
    return "|" + " --- |" * columns
