"""Draws the searches of `kernelgen tune`: every trial, the best so far, and how much each tunable matters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgen.lab.report.charts import (
    CARD,
    INK,
    MUTED,
    RULE,
    SERIES,
    Chart,
    add_row_label,
    add_rows,
    new_figure,
    style,
)
from kernelgen.lab.report.collect import Material

Record = Mapping[str, Any]

# The share of the trials that stand out in colour.
BEST = 0.1


def all_of(material: Material) -> dict[str, list[Chart]]:
    """The pictures of every search, by its title."""
    with style():
        return {title(record, search): _charts(record, search) for record, search in searches(material)}


def searches(material: Material) -> list[tuple[Record, Record]]:
    """Every record of `kernelgen tune` with each of its searches, one for each class of shapes."""
    return [(record, search) for record in material.tunings.values() for search in record["searches"]]


def title(record: Record, search: Record) -> str:
    """The op and its direction, the chip and the class of shapes that were tuned."""
    direction = "backward" if record["asked"]["backward"] else None
    return " · ".join(filter(None, (record["op"], direction, record["chip"], search["shapes"])))


def rejected(record: Record, search: Record) -> list[tuple[str, int, str]]:
    """Why points were ruled out, how many, and an example: by a gate before compiling, or by the state of a trial."""
    gated = next(of_class for of_class in record["classes"] if of_class["shapes"] == search["shapes"])
    rows = [
        (f"gate: {gate}", rejected["count"], rejected["examples"][0]["text"])
        for gate, rejected in gated["rejected"].items()
    ]
    failed: dict[str, list[Record]] = {}
    for trial in search["trials"]:
        if trial["ratio"] is None:
            failed.setdefault(trial["state"], []).append(trial)
    return rows + [(state, len(trials), trials[0]["reason"]) for state, trials in failed.items()]


def _charts(record: Record, search: Record) -> list[Chart]:
    name = "tune-" + "-".join(re.findall(r"[a-z0-9_]+", title(record, search).lower()))
    measured = [trial for trial in search["trials"] if trial["ratio"] is not None]
    if not measured:
        return []
    drawn = [_coordinates(name, record, search, measured), _progress(name, record, search, measured)]
    return [*drawn, _importance(name, record, search)] if search["importance"] else drawn


def _coordinates(name: str, record: Record, search: Record, measured: Sequence[Record]) -> Chart:
    """Parallel coordinates, from top to bottom: a line for each trial, through its values and to its time."""
    tunables = record["tunables"]
    ordered = sorted(measured, key=lambda trial: trial["ratio"])
    fastest, slowest = ordered[0]["ratio"], ordered[-1]["ratio"]
    figure = new_figure(0.2 + 0.55 * (len(tunables) + 1))
    axes = add_rows(figure, 0.05, 0.15, left=0.03, right=0.97)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    heights = range(len(tunables) + 1)
    for n, trial in reversed(list(enumerate(ordered))):
        share = (trial["ratio"] - fastest) / (slowest - fastest) if slowest > fastest else 0.0
        places = [*(_place(values, trial["values"][name]) for name, values in tunables.items()), share]
        colour, alpha = (SERIES[0], 0.9) if n < max(1, BEST * len(ordered)) else (MUTED, 0.25)
        best = {"color": SERIES[1], "linewidth": 2.4} if n == 0 else {"color": colour, "alpha": alpha, "linewidth": 1}
        axes.plot(places, heights, zorder=1, **best)
    for height, (tunable, values) in enumerate(tunables.items()):
        chosen = ordered[0]["values"][tunable]
        text = f"{tunable}: {chosen}  (of {', '.join(map(str, values))})"
        _scale(axes, height, text if len(text) < 60 else f"{tunable}: {chosen}  (of {values[0]} to {values[-1]})")
    _scale(axes, len(tunables), f"time over the default's: {fastest:.3f}  (to {slowest:.3f})")
    axes.set_ylim(len(tunables) + 0.2, -0.5)
    axes.set_xlim(-0.02, 1.02)
    alt = f"Parallel coordinates of {len(measured)} trials of {title(record, search)}"
    heading = f"{len(measured)} trials: the best in orange, the fastest tenth in blue"
    return Chart(f"{name}-trials", heading, alt, figure)


def _scale(axes: Any, height: int, text: str) -> None:
    axes.plot([0, 1], [height, height], color=RULE, linewidth=1, zorder=0)
    add_row_label(axes, height - 0.24, text)


def _place(values: Sequence[Any], value: Any) -> float:
    return list(values).index(value) / (len(values) - 1) if len(values) > 1 else 0.5


def _progress(name: str, record: Record, search: Record, measured: Sequence[Record]) -> Chart:
    start = min(trial["at"] - trial["verdict_s"] for trial in search["trials"])
    ordered = sorted(measured, key=lambda trial: trial["at"])
    minutes = [(trial["at"] - start) / 60 for trial in ordered]
    best, so_far = float("inf"), []
    for trial in ordered:
        # The time of a trial that was stopped early is an extrapolation, and cannot be the best.
        best = min(best, trial["ratio"]) if trial["state"] == "measured" else best
        so_far.append(best)
    figure = new_figure(2.5)
    axes = figure.add_axes((0.14, 0.30, 0.83, 0.66))
    axes.axhline(1, color=MUTED, linewidth=0.8)
    axes.scatter(minutes, [trial["ratio"] for trial in ordered], s=10, color=MUTED, label="trials")
    axes.step(minutes, so_far, where="post", color=SERIES[1], linewidth=1.8, label="best so far")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("minutes")
    axes.set_ylabel("time over the default's")
    figure.legend(loc="lower left", ncols=2, borderaxespad=0.3)
    alt = f"Best time so far over the search of {title(record, search)}"
    return Chart(f"{name}-progress", "The search", alt, figure)


def _importance(name: str, record: Record, search: Record) -> Chart:
    shares = sorted(search["importance"].items(), key=lambda item: -item[1])
    figure = new_figure(0.55 + 0.4 * len(shares))
    axes = add_rows(figure, 0.1, 0.4, left=0.03, right=0.9)
    for n, (tunable, share) in enumerate(shares):
        axes.barh(n + 0.18, share, color=SERIES[0], height=0.36)
        axes.text(share + 0.01, n + 0.18, f"{share:.0%}", va="center", color=INK)
        axes.text(0, n - 0.22, tunable, va="center", color=INK, bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1})
    axes.set_ylim(len(shares) - 0.4, -0.6)
    axes.set_xlim(0, max(share for _, share in shares) * 1.12)
    axes.set_xticks([])
    axes.set_xlabel("share in what tells the best from the others (PED-ANOVA)")
    alt = f"Importance of each tunable of {title(record, search)}"
    return Chart(f"{name}-importance", "What each tunable matters", alt, figure)
