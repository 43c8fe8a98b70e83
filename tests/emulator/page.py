"""The tables of docs/emulated-gpu.md, made from what they describe.

python -m tests.emulator.page --write
"""

import argparse
import itertools
import re
import sys
from pathlib import Path

from benchmarks import emulated_build, synchronisation_faults
from kernelgen.emulator.compiler import DEVICE
from tests.emulator.faults.__main__ import recorded, table
from tests.emulator.instructions.forms import forms

QUALIFIERS = ("rn", "rna", "relu", "ftz", "global", "release", "aligned", "fractional", "range")
PAGE = Path(__file__).parents[2] / "docs" / "emulated-gpu.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="bring the page up to date; without it, print the tables")
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text()))
    else:
        print("\n\n".join(tables().values()))
    return 0


def filled(page: str) -> str:
    """The page with each table after the mark of its name."""
    for name, text in tables().items():
        pattern = rf"(<!-- table: {name} -->\n)(?:\n?(?:\|.*\n)+)?"
        page, marks = re.subn(pattern, lambda match, text=text: f"{match[1]}\n{text}\n", page)
        assert marks == 1, f"the page has {marks} marks '<!-- table: {name} -->'; it takes 1"
    return page


def tables() -> dict[str, str]:
    faults, tools = table(recorded()), synchronisation_faults.table()
    times = emulated_build.table()
    return {"gpus": _gpus(), "instructions": _instructions(), "faults": faults, "tools": tools, "compiling": times}


def _gpus() -> str:
    rows = ["| `--gpu` | as | multiprocessors | KB of shared memory a block | threads a multiprocessor |"]
    rows.append("|---|---|--:|--:|--:|")
    pattern = r'^ +\{"(sm_\w+)", "([^"]+)", \d+, (\d+), (\d+), \d+, (\d+),'
    for architecture, *facts in re.findall(pattern, (DEVICE / "gpus.h").read_text(), re.MULTILINE):
        rows.append(f"| `{architecture}` | {' | '.join(facts)} |")
    return "\n".join(rows)


def _instructions() -> str:
    """By the least capability that has a form of the instruction."""
    least: dict[str, int] = {}
    for form in forms():
        words = form.text.split()
        for first in words[0].split("|"):
            # The name goes on up to the first word that has alternatives, or is a type or a qualifier.
            rest = itertools.takewhile(
                lambda word: re.fullmatch(r"[a-z_]+[a-z]", word) and word not in QUALIFIERS, words[1:]
            )
            name = ".".join((first, *rest))
            least[name] = min(form.capability, least.get(name, form.capability))
    names: dict[int, list[str]] = {}
    for name, capability in least.items():
        shorter = {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)}
        if not any(least.get(other) == capability for other in shorter):
            names.setdefault(capability, []).append(f"`{name}`")
    rows = ["| from | instructions |", "|---|---|"]
    for capability, listed in sorted(names.items()):
        lowest = f"{capability // 10}.{capability % 10}" if capability else "any"
        rows.append(f"| {lowest} | {', '.join(sorted(listed))} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
