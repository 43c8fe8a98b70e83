"""The tables of docs/serving.md, from what serving.py measured."""

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

RESULTS = Path(__file__).with_name("results") / "serving_h100.json"
PEERS = {"varlen_attn": "`varlen_attn`", "flash-attn 4": "FlashAttention 4", "FlashInfer": "FlashInfer"}
PAGES = (16, 64, 128, 256)
TIMES = "\N{MULTIPLICATION SIGN}"


def tables() -> list[str]:
    """All of them, with what they are of."""
    results = json.loads(RESULTS.read_text())
    environment, versions = results["environment"], results["peers"]
    measured = (
        f"`{results['command']}` on an {environment['gpu']}, torch {environment['torch']}, bfloat16: microseconds, all "
        "implementations of a row in turns. `varlen_attn` is PyTorch's; where heads share keys it was given copies of "
        f"these. FlashAttention 4 is flash-attn-4 {versions['flash-attn-4']}, FlashInfer flashinfer-python "
        f"{versions['flashinfer-python']}, which has no gradient."
    )
    of_pages = (
        "Attention over pages, 32 heads of 128 dimensions on 8 heads of keys, causal, beside `flash_attention` over "
        "the same keys without pages, FlashAttention 4 and FlashInfer:"
    )
    return [
        *textwrap.wrap(measured, 120),
        "",
        *varlen(results["varlen"]),
        "",
        *textwrap.wrap(of_pages, 120),
        "",
        *paged(results["paged"]),
        "",
        "`append_to_cache`, 8 heads of 128 dimensions in pages of 64, and the rate at which it reads and writes:",
        "",
        *append(results["append"]),
        "",
    ]


def varlen(rows: list[dict[str, Any]]) -> list[str]:
    """Sequences of different lengths beside the peers, and equal ones beside flash_attention."""
    head = ["sequences", "heads", "mask", "", "op", *PEERS.values(), "its best peer's share"]
    head += ["`flash_attention`, `mma.sync`", "`flash_attention`", "its share"]
    lines, best = _head(head), {"forward": [], "backward": []}
    for row in rows:
        us = row["us"]
        share = min(us[peer] for peer in PEERS if peer in us) / us["op"]
        best[row["direction"]].append(share)
        equal = len(row["lengths"]) == 1
        lengths = row["name"].replace("x", TIMES) if equal else f"{row['sequences']} of {row['name']}"
        heads = f"{row['heads']}" if row["heads"] == row["kv_heads"] else f"{row['heads']} on {row['kv_heads']}"
        cells = [
            _grouped(lengths),
            f"{heads} {TIMES} {row['dim']}",
            "causal" if row["causal"] else "none",
            row["direction"],
        ]
        cells += [_us(us.get(name)) for name in ("op", *PEERS)] + [f"{share:.2f}"]
        cells += [_us(us.get("dense sm80")), _us(us.get("dense")), f"{us['dense'] / us['op']:.2f}" if equal else ""]
        lines.append(_line(cells))
    means = ", ".join(f"{geometric_mean(shares):.2f} {direction}" for direction, shares in best.items())
    explained = (
        "A share is another's time over the op's: above 1 the op is faster. The geometric means of the best peer's "
        f"shares are {means}. The columns before the last are `flash_attention` by its kernels for every GPU, and by "
        "those for Hopper, which the op shares."
    )
    return [*lines, "", *textwrap.wrap(explained, 120)]


def paged(rows: list[dict[str, Any]]) -> list[str]:
    """Pages of each size beside keys without pages, and beside the peers."""
    head = [f"sequences {TIMES} keys, queries of each", "`flash_attention`", *(f"pages of {size}" for size in PAGES)]
    head += ["reached, pages of 16", "of 64", "FlashAttention 4, pages of 64", "FlashInfer, pages of 64"]
    lines = _head(head)
    for row in rows:
        us = row["us"]
        cells = [f"{row['sequences']} {TIMES} {row['keys']:,}, {row['queries']:,}", _us(us["dense"])]
        cells += [_us(us[f"pages of {size}"]) for size in PAGES]
        cells += [f"{us['dense'] / us[f'pages of {size}']:.2f}" for size in (16, 64)]
        cells += [_us(us.get(f"{peer}, pages of 64")) for peer in ("flash-attn 4", "FlashInfer")]
        lines.append(_line(cells))
    return lines


def append(rows: list[dict[str, Any]]) -> list[str]:
    lines = _head([f"sequences {TIMES} new rows", "without rotation", "with it"])
    for row in rows:
        times = (row["us"][name] for name in ("op", "op, rotated"))
        rates = (f"{us:,.1f} ({row['bytes'] / us / 1000:,.0f} GB/s)" for us in times)
        lines.append(_line([f"{row['sequences']} {TIMES} {row['added']:,}", *rates]))
    return lines


def _head(names: list[str]) -> list[str]:
    return [_line(names), "|" + " --- |" * len(names)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _grouped(text: str) -> str:
    """Numbers of four digits and more with their commas."""
    return " ".join(f"{int(word):,}" if word.isdigit() else word for word in text.split())
