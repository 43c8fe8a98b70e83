"""How long it takes to compile a recipe for the emulated GPU, beside g++ on its cpu.cpp.

    python benchmarks/emulated_build.py [--runs 3] [--recipe NAME]…     # about 8 minutes on two cores

For each recipe a project of its own is built by `kernelgen build --device emulated --gpu sm_90a -j 2`, a whole command
with nothing compiled but the emulated GPU itself; in turns with it, g++ compiles cpu.cpp with the flags of the build.
Ratios are the median over neighbouring runs. The first build of all, in an empty cache, is measured once. It writes
results/emulated_build.json, of which `python -m tests.emulator.page --write` makes the table in docs/emulated-gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "benchmarks")]
import results_file  # noqa: E402
from build_times import Time, call, median, paired, ratio  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "emulated_build.json"
RECIPES = ("elementwise", "swiglu", "rms_norm", "layer_norm", "linear_activation", "flash_attention")
KERNELGEN = [sys.executable, "-m", "kernelgen"]
EMULATED = Path("build/emulated-sm_90a")
OPTIONS = ["--device", "emulated", "--gpu", "sm_90a", "-j", "2", "--python", sys.executable]
PATH = {"PYTHONPATH": str(REPOSITORY)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--recipe", action="append", choices=RECIPES, help="this one alone (repeatable)")
    options = parser.parse_args()
    recipes = options.recipe or RECIPES
    with tempfile.TemporaryDirectory() as folder:
        projects = {recipe: _project(Path(folder) / recipe, recipe) for recipe in recipes}
        first = _first_of_all(next(iter(projects.values())), Path(folder) / "cache")
        rows = [_row(recipe, project, options.runs) for recipe, project in projects.items()]
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "runs": options.runs}
    compiler = subprocess.check_output(["g++", "--version"], text=True).splitlines()[0]
    command = "python benchmarks/emulated_build.py"
    results = {"command": command, "compiler": compiler, **facts, "first_build": first, "rows": rows}
    results_file.write(RESULTS, results)
    print(table())


def _project(root: Path, recipe: str) -> Path:
    """A project of one recipe, whose library for the CPU is built."""
    call([*KERNELGEN, "new", str(root), "--defaults", "--data", f"recipes=[{recipe}]"], root.parent, **PATH)
    call([*KERNELGEN, "build", "-j", "2", "--python", sys.executable], root, USE_CUDA="0", **PATH)
    return root


def _first_of_all(root: Path, cache: Path) -> Time:
    return Time.of(lambda: _build(root, XDG_CACHE_HOME=str(cache)))


def _build(root: Path, **variables: str) -> None:
    shutil.rmtree(root / EMULATED, ignore_errors=True)
    call([*KERNELGEN, "build", *OPTIONS], root, **PATH, **variables)


def _row(recipe: str, root: Path, runs: int) -> dict[str, Any]:
    reference = _command_for_cpu(root)
    _build(root)  # What is compiled once for all projects.
    emulated, cpu = paired(runs, lambda: Time.of(lambda: _build(root)), lambda: Time.of(lambda: call(reference, root)))
    row = {"recipe": recipe, "cpu_cpp": median(cpu), "emulated": median(emulated), "ratio": ratio(emulated, cpu)}
    print(json.dumps(row), flush=True)
    return row


def _command_for_cpu(root: Path) -> str:
    """How the build compiles cpu.cpp, without what it writes beside the object."""
    lines = subprocess.check_output(["ninja", "-f", "build/release/build.ninja", "-t", "commands"], cwd=root, text=True)
    (line,) = (line for line in lines.splitlines() if re.search(r"/cpu\.cpp(?!\.o)", line))
    line = re.sub(r"^rm -f \S+; |\$COMPILER_CACHE | -MD -MF \S+| 2> .*$| && mv .*$", "", line)
    return re.sub(r" -o \S+", " -o /dev/shm/emulated_build.o", line)


def table() -> str:
    """The results as rows of Markdown."""
    rows = ["| recipe | `cpu.cpp`, CPU s | emulated, CPU s | emulated, wall s | CPU ratio | wall ratio |"]
    rows.append("|---|--:|--:|--:|--:|--:|")
    for row in json.loads(RESULTS.read_text())["rows"]:
        emulated, times = row["emulated"], row["ratio"]
        rows.append(
            f"| `{row['recipe']}` | {row['cpu_cpp']['cpu']:.1f} | {emulated['cpu']:.1f} | {emulated['wall']:.1f} "
            f"| {times['cpu']:.1f} | {times['wall']:.1f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
