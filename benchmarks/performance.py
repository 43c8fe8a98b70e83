"""Writes docs/performance.md and the figures in README.md, docs/fp8.md and docs/serving.md:
`python benchmarks/performance.py [--check]`.

They come from results/kernels-*.json, which the README.md of this folder describes; README's table of functions comes
from results/from_functions.json and results/from_functions_cpu.json, the tables of docs/serving.md from
results/serving_h100.json, and those of docs/fp8.md from results/kernels-fp8.json and results/fp8_block_h200.json.
`--check` writes nothing, and fails if a file differs from what the results give.
"""

import json
import re
import sys
import textwrap
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import fp8_page
import gpus
import serving_page
import summary
from summary import RECIPE

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "performance.md"
README = REPOSITORY / "README.md"
SERVING = REPOSITORY / "docs" / "serving.md"
FP8 = REPOSITORY / "docs" / "fp8.md"
FIGURES = re.compile(r"(?<=<!-- figures of benchmarks/performance.py -->\n).*?(?=<!-- end of figures -->)", re.S)

FUNCTIONS = re.compile(r"(?<=<!-- functions of benchmarks/performance.py -->\n).*?(?=<!-- end of functions -->)", re.S)
FROM_FUNCTIONS = [
    Path(__file__).with_name("results") / name for name in ("from_functions.json", "from_functions_cpu.json")
]

# Of from_functions.py, on a GPU.
DIRECTIONS = ("forward", "backward", "step")

HEAD = """# How fast the recipes are

Written by `python benchmarks/performance.py` from `benchmarks/results/`; do not edit. Each part is one run, with its
command and machine. Times are medians in microseconds, the recipe's with its 95% interval. All implementations of a row
took turns, on random inputs, with the L2 cache flushed before each call. **Bold** is the fastest. *Reached* is the
recipe's speed as a share of its ceiling: the rate of a device copy, or the peer that is named. *Bound* is the share to
reach, and whether it is met.

The tables of compile times give objects the names that their sources had when they were measured. Compilation is
divided as finely now, but a `.cu` file names its instantiations: what was `flash_attention/forward_64_bf16.sm_80+.cu`
is now the object `flash_attention/sm80/forward.cu (bfloat16, 64)`.
"""


def number(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def reached(row: dict[str, Any], ceilings: dict[str, Any]) -> float | None:
    """The recipe's speed as a share of its ceiling; None if the ceiling is a peer that could not run."""
    bound, own_us = row["bound"], row["implementations"][RECIPE]["median_us"]
    if bound["of"] == "copy":
        return row["bytes"] / (own_us * 1e-6) / ceilings["copy_bytes_per_s"]
    peer = row["implementations"].get(bound["of"])
    return peer["median_us"] / own_us if peer else None


def share(row: dict[str, Any], ceilings: dict[str, Any]) -> tuple[str, str]:
    """The cells `reached` and `bound` of a row; a bound on a mean has its own table."""
    if row["bound"] is None:
        return "", ""
    fraction = reached(row, ceilings)
    if fraction is None:
        return "", f"{row['bound']['of']} could not run"
    return f"{fraction:.2f} of {row['bound']['of']}", "" if row["bound"].get("of_mean") else verdict(
        fraction, row["bound"]
    )


def verdict(fraction: float, bound: dict[str, Any]) -> str:
    return f"{bound['fraction']:.2f}: {'met' if fraction >= bound['fraction'] else '**missed**'}"


def means(rows: list[dict[str, Any]], ceilings: dict[str, Any]) -> list[str]:
    """The table of bounds on the geometric mean over rows, by path, direction and subset."""
    groups: dict[tuple[str, str, bool | str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["bound"] and row["bound"].get("of_mean"):
            groups.setdefault((row["path"], row["direction"], row["bound"]["of_mean"]), []).append(row)
    lines = ["| path | direction | geometric mean over | reached | bound |", "|" + " --- |" * 5]
    for (path, direction, subset), group in groups.items():
        fraction = geometric_mean(reached(row, ceilings) for row in group)
        peers = {row["bound"]["of"] for row in group}
        peer = peers.pop() if len(peers) == 1 else "the fastest peer"
        rows_of = f"{len(group)} rows" if subset is True else f"{len(group)} rows of {subset}"
        cells = path, direction, rows_of, f"{fraction:.2f} of {peer}", verdict(fraction, group[0]["bound"])
        lines.append(f"| {' | '.join(cells)} |")
    return ["", *lines] if groups else []


def table(rows: list[dict[str, Any]], ceilings: dict[str, Any]) -> list[str]:
    peers = list(dict.fromkeys(name for row in rows for name in row["implementations"] if name != RECIPE))
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

        own = f"{cell(RECIPE)} ({number(times[RECIPE]['low_us'])} to {number(times[RECIPE]['high_us'])})"
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


def left_out(rows: list[dict[str, Any]]) -> list[str]:
    """The peers that could not run, of which cases, and why."""
    cases: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        for name, why in row["left_out"].items():
            cases.setdefault((name, why.removeprefix("NotImplementedError: ").rstrip(".")), {})[row["case"]] = None
    names: dict[tuple[str, str], list[str]] = {}
    for (name, why), of in cases.items():
        names.setdefault(("; ".join(of) if len(of) <= 3 else f"{len(of)} cases", why), []).append(name)
    lines = [f"- Left out of {of}: {', '.join(peers)} ({why})." for (of, why), peers in names.items()]
    return [*lines, ""] if lines else []


def part(results: dict[str, Any]) -> list[str]:
    environment, ceilings = results["environment"], results["ceilings"]
    gpu = environment["gpu"]
    machine = f"{gpu['name']}, driver {gpu.get('driver', '?')}, torch {environment['torch']}"
    lines = [f"## {results['title']}", "", f"`{results['command']}`, on an {machine}."]
    lines += [f"Device copy in the same run: {ceilings['copy_bytes_per_s'] / 1e9:.0f} GB/s, read plus written."]
    lines += [
        "Installed peers: " + ", ".join(f"{name} {version}" for name, version in results["peers"].items()) + ".",
        "",
        *([*textwrap.wrap(results["note"], 120), ""] if "note" in results else []),
    ]
    for op in dict.fromkeys(row["op"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["op"] == op]
        lines += [f"### {op}", "", *table(rows, ceilings), ""]
        lines += left_out(rows)
    if results["compile_seconds"]:
        lines += ["### Compiling", "", *compiled(results), ""]
    return lines


def attention_in_8_bits() -> list[str]:
    """The part on attention in 8 bits, from what fp8_attention.py measured."""
    results = json.loads((summary.RESULTS / "fp8_attention.json").read_text())
    environment, rows = results["environment"], results["rows"]
    lines = ["## Attention in 8 bits", ""]
    note = (
        f"`{results['command']}`, on an {environment['gpu']}, torch {environment['torch']}: 16,384 tokens, a model "
        "dimension of 2,048, microseconds. Codes and scales are made before; the others get bfloat16, but for cuDNN's "
        "own attention in 8 bits, which takes a scale for each tensor and writes 8 bits. An error is the root mean "
        "square of a result's difference to that of numbers that were not rounded, as a share of its own."
    )
    lines += [*textwrap.wrap(note, 120), ""]
    lines += [*textwrap.wrap(results["note"], 120), ""] if "note" in results else []
    ours, bfloat16, *peers = rows[0]["us"]
    head = ["heads of", "mask", "keys", "`flash_attention_fp8`", "TFLOP/s", "`flash_attention`", *peers]
    head += ["of `flash_attention`", "bound", "of cuDNN in 8 bits", "error", "cuDNN's in 8 bits", "in bfloat16"]
    lines += [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        cells = [row["dim"], "causal" if row["causal"] else "none", f"{row['length']:,}", number(row["us"][ours])]
        cells += [row["tflops"], *(number(row["us"][name]) for name in (bfloat16, *peers))]
        fraction = row["of bfloat16"]
        cells += [f"{fraction:.2f}", verdict(fraction, {"fraction": row["bound"]}) if row["bound"] else ""]
        cells += [f"{row['of cudnn']:.2f}", *(f"{row['error'][name]:.4f}" for name in (ours, peers[-1], bfloat16))]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    bounded = [row["of bfloat16"] for row in rows if row["bound"]]
    of_cudnn = [row["of cudnn"] for row in rows]
    means = (
        f"Geometric mean of the rows with a bound: {geometric_mean(bounded):.2f} of `flash_attention`; of all rows: "
        f"{geometric_mean(of_cudnn):.2f} of cuDNN in 8 bits, {min(of_cudnn):.2f} at least."
    )
    return [*lines, "", *textwrap.wrap(means, 120), ""]


def overhead() -> list[str]:
    """The part on the CPU time of a call, from what overhead.py measured."""
    results = json.loads((summary.RESULTS / "overhead-h100.json").read_text())
    lines = ["## The CPU time of a call", ""]
    lines += [f"`python benchmarks/overhead.py --project DIR`, on an {results['device']}, torch {results['torch']}:"]
    lines += [f"calls on 8 elements that do not wait for their kernels, medians over {results['rounds']} rounds.", ""]
    lines += ["| call | microseconds | of PyTorch's own |", "|" + " --- |" * 3]
    for row in results["rows"]:
        interval = f"{row['low_us']:.2f} to {row['high_us']:.2f}"
        lines.append(f"| {row['call']} | {row['median_us']:.2f} ({interval}) | {row['ratio']:.2f} |")
    return [*lines, ""]


def unusual() -> list[str]:
    """The part on shapes that no table has, from what unusual_shapes.py measured."""
    if not summary.UNUSUAL.exists():
        return []
    results = json.loads(summary.UNUSUAL.read_text())
    environment = results["environment"]
    lines = ["## Shapes that no table has", ""]
    lines += [f"`{results['command']}`, on an {environment['gpu']['name']}, torch {environment['torch']}: odd, prime,"]
    lines += [
        "short, long, few, many and strided, in every dtype. A ratio is the time of the fastest of PyTorch's kernels"
    ]
    lines += ["and `torch.compile(dynamic=False)` over the recipe's.", ""]
    lines += [*textwrap.wrap(results["note"], 120), ""] if "note" in results else []
    lines += ["![The ratio of each shape over its size](images/shapes.svg)", "", *summary.unusual_table(results), ""]
    slow = sorted((row for row in results["rows"] if row["ratio"] < summary.LEAST), key=lambda row: row["ratio"])
    if slow:
        lines += [f"Below {summary.LEAST} of the fastest peer:", ""]
        lines += ["| recipe | case | direction | ratio | microseconds | fastest |", "|" + " --- |" * 6]
        for row in slow:
            own_us, peer_us = (number(row["us"][name][0]) for name in (RECIPE, row["best"]))
            cells = row["case"], f"{row['direction']}, {row['dtype']}", f"{row['ratio']:.2f}", own_us
            lines.append(f"| `{row['recipe']}` | {' | '.join(cells)} | {row['best']} {peer_us} |")
        lines.append("")
    return lines


def page(all_results: list[dict[str, Any]]) -> str:
    parts = [gpus.part(), unusual(), *(part(results) for results in all_results), attention_in_8_bits(), overhead()]
    return "\n".join([HEAD, *(line for lines in parts for line in lines)]).rstrip() + "\n"


def readme(all_results: list[dict[str, Any]]) -> str:
    """README.md with the table and the sentence of summary.py between its marks, and the functions' table likewise."""
    figures = "\n".join(["", *summary.table(all_results), "", summary.compiling(), ""])
    measured = functions(*(json.loads(path.read_text()) for path in FROM_FUNCTIONS))
    return marked(README, {FIGURES: figures, FUNCTIONS: measured})


def serving() -> str:
    """docs/serving.md with the tables of serving_page.py between its marks."""
    return marked(SERVING, {FIGURES: "\n".join(["", *serving_page.tables()])})


def fp8() -> str:
    """docs/fp8.md with the tables of fp8_page.py between its marks."""
    return marked(FP8, {FIGURES: "\n".join(["", *fp8_page.tables()])})


def marked(file: Path, parts: dict[re.Pattern[str], str]) -> str:
    """The text of a file with these parts between its marks."""
    text = file.read_text()
    for marks, inner in parts.items():
        text, count = marks.subn(lambda _, inner=inner: inner, text)
        if count != 1:
            raise ValueError(f"{file.name} holds the marks of its figures {count} times, not once.")
    return text


def functions(on_gpu: dict[str, Any], on_cpu: dict[str, Any]) -> str:
    """The kernels that `add-op --from` writes, beside torch.compile: a line for each function."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for row in on_gpu["rows"]:
        ratios.setdefault(row["op"], {}).setdefault(row["direction"], []).append(row["ratio"])
    for row in on_cpu["rows"]:
        ratios.setdefault(row["op"], {}).setdefault("cpu", []).append(row["ratio"])
    lines = ["", "| function | forward | backward | a step | least | on a CPU | least |", "|" + " --- |" * 7]
    for name, groups in ratios.items():
        means = {group: f"{geometric_mean(values):.2f}" for group, values in groups.items()}
        cells = [means.get(direction, "") for direction in DIRECTIONS]
        cells.append(_least(*(groups[direction] for direction in DIRECTIONS if direction in groups)))
        cells += [means.get("cpu", ""), _least(groups["cpu"]) if "cpu" in groups else ""]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    every, every_on_cpu = ([row["ratio"] for row in results["rows"]] for results in (on_gpu, on_cpu))
    gpu, cpu = on_gpu["environment"], on_cpu["environment"]
    lines += [
        "",
        "`torch.compile(dynamic=False)`'s time over the op's: geometric means over the sizes that were measured, and",
        "the least ratio. A step is a forward with its gradient.",
        f"On an {gpu['gpu']['name']}, bfloat16, at commit {gpu['git']}: {_summary(every)}.",
        f"{_where(on_cpu)}, bfloat16 and float32, both directions, at commit {cpu['git']}:",
        f"{_summary(every_on_cpu)}.",
    ]
    return "\n".join([*lines, ""])


def _where(on_cpu: dict[str, Any]) -> str:
    cpu = on_cpu["environment"]
    if "--processor-time" in on_cpu["command"]:
        return f"By processor time of one thread of an {cpu['cpu']}"
    return f"On {cpu['cores']} cores of an {cpu['cpu']}"


def _summary(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.2f} over {len(ratios)} rows, the least {min(ratios):.2f}"


def _least(*groups: list[float]) -> str:
    return f"{min(ratio for ratios in groups for ratio in ratios):.2f}" if groups else ""


def main() -> int:
    all_results = summary.load()
    written = {PAGE: page(all_results), README: readme(all_results), SERVING: serving(), FP8: fp8()}
    if "--check" in sys.argv[1:]:
        stale = [file for file, text in written.items() if file.read_text() != text]
        for file in stale:
            print(f"{file.relative_to(REPOSITORY)} is stale: run python benchmarks/performance.py")
        return int(bool(stale))
    for file, text in written.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
