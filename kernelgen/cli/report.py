"""`kernelgen report`."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.cli.parser import Parser

if TYPE_CHECKING:
    from kernelgen.lab.report.collect import Material


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    material, title, folder = _gather(options)
    from kernelgen.lab.report import page

    written = page.write(material, options.title or title, folder)
    if options.json:
        print(
            json.dumps({"machine": material.machine, "cases": list(material.cases), "files": list(map(str, written))})
        )
    else:
        count = len(material.cases)
        head = f"{count} case{'s' * (count != 1)} on {material.machine}"
        print("\n".join([head, *(f"written: {path}" for path in written)]))
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        "report", "Write one page about everything that was measured: speed, roofline, latencies, profiles."
    )
    text = "results of `bench --out` and of `profile` (default: the project's baselines, their past, its profiles)"
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)
    parser.add_project()
    text = "where report.html and the PNGs go (default: build/report in the project)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    parser.add_argument("--title", metavar="TEXT", help="the page's title (default: the project's name)")
    parser.add_json()
    return parser.parse_args(arguments)


def _gather(options: argparse.Namespace) -> "tuple[Material, str, Path]":
    """What to report, its title, and where to."""
    from kernelgen.lab.report import collect
    from kernelgen.scaffold import project

    if options.files:
        return collect.from_files(options.files), "Measurements", options.out or Path("report")
    home = project.find(options.project)
    return collect.from_project(home.root), home.root.name, options.out or home.root / "build" / "report"
