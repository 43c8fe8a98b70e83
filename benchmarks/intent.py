"""How many functions `add-op --from` takes, for how many it writes the kernels too, and how many of these pass their
own suite untouched.

    python benchmarks/intent.py --projects DIR [--jobs 16] [--only gelu mse_loss] [--suite] [--json FILE]

The functions are those of functions_of_level1.py. Each job stamps a project DIR/N with its share of them. With --suite
it also builds the project and runs its tests: on the CPU, and on a GPU where there is one.
"""

import argparse
import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import results_file
import yaml

FUNCTIONS = Path(__file__).with_name("functions_of_level1.py")
NAMES = [node.name for node in ast.parse(FUNCTIONS.read_text()).body if isinstance(node, ast.FunctionDef)]
LEVEL_1 = frozenset(NAMES[:100])
# The recipes that write the kernels.
WRITTEN = ("pointwise", "row_wise")
KERNELGEN = [sys.executable, "-m", "kernelgen"]


def stamp(project: Path, name: str) -> dict[str, Any]:
    """What became of a function; `note` says what was in the way of the kernels, or of the op."""
    command = [*KERNELGEN, "add-op", name, "--from", f"{FUNCTIONS}:{name}", "--project", project]
    done = subprocess.run(command, capture_output=True, text=True)
    notes = [line for line in done.stderr.splitlines() if "In the way was" in line or done.returncode]
    answers = yaml.safe_load((project / ".copier-answers.yml").read_text())
    recipe = next((op["recipe"] for op in answers["ops"] if op["name"] == name), None)
    return {"function": name, "level_1": name in LEVEL_1, "recipe": recipe, "note": notes[0] if notes else None}


def share(project: Path, names: list[str], suite: bool, tests: str) -> list[dict[str, Any]]:
    subprocess.run(
        [*KERNELGEN, "new", project, "--defaults", "--data", "recipes=[]"], check=True, stdout=subprocess.DEVNULL
    )
    rows = [stamp(project, name) for name in names]
    written = [row["function"] for row in rows if row["recipe"] in WRITTEN]
    if suite and written:
        # The skeletons of others build too, and their suites skip what is not written.
        outcomes = run_suites(project, written, tests)
        for row in rows:
            row["suite"] = outcomes.get(row["function"])
    return rows


def run_suites(project: Path, names: list[str], tests: str) -> dict[str, dict[str, Any]]:
    """Of each op: its tests by outcome, and the failed ones."""
    built = subprocess.run([*KERNELGEN, "build", "-j", "1", "--project", project], capture_output=True, text=True)
    (project / "build.txt").write_text(built.stdout + built.stderr)
    if built.returncode:
        return {name: {"outcomes": {}, "failed": ["the build"]} for name in names}
    (package,) = (project / "src").iterdir()
    report = project / "suite.xml"
    folders = [package / "ops" / name for name in names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", tests, f"--junitxml={report}", *folders],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    outcomes: dict[str, dict[str, Any]] = {name: {"outcomes": Counter(), "failed": []} for name in names}
    for case in ElementTree.parse(report).iter("testcase"):
        op = case.get("classname", "").split(".")[-3]
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[op]["outcomes"][outcome] += 1
        if outcome == "failed":
            outcomes[op]["failed"].append(case.get("name"))
    return outcomes


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    written = [row for row in rows if row["recipe"] in WRITTEN]
    counts = {
        "functions": len(rows),
        "taken": sum(row["recipe"] is not None for row in rows),
        "with kernels": len(written),
        "with kernels, of level 1": sum(row["level_1"] for row in written),
    }
    tested = [row["suite"] for row in written if row.get("suite")]
    if tested:
        counts["tested"] = len(tested)
        counts["green"] = sum(bool(suite["outcomes"].get("passed")) and not suite["failed"] for suite in tested)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="FUNCTION")
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--tests", default="", help="pytest's -k, such as 'not huge'")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.projects.mkdir(parents=True, exist_ok=True)
    shares = [options.only[i :: options.jobs] for i in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(share, options.projects / f"p{i}", names, options.suite, options.tests)
            for i, names in enumerate(shares)
            if names
        ]
        rows = [row for job in jobs for row in job.result()]
    rows.sort(key=lambda row: NAMES.index(row["function"]))
    for row in rows:
        suite = row.get("suite")
        tested = f"{dict(suite['outcomes'])} {suite['failed'][:4]}" if suite else row["note"] or ""
        print(f"{row['function']:34} {row['recipe'] or 'refused':10} {tested}")
    print(summary(rows))
    if options.json:
        results_file.write(options.json, {"command": " ".join(sys.argv), "counts": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
