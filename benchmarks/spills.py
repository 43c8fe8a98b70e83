"""Registers, spills and compile time of the recipes' kernels, for every GPU that they are compiled for.

    python benchmarks/spills.py --project DIR [--architectures LIST] [--recipes NAME ...] [--sources PATTERN]
        [--json FILE]

It needs nvcc and no GPU, and takes about an hour on one core for all. DIR keeps what is compiled, and a line of JSON
for each object and architecture in `kernels.jsonl`: a run that was cut off goes on there, so that another DIR is for
other sources. It fails if a kernel spills, or if ptxas serialises its wgmma. `kernelgen build --resources` shows
registers and spills of a project of your own.

Seconds are of processor time, for the object and one architecture. An edit of a `.cu` file compiles all of its objects,
side by side. `--json results/spills.json` writes what README quotes.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import results_file
from build_project import Project
from build_times import Time, call
from kernelgen.toolchain import resources

RECIPES = ["elementwise", "rms_norm", "layer_norm", "swiglu", "linear_activation", "flash_attention"]
RECIPES += ["quantize_fp8", "rms_norm_fp8", "swiglu_fp8", "linear_fp8"]
RECIPES += ["append_to_cache", "flash_attention_fp8", "flash_attention_paged", "flash_attention_varlen"]
ARCHITECTURES = "7.5;8.0;8.6;8.9;9.0a;10.0;12.0"
SERIALISED = "wgmma.mma_async instructions are serialized"


def stamped(folder: Path) -> Project:
    """The project of all recipes in a folder, stamped there unless it is already."""
    if not (folder / "setup.py").exists():
        return Project(folder, RECIPES, ARCHITECTURES)
    project = Project.__new__(Project)
    project.root, project.architecture = folder, ARCHITECTURES
    return project


def objects(project: Project, architecture: str, recipes: list[str], sources: str) -> Iterator[tuple[str, str]]:
    """The path and the label of each object that nvcc makes for an architecture, of these recipes."""
    variables = {"TORCH_CUDA_ARCH_LIST": architecture, "USE_CCACHE": "0", "USE_CUDA": "1"}
    call([sys.executable, "-m", "build_tools", "configure"], project.root, **variables)
    for path, label in project.configuration()["objects"].items():
        recipe = Path(path).relative_to("build/release").parts[0]
        if resources.is_kernel_object(path) and recipe in recipes and re.search(sources, label):
            yield path, label


def compiled(project: Project, architecture: str, path: str, label: str) -> dict[str, Any]:
    """Compiles an object, as a build does, and says what came of it."""
    (project.root / path).unlink(missing_ok=True)
    command = [project.configuration()["ninja"], "-f", "build/release/build.ninja", "-j1", path]
    seconds = Time.of(lambda: call(command, project.root))["cpu"]
    report = (project.root / f"{path}.txt").read_text()
    kernels = resources.demangled(resources.parse(label, report))
    return {
        "architecture": architecture,
        "object": label.partition("/ops/")[2],
        "seconds": round(seconds, 2),
        "kernels": len(kernels),
        "registers": max((kernel.registers for kernel in kernels), default=0),
        "spills": [
            {"kernel": kernel.name, "stores": kernel.spill_stores, "loads": kernel.spill_loads}
            for kernel in kernels
            if kernel.spill_stores or kernel.spill_loads
        ],
        "serialised": SERIALISED in report,
    }


def survey(project: Project, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each object, from the project's file if it has it."""
    file = project.root / "kernels.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {(row["architecture"], row["object"]): row for row in rows}
    for architecture in options.architectures.split(";"):
        for path, label in objects(project, architecture, options.recipes, options.sources):
            row = known.get((architecture, label.partition("/ops/")[2]))
            if row is None:
                row = compiled(project, architecture, path, label)
                with file.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
            yield row


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    nvcc = subprocess.check_output(["nvcc", "--version"], text=True).strip().splitlines()[-1]
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    facts = {"command": "python benchmarks/spills.py", "nvcc": nvcc, "cpu": cpu.partition(": ")[2]}
    results_file.write(file, {**facts, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, required=True, metavar="DIR")
    parser.add_argument("--architectures", default=ARCHITECTURES)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES, metavar="NAME")
    parser.add_argument("--sources", default="", metavar="PATTERN", help="a regular expression that labels match")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = []
    for row in survey(stamped(options.project), options):
        print(json.dumps(row), flush=True)
        rows.append(row)
    if options.json:
        write(options.json, rows)
    faults = sum(len(row["spills"]) + row["serialised"] for row in rows)
    sys.exit(f"{faults} kernels spill or have a serialised wgmma" if faults else 0)


if __name__ == "__main__":
    main()
