"""Draws the documents' pictures into docs/images/: `python tools/pictures.py [speed] [shapes] [session]`, or all.

`speed.svg` and `shapes.svg` show the figures of benchmarks/results/. `session.svg` shows a terminal: a project is
stamped from this checkout, gets an op, is built for the CPU, and fuzz checks the op before and after a mistake, which
takes minutes.
"""

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import summary  # noqa: E402

MISTAKE = "sed -i 's/ + Sum(eps)//' src/my_kernels/ops/my_norm/cpu.cpp"
# Each command of the session, its exit code, and how many lines of its output are shown from the start and the end. How
# long builds take is not shown: it depends on what else the machine does.
SESSION = [
    ("kernelgen new my-kernels --defaults --data recipes=[elementwise]", 0, 2, 0),
    ("cd my-kernels", 0, 0, 0),
    ("kernelgen add-op my_norm --recipe rms_norm", 0, 2, 4),
    ("kernelgen build", 0, 3, 0),
    ("kernelgen fuzz my_norm --seed 1", 0, 0, 1),
    (f"{MISTAKE}     # a mistake: eps is forgotten", 0, 0, 0),
    ("kernelgen build", 0, 0, 0),
    ("kernelgen fuzz my_norm --seed 1", 1, 3, 0),
]
COLUMNS = 112


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", choices=["speed", "shapes", "session", []], help="default: all")
    pictures = parser.parse_args().pictures or ["speed", "shapes", "session"]
    IMAGES.mkdir(exist_ok=True)
    if "speed" in pictures:
        draw_speed(IMAGES / "speed.svg")
    if "shapes" in pictures:
        draw_shapes(IMAGES / "shapes.svg")
    if "session" in pictures:
        draw_session(IMAGES / "session.svg")


def draw_speed(file: Path) -> None:
    """The ratios of README's table: a row for each recipe and direction, a mark for each peer."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    from kernelgen.lab.report import charts

    results = summary.load()
    ratios = summary.ratios(results)
    rows = list(dict.fromkeys((ratio.op, ratio.direction) for ratio in ratios))
    colours, marks = (
        charts.COLOURS,
        {"PyTorch": ("s1", "o"), "torch.compile": ("s2", "s"), "other kernels": ("s3", "D")},
    )
    with charts.style():
        figure = Figure(figsize=(8.4, 0.9 + 0.32 * len(rows)), facecolor=colours["card"])
        axes = figure.add_axes((0.3, 0.13, 0.68, 0.79), facecolor=colours["card"])
        axes.set_xscale("log")
        axes.axvline(1, color=colours["ink"], linewidth=1)
        for ratio in ratios:
            y = -rows.index((ratio.op, ratio.direction))
            kind = _kind(ratio.peer)
            colour, mark = marks[kind]
            axes.plot([ratio.mean], [y], mark, color=colours[colour], markersize=6.5, label=kind, zorder=3)
            if kind == "other kernels":
                name = summary.PEERS.get(ratio.peer, ratio.peer)
                side = (
                    {"xytext": (6, 0), "ha": "left"}
                    if _is_slowest(ratio, ratios)
                    else {"xytext": (-6, 0), "ha": "right"}
                )
                text = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "color": colours["muted"]}
                axes.annotate(name, (ratio.mean, y), **side, **text)
        axes.set_yticks([-i for i in range(len(rows))], [f"{op}, {direction}" for op, direction in rows])
        axes.tick_params(axis="y", length=0, labelcolor=colours["ink"])
        axes.set_ylim(-len(rows) + 0.4, 0.7)
        axes.spines["left"].set_visible(False)
        ticks = (0.75, 1, 1.5, 2, 2.5)
        axes.set_xlim(0.58, 3.1)
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g} x" for tick in ticks]))
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel(f"a peer's time over the recipe's: geometric means, bfloat16, {summary.machine(results)}")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(unique.values(), unique, loc="upper right", ncols=3, bbox_to_anchor=(0.98, 1.0))
        save(figure, file, "Speed of the recipes", summary.table(results))


def save(figure: Any, file: Path, title: str, table: list[str]) -> None:
    """Write a picture that holds its figures as text too."""
    facts = {"Title": title, "Description": "\n".join(table)}
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, **facts})
    # matplotlib ends lines of path data with spaces.
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")


def draw_shapes(file: Path) -> None:
    """The ratio of each unusual shape over its size: a panel for each recipe and direction, a dot for each shape."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    from kernelgen.lab.report import charts

    results = json.loads(summary.UNUSUAL.read_text())
    groups = summary.unusual_groups(results)
    recipes = list(dict.fromkeys(recipe for recipe, _ in groups))
    colours, dtypes = charts.COLOURS, {"bfloat16": "s1", "float16": "s2", "float32": "s3", "float64": "s4"}
    with charts.style():
        figure = Figure(figsize=(8.4, 1.6 * len(recipes) + 0.7), facecolor=colours["card"])
        panels = figure.subplots(len(recipes), 2, sharex=True, sharey=True, squeeze=False)
        for (recipe, direction), rows in groups.items():
            axes = panels[recipes.index(recipe), int(direction == "backward")]
            axes.set_facecolor(colours["card"])
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.axhline(1, color=colours["ink"], linewidth=1)
            axes.axhline(summary.LEAST, color=colours["bad"], linewidth=0.7, linestyle=":")
            for dtype, colour in dtypes.items():
                dots = [(row["elements"], min(row["ratio"], 4)) for row in rows if row["dtype"] == dtype]
                axes.plot(*zip(*dots, strict=True) if dots else ((), ()), "o", color=colours[colour], markersize=3.5)
            axes.set_ylim(0.45, 4.4)
            ticks = (0.5, 0.7, 1, 1.5, 2, 4)
            axes.yaxis.set_major_locator(FixedLocator(ticks))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
            axes.xaxis.set_major_locator(FixedLocator([2**power for power in range(10, 30, 4)]))
            axes.xaxis.set_major_formatter(FixedFormatter(["1 Ki", "16 Ki", "256 Ki", "4 Mi", "64 Mi"]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.grid(axis="both")
            axes.set_title(f"{recipe}, {direction}", fontsize=8.5, loc="left", color=colours["ink"])
        handles = [panels[0][0].plot([], [], "o", color=colours[colour], markersize=4)[0] for colour in dtypes.values()]
        figure.legend(handles, dtypes, loc="upper right", ncols=4, bbox_to_anchor=(0.99, 1.0), fontsize=8)
        figure.supxlabel("elements of the result", fontsize=8.5)
        figure.supylabel("the fastest peer's time over the recipe's (4: 4 or more)", fontsize=8.5)
        figure.tight_layout(rect=(0.01, 0, 1, 0.985))
        save(figure, file, "Shapes that no table has", summary.unusual_table(results))


def _kind(peer: str) -> str:
    if peer in summary.PYTORCH:
        return "PyTorch"
    return peer if peer == summary.COMPILED else "other kernels"


def _is_slowest(ratio: summary.Ratio, ratios: list[summary.Ratio]) -> bool:
    """Whether the name of a specialised kernel has room to the right: no other such kernel of the row is slower or,
    where it is the only one, no peer at all."""
    row = [other for other in ratios if (other.op, other.direction) == (ratio.op, ratio.direction)]
    kernels = [other for other in row if _kind(other.peer) == "other kernels"]
    return ratio == max(kernels if len(kernels) > 1 else row, key=lambda other: other.mean)


def draw_session(file: Path) -> None:
    """Run the commands of SESSION in an empty folder, and draw the terminal."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "USE_CUDA": "0", "COLUMNS": str(COLUMNS)}
    python = Path(sys.executable)
    variables |= {"VIRTUAL_ENV": str(python.parents[1]), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for command, code, first, last in SESSION:
            console.print(Text.assemble(("$ ", "green"), (command, "bold")))
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
                continue
            typed = command.replace("kernelgen ", f"{shlex.quote(sys.executable)} -m kernelgen ", 1)
            result = subprocess.run(
                ["bash", "-c", typed], cwd=folder, env=variables, capture_output=True, text=True, check=False
            )
            if result.returncode != code:
                sys.exit(f"`{command}` gave exit code {result.returncode}, not {code}:\n{result.stdout}{result.stderr}")
            for line in excerpt(result.stdout.splitlines(), first, last):
                console.print(Text(line), soft_wrap=False)
            console.print()
    file.write_text(console.export_svg(title="kernelgen", theme=MONOKAI, unique_id="session"))


def excerpt(lines: list[str], first: int, last: int) -> list[str]:
    """The first and the last lines of an output, with `…` for those between."""
    if len(lines) <= first + last:
        return lines
    return lines[:first] + ["  …"] * bool(first) + lines[len(lines) - last :]


if __name__ == "__main__":
    main()
