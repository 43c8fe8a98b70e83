"""Where a build's time went: per file and, inside nvcc, per phase; as a table, as data and as a picture."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from kernelgen.toolchain.build import Outcome
from kernelgen.toolchain.resources import is_kernel_object

_COLORS = {"nvcc": "#76b900", "c++": "#4477aa", "link": "#aa7744"}


@dataclass(frozen=True)
class BuildStep:
    """One command of a build: when it ran, in seconds from the start of its build."""

    name: str
    kind: str
    start: float
    end: float
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        times = {"start": round(self.start, 3), "seconds": round(self.seconds, 3)}
        return {"name": self.name, "kind": self.kind, **times, "phases": self.phases}


def read(root: Path, outcome: Outcome) -> list[BuildStep]:
    """The steps of a build, the longest first; if it had nothing to do, the last run of each step."""
    folder = root / outcome.folder
    objects = outcome.configuration["objects"]
    wanted = set(outcome.built) or {*objects, *outcome.libraries}
    steps = {}
    for line in (folder / ".ninja_log").read_text().splitlines():
        start, _, rest = line.partition("\t")
        if line.startswith("#") or not rest:
            continue
        end, _, output, _ = rest.split("\t")
        if output in wanted:
            name = objects.get(output, output)
            kind = "link" if output not in objects else "nvcc" if is_kernel_object(output) else "c++"
            phases = _phases(root / f"{output}.csv") if kind == "nvcc" else {}
            steps[output] = BuildStep(name, kind, int(start) / 1000, int(end) / 1000, phases)
    return sorted(steps.values(), key=lambda step: -step.seconds)


def _phases(report: Path) -> dict[str, float]:
    """What nvcc's --time wrote, in seconds; nothing where the object came from a compiler cache."""
    phases: dict[str, float] = defaultdict(float)
    if report.is_file():
        for row in csv.reader(report.read_text().splitlines()[1:]):
            name, architecture = row[1].strip(), row[4].strip()
            if name in ("cicc", "ptxas"):
                name = f"{name} {re.sub(r'^(compute|sm)_', '', architecture)}"
            phases[re.sub(r" \((preprocessing) \d+\)", r" \1", name)] += float(row[6]) / 1000
    return {name: round(seconds, 3) for name, seconds in sorted(phases.items(), key=lambda item: -item[1])}


def table(steps: list[BuildStep]) -> str:
    total, lines = sum(step.seconds for step in steps), []
    width = max((len(step.name) for step in steps), default=0)
    for step in steps:
        phases = " · ".join(f"{name} {time:.2f}" for name, time in step.phases.items() if time >= 0.05)
        share = step.seconds / total if total else 0
        lines.append(f"{step.seconds:8.2f} s {share:4.0%}  {step.name:{width}}  {phases}".rstrip())
    return "\n".join([*lines, f"{total:8.2f} s in {len(steps)} steps"])


def draw(folder: Path, steps: Iterable[BuildStep]) -> Path:
    """Draws when each step ran, one row a job, as an SVG that needs nothing else; returns its path."""
    rows: list[float] = []
    bars = []
    steps = sorted(steps, key=lambda step: step.start)
    scale = 1000 / max((step.end for step in steps), default=1)
    for step in steps:
        row = next((row for row, end in enumerate(rows) if end <= step.start), len(rows))
        rows[row : row + 1] = [step.end]
        x, y, width = 10 + step.start * scale, 30 + row * 26, max(step.seconds * scale, 1)
        label = "/".join(step.name.split("/")[-2:])
        text = label if len(label) * 7 < width else ""
        details = "".join(f"\n{name} {time:.2f} s" for name, time in step.phases.items())
        bars.append(
            f"<g><title>{escape(f'{step.name}: {step.seconds:.2f} s{details}')}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" fill="{_COLORS[step.kind]}"/>'
            f'<text x="{x + 4:.1f}" y="{y + 15}" fill="white">{escape(text)}</text></g>'
        )
    seconds = 1000 / scale
    tick = next(tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1e9) if seconds / tick <= 12)
    marks = [
        f'<text x="{10 + n * tick * scale:.0f}" y="20" fill="#666">{n * tick:g} s</text>'
        for n in range(int(seconds / tick) + 1)
    ]
    size = f'width="1030" height="{40 + 26 * len(rows)}"'
    picture = folder / "timings.svg"
    picture.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join([*marks, *bars]) + "\n</svg>\n"
    )
    return picture
