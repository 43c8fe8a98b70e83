"""Draws a report's pictures, as SVG in the page's colours and as PNG.

They are as narrow as a phone, so that their text can be read there, and stand side by side where there is room.
"""

import io
import math
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib import ticker
from matplotlib.figure import Figure

from kernelgen.lab import results
from kernelgen.lab.ncu import profiler
from kernelgen.lab.report.collect import Case, Material, Point
from kernelgen.protocol import OP

WIDTH_IN = 4.7
PNG_DPI = 200
# In the page's SVG each colour becomes the CSS variable of its name, and so follows light and dark.
COLOURS = {
    "ink": "#1b1f24",
    "muted": "#656d77",
    "rule": "#d5dae0",
    "good": "#1a7f4b",
    "bad": "#c9352c",
    "card": "#fefefe",
    "s1": "#2766cf",
    "s2": "#d4680b",
    "s3": "#8547d1",
    "s4": "#0a8596",
    "s5": "#b8336a",
    "s6": "#6b7a12",
}
SERIES = [COLOURS[f"s{i}"] for i in range(1, 7)]
MARKERS = "osD^vPX"
INK, MUTED, RULE, CARD = (COLOURS[name] for name in ("ink", "muted", "rule", "card"))

_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9.2,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kernelgen",
}


@dataclass(frozen=True)
class Chart:
    """A picture; `name` is its file's, `alt` says what it shows to those who cannot see it."""

    name: str
    title: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """For a page whose CSS gives the variables of COLOURS."""
        with style():
            out = io.StringIO()
            self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
        text = re.sub(r'<g id="[^"]*"', "<g", text)
        # Several pictures share a page, and an id may be there once.
        text = re.sub(r'(id="|#)([mph][0-9a-f]{8,})', rf"\1{self.name}-\2", text)
        for name, colour in COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
        text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
        return text.replace("<svg", f'<svg role="img" aria-label="{self.alt}"', 1)

    def png(self) -> bytes:
        with style():
            out = io.BytesIO()
            self.figure.savefig(out, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
        return out.getvalue()


@contextmanager
def style() -> Iterator[None]:
    with matplotlib.rc_context(_STYLE):
        yield


def all_of(material: Material) -> dict[str, list[Chart]]:
    """Every picture, by the part of the page that it belongs to: an op, `roofline`, `profiles` or `history`."""
    with style():
        pictures = {op: [*_speed(material, op), *_distribution(material, op)] for op in material.ops}
        pictures["roofline"] = _roofline(material)
        pictures["profiles"] = [
            _profile(key, profile) for key, profile in material.profiles.items() if profile["kernels"]
        ]
        pictures["history"] = [chart for op in material.ops for chart in _history(material, op)]
    return pictures


def new_figure(height_in: float) -> Figure:
    return Figure(figsize=(WIDTH_IN, height_in), layout=None)


def add_rows(figure: Figure, top_in: float, bottom_in: float, left: float = 0.02, right: float = 0.98) -> Any:
    """An axes for rows that bear their labels inside, with fixed margins."""
    height = figure.get_figheight()
    axes = figure.add_axes((left, bottom_in / height, right - left, (height - top_in - bottom_in) / height))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    return axes


def add_row_label(axes: Any, y: float, text: str, **more: Any) -> None:
    """At the left end of a row, on the colour of the card, so that no line runs through it."""
    box = {"facecolor": CARD, "edgecolor": "none", "pad": 1.2}
    axes.text(0, y, text, transform=axes.get_yaxis_transform(), va="center", bbox=box, zorder=3, **more)


def _legend(figure: Figure, handles: Sequence[Any], top: float) -> None:
    """In as many columns as fit."""
    spaces = {"borderaxespad": 0.2, "handlelength": 1.4, "handletextpad": 0.4, "columnspacing": 1.2}
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, top), ncols=_columns(handles), **spaces)


def _legend_height(handles: Sequence[Any]) -> float:
    return 0.06 + 0.19 * math.ceil(len(handles) / _columns(handles))


def _columns(handles: Sequence[Any]) -> int:
    widest = 0.42 + 0.08 * max(len(handle.get_label()) for handle in handles)
    return max(1, min(len(handles), int(WIDTH_IN / widest)))


def label(case: Case) -> str:
    """A case without its op."""
    return results.key(case).partition(" · ")[2]


# ---- Speed against peers --------------------------------------------------------------------------------------

_ROW_IN = 0.205


def _speed(material: Material, op: str) -> list[Chart]:
    """How many times as fast as each peer, with intervals, on a logarithmic scale."""
    cases = [case for case in material.of_op(op) if case["peers"]]
    if not cases:
        return []
    peers = list(dict.fromkeys(peer for case in cases for peer in case["peers"]))
    handles = [
        matplotlib.lines.Line2D(
            [], [], color=SERIES[i % len(SERIES)], marker=MARKERS[i % len(MARKERS)], markersize=5, label=peer
        )
        for i, peer in enumerate(peers)
    ]
    above = 0.2 + _legend_height(handles)
    lines = sum(1.25 + len(case["peers"]) for case in cases)
    figure = new_figure(0.62 + above + _ROW_IN * lines)
    axes = add_rows(figure, above, 0.5, left=0.04, right=0.70)
    y, ends = 0.0, [1.0]
    for case in cases:
        y += 1.0
        add_row_label(axes, y + 0.12, label(case), fontweight="bold")
        for peer, (value, low, high) in case["peers"].items():
            y += 1.0
            colour = SERIES[peers.index(peer) % len(SERIES)]
            marker = MARKERS[peers.index(peer) % len(MARKERS)]
            axes.plot([low, high], [y, y], color=colour, linewidth=2.2, solid_capstyle="round")
            axes.plot(value, y, marker=marker, color=colour, markersize=5)
            colour_of_text = INK if low > 1 or high < 1 else MUTED
            axes.text(
                1.02,
                y,
                f"{value:.2f}  ({low:.2f}, {high:.2f})",
                transform=axes.get_yaxis_transform(),
                va="center",
                color=colour_of_text,
            )
            ends += [low, high]
        y += 0.25
    axes.set_ylim(y + 0.8, 0.2)
    _log_ratio(axes, ends)
    axes.axvline(1, color=MUTED, linewidth=1)
    axes.set_xlabel("times as fast as the peer, 95% interval")
    _legend(figure, handles, 1.0)
    alt = f"Speed of {op} relative to {', '.join(peers)}, by case"
    return [Chart(f"speed-{op}", "Speed against peers", alt, figure)]


def _log_ratio(axes: Any, ends: Sequence[float]) -> None:
    low, high = min(ends), max(ends)
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(low / 1.15, 0.8), max(high * 1.15, 1.25))
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, subs=(1.0,) if high / low > 3 else (1.0, 1.25, 1.5)))
    axes.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: f"{value:g}" if value > 0.1 else f"1/{1 / value:g}")
    )
    axes.xaxis.set_minor_locator(ticker.NullLocator())


# ---- Distribution of latencies --------------------------------------------------------------------------------


def _distribution(material: Material, op: str) -> list[Chart]:
    """Every sample of every case, relative to its median."""
    cases = material.of_op(op)
    if not cases:
        return []
    figure = new_figure(0.75 + 0.45 * len(cases))
    axes = add_rows(figure, 0.2, 0.5, left=0.05, right=0.9)
    low, high = _reach(cases)
    chance = random.Random(0)
    for i, case in enumerate(cases):
        op_facts, y = case["functions"][OP], float(i)
        middle = op_facts["median"][0]
        shares = [value / middle - 1 for value in sorted(op_facts["seconds"])]
        spread = [y + chance.uniform(-0.13, 0.13) for _ in shares]
        few = min(1.0, 20 / len(shares))  # The fewer samples, the larger their points.
        axes.scatter(shares, spread, s=6 + 8 * few, color=SERIES[0], alpha=0.4 + 0.4 * few, linewidths=0)
        for name, height in (("p50", 0.24), ("p95", 0.18), ("p99", 0.18)):
            share = op_facts[name] / middle - 1
            axes.plot([share, share], [y - height, y + height], color=INK, linewidth=1.6 if name == "p50" else 1)
        text = f"{label(case)}: {results.seconds(middle)}, p99 {results.seconds(op_facts['p99'])}"
        add_row_label(axes, y - 0.38, text)
        if beyond := sum(share > high for share in shares):
            axes.text(1.01, y, f"+{beyond}", transform=axes.get_yaxis_transform(), va="center", color=MUTED)
    axes.set_ylim(len(cases) - 0.55, -0.6)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    axes.set_xlabel("difference from the median; lines: p50, p95, p99; +n beyond")
    return [Chart(f"latency-{op}", "Distribution of latencies", f"Latencies of {op}, by case", figure)]


def _reach(cases: Sequence[Case]) -> tuple[float, float]:
    """From the fastest sample to the slowest p99, as shares of their medians; or to twice the median, if that is less:
    outliers beyond it would leave no room for the rest."""
    facts = [(case["functions"][OP], case["functions"][OP]["median"][0]) for case in cases]
    low = min(min(op["seconds"]) / middle - 1 for op, middle in facts)
    high = max(min(1.0, op["p99"] / middle - 1) for op, middle in facts)
    return min(-0.03, 1.08 * low), max(0.05, 1.15 * high)


# ---- Roofline -------------------------------------------------------------------------------------------------


def _roofline(material: Material) -> list[Chart]:
    """Every case that counts its bytes and its operations, under the rates that this machine was measured to have."""
    points = []
    for case in material.cases.values():
        facts = case["functions"][OP]
        if not case["faults"] and facts.get("bytes_per_s") and facts.get("flops_per_s"):
            points.append((case, facts["flops_per_s"] / facts["bytes_per_s"], facts["flops_per_s"]))
    if not points or not material.ceilings:
        return []
    ops = list(dict.fromkeys(case["op"] for case, _, _ in points))
    kinds = list(dict.fromkeys(_kind(case) for case, _, _ in points))
    legends = [[_point_of(ops, kinds, op=op) for op in ops], [_point_of(ops, kinds, kind=kind) for kind in kinds]]
    below = sum(map(_legend_height, legends))
    height = 3.3 + below
    figure = new_figure(height)
    axes = figure.add_axes((0.14, (0.5 + below) / height, 0.83, 2.7 / height))
    _draw_roof(axes, material.ceilings, [x for _, x, _ in points], min(y for _, _, y in points))
    for case, x, y in points:
        point = _point_of(ops, kinds, case["op"], _kind(case))
        point.set_data([x], [y])
        axes.add_line(point)
    axes.grid(which="major")
    axes.set_axisbelow(True)
    axes.set_xlabel("floating-point operations a byte")
    axes.set_ylabel("FLOP/s")
    for handles in legends:
        _legend(figure, handles, below / height)
        below -= _legend_height(handles)
    alt = "Roofline: operations a second over operations a byte, for every case"
    return [Chart("roofline", "Every case under what this machine can do", alt, figure)]


def _draw_roof(axes: Any, ceilings: dict[str, Any], intensities: list[float], slowest: float) -> None:
    """The rates of the copy and of each dtype's product, on axes that hold these operations a byte and FLOP/s."""
    rates, copy = ceilings["matrix_flops_per_s"], ceilings["copy_bytes_per_s"]
    ridge = max(rates.values(), default=copy) / copy
    low, high = min(intensities) / 3, max(ridge * 4, max(intensities) * 3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(slowest / 3, max(rates.values(), default=copy * high) * 2.5)
    for rate in rates.values():
        axes.plot([low, rate / copy, high], [low * copy, rate, rate], color=MUTED, linewidth=1.2)
    box = {"facecolor": CARD, "edgecolor": "none", "pad": 0.5}
    for dtypes in _close(rates):
        names = [f"{dtype} {results.flops_per_s(rates[dtype])}" for dtype in dtypes]
        text = "\n".join(", ".join(names[i : i + 2]) for i in range(0, len(names), 2))
        axes.text(high, rates[dtypes[0]] * 1.15, text, ha="right", va="bottom", color=MUTED, bbox=box)
    if low < ridge:  # Else no slope shows. Its name stands at the left above the roof, where no case can be.
        top = max(rates.values(), default=copy * high)
        axes.text(low * 1.1, top, f"slope: copy {copy / 1e9:.4g} GB/s", ha="left", va="top", color=MUTED, bbox=box)


def _kind(case: Case) -> str:
    return case["dtype"] + " · backward" * bool(case["backward"])


def _point_of(ops: list[str], kinds: list[str], op: str | None = None, kind: str | None = None) -> Any:
    """A point of the roofline: its colour is the op's, its shape the kind's; for a legend, one of the two alone. Once
    all colours are taken, further ops are hollow."""
    number = ops.index(op) if op else 0
    return matplotlib.lines.Line2D(
        [],
        [],
        linestyle="none",
        markersize=5.5,
        color=SERIES[number % len(SERIES)] if op else MUTED,
        marker=MARKERS[kinds.index(kind) % len(MARKERS)] if kind else "o",
        fillstyle="full" if number < len(SERIES) else "none",
        label=op or kind,
    )


def _close(rates: dict[str, float]) -> list[list[str]]:
    """The dtypes by rate, the fastest first, in groups whose lines lie too close for labels of their own."""
    groups: list[list[str]] = []
    for dtype in sorted(rates, key=rates.__getitem__, reverse=True):
        if groups and rates[groups[-1][-1]] < 1.8 * rates[dtype]:
            groups[-1].append(dtype)
        else:
            groups.append([dtype])
    return groups


# ---- Profiles -------------------------------------------------------------------------------------------------

_BARS = {
    "memory": "device memory",
    "tensor": "tensor cores",
    "l2": "L2",
    "l1": "L1, shared memory",
    "issue": "instruction issue",
    "occupancy": "occupancy",
    "l2_hits": "hits in L2",
}


def _profile(key: str, profile: profiler.Profile) -> Chart:
    """The heaviest kernel's figures, in percent of their peaks, and what its warps wait for."""
    heaviest = profiler.heaviest(profile)
    bars = [(text, heaviest.figures[name]) for name, text in _BARS.items() if name in heaviest.figures]
    stalls = [(name.replace("_", " "), share) for name, share in list(heaviest.stalls.items())[:5] if share >= 0.01]
    lines = len(bars) + len(stalls)
    figure = new_figure(1.15 + 0.2 * (lines + 1))
    axes = figure.add_axes((0.30, 0.42 / figure.get_figheight(), 0.62, 1 - 0.62 / figure.get_figheight()))
    for i, (text, value) in enumerate(bars):
        axes.barh(i, value, color=SERIES[0], height=0.66)
        most = heaviest.most_occupancy if text == "occupancy" else None
        if most:
            axes.plot([most, most], [i - 0.33, i + 0.33], color=INK, linewidth=1.5)
        beyond = most if most and most - value < 14 else value  # Where it does not fit before the line.
        axes.text(beyond + 1.5, i, f"{value:.0f}%", va="center")
    first = len(bars) + 1
    for i, (_, share) in enumerate(stalls, first):
        axes.barh(i, 100 * share, color=SERIES[1], height=0.66)
        axes.text(100 * share + 1, i, f"{share:.0%}", va="center")
    axes.set_yticks([*range(len(bars)), *range(first, first + len(stalls))], [text for text, _ in (*bars, *stalls)])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(first + len(stalls) - 0.4, -0.6)
    axes.set_xlim(0, 112)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("% of peak (blue), of a warp's time (orange)")
    name = f"profile-{profiler.name_of(profile)}"
    return Chart(name, key, f"Counters of {heaviest.name}", figure)


# ---- History --------------------------------------------------------------------------------------------------


def _history(material: Material, op: str) -> list[Chart]:
    """The medians of every saved run, relative to the first of each case."""
    lines = {key: material.history[key] for key, case in material.cases.items() if case["op"] == op}
    lines = {key: points for key, points in lines.items() if len(points) > 1}
    if not lines:
        return []
    moments = sorted({(point.created, point.revision) for points in lines.values() for point in points})
    figure = new_figure(2.6 + 0.17 * len(lines))
    height = figure.get_figheight()
    axes = figure.add_axes((0.16, (0.75 + 0.17 * len(lines)) / height, 0.81, 1.7 / height))
    for i, (key, points) in enumerate(lines.items()):
        _line(axes, i, key.partition(" · ")[2], points, moments)
    axes.axhline(1, color=MUTED, linewidth=0.8)
    names = [f"{created[2:10]}\n{revision}" for created, revision in moments]
    step = max(1, math.ceil(len(names) / 5))
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_ylabel("time over the first")
    figure.legend(loc="lower left", borderaxespad=0.3)
    alt = f"Median times of {op} over {len(moments)} saved runs"
    return [Chart(f"history-{op}", op, alt, figure)]


def _line(axes: Any, i: int, name: str, points: Sequence[Point], moments: list[tuple[str, str]]) -> None:
    first = points[0].median[0]
    xs = [moments.index((point.created, point.revision)) for point in points]
    middle, low, high = zip(*[[value / first for value in point.median] for point in points], strict=True)
    colour, marker = SERIES[i % len(SERIES)], MARKERS[i // len(SERIES) % len(MARKERS)]
    axes.plot(xs, middle, color=colour, marker=marker, markersize=4, linewidth=1.4, label=name)
    axes.vlines(xs, low, high, color=colour, linewidth=2.5, alpha=0.5)
