"""The part of docs/performance.md on GPUs: which code of a recipe runs where, and where it was proven and measured.

The paths follow from the folders of the template's ops, and where speed was measured from `results/`. Where suites
passed is in results/proven.json, whose rows are written by hand after a run: a recipe, a GPU by its compute capability,
emulated or by name, and whether the whole suite ran or a part.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
OPS = Path(__file__).resolve().parents[1] / "template" / "src" / "{{ package_name }}" / "ops"
CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
FROM_7_5 = "// architectures: 7.5+"
# Keys of results/serving_h100.json.
SERVING = {"varlen": "flash_attention_varlen", "paged": "flash_attention_paged", "append": "append_to_cache"}
# Recipes whose kernels are written from a function, and the skeleton.
GENERATED = ("blank", "pointwise", "row_wise", "shaped")

NOTES = """`wgmma` needs code for 9.0a and rows of whole 16 bytes; `linear_activation` copies others to padded rows
first. It takes plain loops in float32 and float64, and in bfloat16 on 7.5; attention refuses what is not of 16 bits,
and bfloat16 on 7.5. On 8.6, 8.9 and 12.0 the gradient of heads above 64 has smaller tiles, on 7.5 all of attention
has; from 10.0 on the forward of heads of 72 to 128 has. The norms take clusters for long rows from 9.0 on. `mma.sync`
was forced on 9.0 for its rows in the tables below."""


def folders() -> dict[str, Path]:
    """The template's folder of each recipe that has kernels of its own, by name."""
    paths = [path for path in OPS.iterdir() if path.is_dir()]
    named = {path.name.partition("ops_by_recipe.")[2].partition(" ")[0]: path for path in paths}
    return {recipe: named[recipe] for recipe in sorted(named) if recipe and recipe not in GENERATED}


def path_on(folder: Path, capability: str) -> str:
    """Which code of a recipe runs on a GPU."""
    portable, hopper = (list(folder.glob(f"{room}/*.cu.jinja")) for room in ("sm80", "sm90"))
    products = [source for source in portable if "mma.cuh" in source.read_text() or "attention_" in source.read_text()]
    if capability == "9.0" and hopper:
        return "`wgmma` or `mma.sync`" if portable else "`wgmma`"
    if not portable:
        return "refused" if hopper else "portable"
    if float(capability) >= 8:
        return "`mma.sync`"
    return "`mma.sync`, float16" if all(FROM_7_5 in source.read_text() for source in products) else "refused"


def measured() -> dict[tuple[str, str], set[str]]:
    """The names of the GPUs on which a recipe was timed, by recipe and compute capability. All were of 9.0."""
    gpus: dict[tuple[str, str], set[str]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        results: Any = json.loads(path.read_text())
        environment = results.get("environment") if isinstance(results, dict) else None
        gpu = environment.get("gpu") if isinstance(environment, dict) else None
        if gpu is None:
            continue
        name, capability = (gpu["name"], gpu.get("capability", "9.0")) if isinstance(gpu, dict) else (gpu, "9.0")
        timed = {row.get("op") or row.get("recipe") for row in results.get("rows", [])}
        for recipe in timed | {SERVING[key] for key in SERVING if key in results}:
            gpus.setdefault((recipe, capability), set()).add(name.removeprefix("NVIDIA ").split()[0])
    return gpus


def proven() -> dict[tuple[str, str], list[str]]:
    """Where suites passed, by recipe and compute capability."""
    where: dict[tuple[str, str], list[str]] = {}
    for row in json.loads((RESULTS / "proven.json").read_text()):
        for recipe in row["recipes"]:
            where.setdefault((recipe, row["capability"]), []).append(row["gpu"] + (", a part" if row["part"] else ""))
    return where


def table(cell: Any, columns: tuple[str, ...] = CAPABILITIES) -> list[str]:
    """A row for each recipe, a column for each compute capability."""
    lines = [f"| recipe | {' | '.join(columns)} |", "|" + " --- |" * (len(columns) + 1)]
    for recipe, folder in folders().items():
        lines.append(f"| `{recipe}` | {' | '.join(cell(recipe, folder, column) for column in columns)} |")
    return lines


def part() -> list[str]:
    """The lines of the page."""
    timed, passed = measured(), proven()

    def evidence(recipe: str, _: Path, capability: str) -> str:
        places = "; ".join(passed.get((recipe, capability), ["not proven"]))
        speed = ", ".join(sorted(timed.get((recipe, capability), set())))
        return f"{places}; {'measured: ' + speed if speed else 'not measured'}"

    return [
        *("## Which code runs on which GPU", "", *table(lambda _, folder, column: path_on(folder, column)), ""),
        *(*NOTES.splitlines(), ""),
        *("Where the suites passed, emulated or on a GPU, and where speed was measured:", ""),
        *(*table(evidence), ""),
    ]
