"""Writes a report as one page of HTML that needs no other file: no script, no font, no picture."""

import math
from html import escape
from pathlib import Path
from typing import Any

from kernelgen.lab import results
from kernelgen.lab.ncu import figures, profiler
from kernelgen.lab.remarks import remarks
from kernelgen.lab.report import charts, tuning
from kernelgen.lab.report.charts import Chart
from kernelgen.lab.report.collect import Case, Material
from kernelgen.protocol import OP

CSS = Path(__file__).with_name("page.css")
# Kernels of one call that are described.
MOST_KERNELS = 3


def write(material: Material, title: str, folder: Path) -> list[Path]:
    """`report.html` and a PNG for each picture; returns their paths."""
    drawn = draw(material)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / "report.html": html(material, title, drawn).encode()}
    files |= {folder / f"{chart.name}.png": chart.png() for part in drawn.values() for chart in part}
    for path, content in files.items():
        path.write_bytes(content)
    return list(files)


def draw(material: Material) -> dict[str, list[Chart]]:
    """Every picture, by the part of the page where it stands."""
    return {**charts.all_of(material), **tuning.all_of(material)}


def html(material: Material, title: str, drawn: dict[str, list[Chart]] | None = None) -> str:
    """The page; its pictures are drawn now unless they are given."""
    drawn = drawn or draw(material)
    parts = [_op(material, op, drawn[op]) for op in material.ops]
    linked = [*((op, f"op-{op}") for op in material.ops)]
    for name, heading, content in (
        ("roofline", "Roofline", _roofline(material, drawn["roofline"])),
        ("profiles", "Profiles", _profiles(material, drawn["profiles"])),
        ("tuning", "Tuning", _tuning(material, drawn)),
        ("history", "History", _history(drawn["history"])),
        ("environment", "Environment", _environment(material)),
    ):
        if content:
            parts.append(f'<section id="{name}"><h2>{heading}</h2>{content}</section>')
            linked.append((heading, name))
    links = "".join(f'<a href="#{anchor}">{escape(text)}</a>' for text, anchor in linked)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1>{_when(material)}<nav>{links}</nav></header>\n"
        f"{_tiles(material)}{_notes(material)}\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


# ---- The head -------------------------------------------------------------------------------------------------


def _when(material: Material) -> str:
    newest = material.newest
    environment, git = newest["environment"], newest["environment"].get("git") or {}
    revision = git.get("revision", "")[:10] + (" with changes" if git.get("changed") else "")
    words = [material.machine, f"torch {environment.get('torch')}", newest["created"].replace("T", " ")[:16] + " UTC"]
    return f"<p>{escape(' · '.join([*words, *[f'revision {revision}'] * bool(revision)]))}</p>"


def _tiles(material: Material) -> str:
    cases = [case for case in material.cases.values() if not case["faults"]]
    tiles = [(str(len(cases)), f"cases of {len(material.ops)} op{'s' * (len(material.ops) != 1)}")] if cases else []
    if searches := tuning.searches(material):
        faster = [any(best["passed"] for best in search.get("confirmed", [])) for _, search in searches]
        tiles.append((f"{sum(faster)} of {len(searches)}", "searches of tunables found a faster configuration"))
    if compared := [case for case in cases if case["peers"]]:
        faster = sum(all(low > 1 for _, low, _ in case["peers"].values()) for case in compared)
        slower = sum(any(high < 1 for _, _, high in case["peers"].values()) for case in compared)
        best = [min(value for value, _, _ in case["peers"].values()) for case in compared]
        mean = math.exp(sum(map(math.log, best)) / len(best))
        tiles += [
            (f"{mean:.2f}", "times as fast as the best peer, geometric mean"),
            (f"{faster} of {len(compared)}", "cases surely faster than every peer"),
            (f"{slower} of {len(compared)}", "cases surely slower than some peer"),
        ]
    if top := material.ceilings:
        tiles.append((f"{top['copy_bytes_per_s'] / 1e9:.4g} GB/s", "copied by this machine"))
        rates = top["matrix_flops_per_s"].items()
        tiles += [(results.flops_per_s(rate), f"{name} product") for name, rate in rates]
    items = "".join(f'<div class="tile"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in tiles)
    return f'<div class="tiles">{items}</div>' if tiles else ""


def _notes(material: Material) -> str:
    notes = [*material.notes, *remarks(material.cases.values())]
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if notes else ""


# ---- Parts ----------------------------------------------------------------------------------------------------


def _card(chart: Chart) -> str:
    return f'<div class="card"><h3>{escape(chart.title)}</h3>{chart.svg()}</div>'


def _op(material: Material, op: str, drawn: list[Chart]) -> str:
    cases = [case for case in material.cases.values() if case["op"] == op]
    cards = "".join(map(_card, drawn))
    return (
        f'<section id="op-{escape(op)}"><h2>{escape(op)}</h2><div class="cards">{cards}</div>'
        f'<div class="card wide"><div class="scroll">{_table(cases)}</div></div></section>'
    )


def _table(cases: list[Case]) -> str:
    heads = ("case", "median", "95% interval", "p95", "p99", "copy rate", "matrix rate")
    lines = ["<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    for case in cases:
        cells = _wrong() if case["faults"] else _cells(case["functions"][OP])
        name = f"<td>{escape(charts.label(case))}</td>"
        lines.append(f"<tr>{name}{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _cells(facts: dict[str, Any]) -> str:
    middle, low, high = map(results.seconds, facts["median"])
    shares = [f"{facts[name]:.1%}" if facts.get(name) else "" for name in ("copy_fraction", "matrix_fraction")]
    cells = [middle, f"{low} to {high}", results.seconds(facts["p95"]), results.seconds(facts["p99"]), *shares]
    return "".join(f"<td>{escape(cell)}</td>" for cell in cells)


def _wrong() -> str:
    """Times of wrong results are not shown."""
    return '<td class="bad">wrong</td>' + "<td></td>" * 5


def _roofline(material: Material, drawn: list[Chart]) -> str:
    if not drawn:
        return ""
    without = [
        key
        for key, case in material.cases.items()
        if not case["faults"]
        and not (case["functions"][OP].get("bytes_per_s") and case["functions"][OP].get("flops_per_s"))
    ]
    text = (
        "<p>The roofs are rates that were measured on this machine: of copying at the left, of matrix products at the "
        "right, each as it was measured last.</p>"
    )
    if without:
        text += f"<p class='quiet'>Not shown, for want of a cost in lab.py: {escape(', '.join(without))}.</p>"
    return text + f'<div class="cards">{_card(drawn[0])}</div>'


def _profiles(material: Material, drawn: list[Chart]) -> str:
    pictures = {chart.title: chart for chart in drawn}
    cards = []
    for key, profile in material.profiles.items():
        inside = pictures[key].svg() if key in pictures else _times(profile)
        cards.append(f'<div class="card"><h3>{escape(key)}</h3>{inside}{_kernels(profile)}</div>')
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _kernels(profile: profiler.Profile) -> str:
    parts = []
    for facts in sorted(profile["kernels"], key=lambda kernel: -kernel["seconds"])[:MOST_KERNELS]:
        kernel = figures.ProfiledKernel.from_dict(facts)
        rows = figures.rows(kernel, profile["ceilings"].get("copy_bytes_per_s"), facts["least"])
        head = f"{results.seconds(facts['seconds'])}, {facts['share']:.0%} of the time"
        cells = "".join(f"<tr><td>{escape(a)}</td><td>{escape(f'{b} {c}')}</td></tr>" for a, b, c in rows)
        advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in facts["says"])
        parts.append(
            f"<p><code>{escape(facts['name'])}</code><br><span class='quiet'>{escape(head)}</span></p>"
            f'<table class="words">{cells}</table><ul class="says">{advice}</ul>'
        )
    return "".join(parts)


def _times(profile: profiler.Profile) -> str:
    rows = "".join(
        f"<tr><td>{escape(results.seconds(row['seconds']))}</td><td><code>{escape(row['name'])}</code></td></tr>"
        for row in profile["times"]["rows"][:10]
    )
    return f'<p>No counters: {escape(str(profile["reason"]))}.</p><table class="words">{rows}</table>'


def _tuning(material: Material, drawn: dict[str, list[Chart]]) -> str:
    """For each search its outcome, what was ruled out and why, and its pictures."""
    parts = []
    for record, search in tuning.searches(material):
        title = tuning.title(record, search)
        gated = next(of_class for of_class in record["classes"] if of_class["shapes"] == search["shapes"])
        head = f"{record['points']} points, {gated['kept']} past the gates; {search['stats']['done']} trials"
        cells = "".join(
            f"<tr><td>{escape(reason)}</td><td>{count}</td><td>{escape(example)}</td></tr>"
            for reason, count, example in tuning.rejected(record, search)
        )
        table = (
            f'<table class="words"><tr><th>ruled out</th><th></th><th>such as</th></tr>{cells}</table>' if cells else ""
        )
        card = f'<div class="card"><p>{escape(head)}: {escape(search["ended"])}.</p>{_confirmed(search)}{table}</div>'
        parts.append(f'<h3>{escape(title)}</h3><div class="cards">{card}{"".join(map(_card, drawn[title]))}</div>')
    return "".join(parts)


def _confirmed(search: Any) -> str:
    """The verdicts on the best candidates."""
    lines = []
    for confirmation in search.get("confirmed", []):
        values = ", ".join(f"{name} {value}" for name, value in confirmation["values"].items())
        verdict = "confirmed" if confirmation["passed"] else "not confirmed"
        comparison = confirmation["comparison"] or {"cases": []}
        changes = [f"{case['case']} {100 * (case['ratio'][0] - 1):+.1f}%" for case in comparison["cases"]]
        changes += comparison.get("notes", ())
        evidence = confirmation["problem"] or ", ".join(changes)
        lines.append(": ".join(filter(None, (f"{verdict}: {values}", evidence))))
    items = "".join(f"<li>{escape(line)}</li>" for line in lines or ["The default stands: nothing looked faster."])
    return f'<ul class="says">{items}</ul>'


def _history(drawn: list[Chart]) -> str:
    return f'<div class="cards">{"".join(map(_card, drawn))}</div>' if drawn else ""


def _environment(material: Material) -> str:
    environment = material.newest["environment"]
    gpu, git = environment.get("gpu") or {}, environment.get("git") or {}
    rows = {
        "device": material.machine,
        "driver": gpu.get("driver"),
        "capability": gpu.get("capability"),
        "memory": gpu.get("memory_bytes") and figures.size(gpu["memory_bytes"]),
        "CPU": f"{environment.get('cpu')}, {_counted(environment, 'core')}, {_counted(environment, 'thread')}",
        "system": environment.get("system"),
        "Python": environment.get("python"),
        "torch": environment.get("torch"),
        "CUDA": environment.get("cuda"),
        "kernelgen": material.newest.get("kernelgen"),
        "revision": git.get("revision"),
        "state": _states(material),
        "flags": ", ".join(
            f"{name}={value}" for name, value in environment.get("flags", {}).items() if value not in (None, False)
        ),
        "variables": ", ".join(f"{name}={value}" for name, value in environment.get("variables", {}).items()),
    }
    cells = "".join(f"<tr><td>{name}</td><td>{escape(str(value))}</td></tr>" for name, value in rows.items() if value)
    return f'<div class="card"><table class="words">{cells}</table></div>'


def _counted(environment: dict[str, Any], what: str) -> str:
    count = environment.get(f"{what}s")
    return f"{count} {what}{'s' * (count != 1)}"


def _states(material: Material) -> str:
    """The range of the GPU's clocks, temperature and power over all cases."""
    ranges = []
    for name, unit in (("sm_mhz", "MHz"), ("memory_mhz", "MHz memory"), ("celsius", "°C"), ("watts", "W")):
        states = [case["state"][name] for case in material.cases.values() if name in case["state"]]
        if states:
            low, high = min(state["min"] for state in states), max(state["max"] for state in states)
            ranges.append(f"{low:.0f} to {high:.0f} {unit}" if round(low) != round(high) else f"{low:.0f} {unit}")
    return ", ".join(ranges)
