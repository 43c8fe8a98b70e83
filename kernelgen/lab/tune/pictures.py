"""The record of a tuning in pictures: one HTML page that needs no other file.

Parallel coordinates of the trials, what each tunable matters, the best so far over time, and what was rejected and why.
"""

import base64
import html
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

Record = Mapping[str, Any]

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:64em;margin:2em auto}img{max-width:100%}td,th{padding:.1em 1em .1em 0}"
)


def page(record: Record) -> str:
    """The pictures of a record of `kernelgen tune --out`, as HTML."""
    title = f"{record['op']} on {record['chip']}"
    body = [f"<h1>{html.escape(title)}</h1>"]
    for part in record["searches"]:
        body += [f"<h2>{html.escape(part['shapes'] or 'all shapes')}</h2>", rejections(record, part)]
        body += figures(record, part)
    style = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html><head>{style}</head><body>{''.join(body)}</body></html>\n"


def figures(record: Record, part: Record) -> list[str]:
    """The pictures of one search, each as an HTML element."""
    measured = [trial for trial in part["trials"] if trial["ratio"] is not None]
    if not measured:
        return ["<p>No candidate was measured.</p>"]
    draw: Sequence[Callable[..., None]] = (_coordinates, _progress, _importance)
    return [_figure(one, record, part, measured) for one in draw if one is not _importance or part["importance"]]


def _figure(draw: Callable[..., None], record: Record, part: Record, measured: Sequence[Record]) -> str:
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    draw(axes, record, part, measured)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    text, picture = html.escape(axes.get_title()), base64.b64encode(buffer.getvalue()).decode()
    return f"<figure><img alt='{text}' src='data:image/png;base64,{picture}'></figure>"


def _coordinates(axes: Any, record: Record, part: Record, measured: Sequence[Record]) -> None:
    """A line for each trial, through its values and to its time; the faster, the brighter and the later drawn."""
    names = list(record["tunables"])
    slowest, fastest = (choose(trial["ratio"] for trial in measured) for choose in (max, min))
    colours = plt.get_cmap("viridis_r")
    for trial in sorted(measured, key=lambda trial: -trial["ratio"]):
        heights = [_height(record["tunables"][name], trial["values"][name]) for name in names]
        share = (trial["ratio"] - fastest) / (slowest - fastest) if slowest > fastest else 0.0
        axes.plot([*heights, share], color=colours(share), alpha=0.4 + 0.6 * (1 - share), linewidth=1 + 2 * (1 - share))
    for position, name in enumerate(names):
        axes.axvline(position, color="0.8", zorder=0)
        for value in record["tunables"][name]:
            height = _height(record["tunables"][name], value)
            axes.annotate(str(value), (position, height), fontsize=8, xytext=(3, 0), textcoords="offset points")
    axes.axvline(len(names), color="0.8", zorder=0)
    for share in (0, 0.5, 1):
        text = f"{fastest + share * (slowest - fastest):.2f}"
        axes.annotate(text, (len(names), share), fontsize=8, xytext=(3, 0), textcoords="offset points")
    axes.set_xticks(range(len(names) + 1), [*names, "time / default"])
    axes.set_yticks([])
    axes.set_title("Every trial: its values, and its time over the default's")


def _height(values: Sequence[Any], value: Any) -> float:
    return list(values).index(value) / max(1, len(values) - 1)


def _progress(axes: Any, record: Record, part: Record, measured: Sequence[Record]) -> None:
    start = min(trial["at"] - trial["verdict_s"] for trial in part["trials"])
    minutes = [(trial["at"] - start) / 60 for trial in measured]
    best, so_far = float("inf"), []
    for trial in measured:
        # Of those that were stopped early the time is an extrapolation, and no best.
        best = min(best, trial["ratio"]) if trial["state"] == "measured" else best
        so_far.append(best)
    axes.scatter(minutes, [trial["ratio"] for trial in measured], s=12, color="0.6", label="trials")
    axes.step(minutes, so_far, where="post", label="best so far")
    axes.axhline(1, color="0.8", zorder=0)
    axes.set_xlabel("minutes")
    axes.set_title("Time over the default's, as the search went on")
    axes.legend()


def _importance(axes: Any, record: Record, part: Record, measured: Sequence[Record]) -> None:
    names = sorted(part["importance"], key=part["importance"].get)
    axes.barh(names, [part["importance"][name] for name in names])
    axes.set_title("How much each tunable matters for being among the best (PED-ANOVA)")


def rejections(record: Record, part: Record) -> str:
    """What was ruled out: by the gates before compiling, and of the trials by what became of them."""
    gated = next(one for one in record["classes"] if one["shapes"] == part["shapes"])
    rows = [
        (f"gate: {gate}", found["count"], found["examples"][0]["text"]) for gate, found in gated["rejected"].items()
    ]
    no_good = [trial for trial in part["trials"] if trial["ratio"] is None]
    reasons = {trial["state"]: trial["reason"] for trial in no_good}
    rows += [(state, count, reasons[state]) for state, count in Counter(t["state"] for t in no_good).items()]
    head = f"<p>{record['points']} points, {gated['kept']} of them past the gates.</p>"
    if not rows:
        return head
    cells = "".join(
        f"<tr><td>{html.escape(what)}</td><td>{count}</td><td>{html.escape(such)}</td></tr>"
        for what, count, such in rows
    )
    return f"{head}<table><tr><th>rejected</th><th>points</th><th>such as</th></tr>{cells}</table>"
