"""Writes docs/performance.md from the results of kernels: `python benchmarks/performance.py [--check]`.

README.md beside this says what is in results/kernels-*.json. `--check` writes nothing, and fails if the page is not
what the results say.
"""

import json
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "performance.md"
OURS = "op"

HEAD = """# How fast the recipes are

Written by `python benchmarks/performance.py` from `benchmarks/results/`; do not edit. Every table is one run, with its
command and machine. Times are medians in microseconds, with the 95% interval of the recipe's own; all implementations
of a row took turns, on random inputs, with the L2 cache flushed before each call. **Bold** is the fastest. A bound that
is missed says so.
"""


def number(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def reached(row: dict[str, Any], ceilings: dict[str, Any]) -> float | None:
    """The share of what its bound is about that a row reaches."""
    bound, ours = row["bound"], row["implementations"][OURS]["median_us"]
    if bound["of"] == "copy":
        return row["bytes"] / (ours * 1e-6) / ceilings["copy_bytes_per_s"]
    peer = row["implementations"].get(bound["of"])
    return peer["median_us"] / ours if peer else None


def share(row: dict[str, Any], ceilings: dict[str, Any]) -> tuple[str, str]:
    """How much of its ceiling a row reaches, and what became of its bound, unless that is one of a mean."""
    if row["bound"] is None:
        return "", ""
    found = reached(row, ceilings)
    if found is None:
        return "", f"{row['bound']['of']} could not run"
    return f"{found:.2f} of {row['bound']['of']}", "" if row["bound"].get("of_mean") else verdict(found, row["bound"])


def verdict(found: float, bound: dict[str, Any]) -> str:
    return f"{bound['fraction']:.2f}: {'met' if found >= bound['fraction'] else '**missed**'}"


def means(rows: list[dict[str, Any]], ceilings: dict[str, Any]) -> list[str]:
    """What became of bounds of the geometric mean over rows, by path and direction."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["bound"] and row["bound"].get("of_mean"):
            groups.setdefault((row["path"], row["direction"]), []).append(row)
    lines = ["| path | direction | geometric mean over | reached | bound |", "|" + " --- |" * 5]
    for (path, direction), group in groups.items():
        found = geometric_mean(reached(row, ceilings) for row in group)
        of = {row["bound"]["of"] for row in group}
        peer = of.pop() if len(of) == 1 else "the fastest peer"
        cells = path, direction, f"{len(group)} rows", f"{found:.2f} of {peer}", verdict(found, group[0]["bound"])
        lines.append(f"| {' | '.join(cells)} |")
    return ["", *lines] if groups else []


def table(rows: list[dict[str, Any]], ceilings: dict[str, Any]) -> list[str]:
    peers = list(dict.fromkeys(name for row in rows for name in row["implementations"] if name != OURS))
    head = ["case", "direction", "recipe", *peers, "reached", "bound"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    has_paths = len({row["path"] for row in rows}) > 1
    for row in rows:
        times = row["implementations"]
        fastest = min(time["median_us"] for time in times.values())

        def cell(name: str, times: dict[str, Any] = times, fastest: float = fastest) -> str:
            if name not in times:
                return ""
            text = number(times[name]["median_us"])
            return f"**{text}**" if times[name]["median_us"] == fastest else text

        own = f"{cell(OURS)} ({number(times[OURS]['low_us'])} to {number(times[OURS]['high_us'])})"
        path = f", {row['path']}" if has_paths else ""
        cells = [row["case"], f"{row['direction']}, {row['dtype']}{path}", own, *map(cell, peers)]
        lines.append(f"| {' | '.join([*cells, *share(row, ceilings)])} |")
    return lines + means(rows, ceilings)


def compiled(results: dict[str, Any]) -> list[str]:
    """Compile time, registers and spills, by source."""
    lines = ["| source | compiled in | kernels | most registers | spilled bytes |", "|" + " --- |" * 5]
    for source, seconds in sorted(results["compile_seconds"].items()):
        kernels = [kernel for kernel in results["kernels"] if kernel["source"] == source]
        registers = max((kernel["registers"] for kernel in kernels), default=0)
        spilled = sum(kernel["spill_stores"] + kernel["spill_loads"] for kernel in kernels)
        name = source.partition("/ops/")[2]
        lines.append(f"| `{name}` | {seconds:.1f} s | {len(kernels)} | {registers} | {spilled or 'none'} |")
    return lines


def part(results: dict[str, Any]) -> list[str]:
    found, ceilings = results["environment"], results["ceilings"]
    machine = f"{found['gpu']['name']}, driver {found['gpu'].get('driver', '?')}, torch {found['torch']}"
    lines = [f"## {results['title']}", "", f"`{results['command']}`, on an {machine}."]
    lines += [f"Device copy in the same run: {ceilings['copy_bytes_per_s'] / 1e9:.0f} GB/s, read plus written."]
    lines += ["Installed peers: " + ", ".join(" ".join(one) for one in results["peers"].items()) + ".", ""]
    for op in dict.fromkeys(row["op"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["op"] == op]
        lines += [f"### {op}", "", *table(rows, ceilings), ""]
        left_out = {name: why for row in rows for name, why in row["left_out"].items()}
        lines += [f"{name} was left out: {why}." for name, why in left_out.items()] + [""] * bool(left_out)
    if results["compile_seconds"]:
        lines += ["### Compiling", "", *compiled(results), ""]
    return lines


def page() -> str:
    files = sorted((REPOSITORY / "benchmarks" / "results").glob("kernels-*.json"))
    parts = [part(json.loads(file.read_text())) for file in files]
    return "\n".join([HEAD, *(line for lines in parts for line in lines)]).rstrip() + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        stale = not PAGE.is_file() or PAGE.read_text() != text
        print("docs/performance.md is stale: run python benchmarks/performance.py" if stale else "up to date")
        return int(stale)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
