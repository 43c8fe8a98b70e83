"""How many functions `add-op --from` takes, for how many it writes the kernels too, and how many of these pass their
own suite untouched.

    python benchmarks/intent.py --projects DIR [--jobs 16] [--only gelu mse_loss] [--suite cpu cuda] [--json FILE]

The functions are those of functions_of_level1.py. Each is stamped into a project of its own in DIR, which --suite
builds and tests, on the CPU first, one process and one thread a function. Results are written after every suite, and
the failed tests' own text to --failures; what has not ended after --limit seconds is no result.
"""

import argparse
import ast
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import yaml

import results_file

FUNCTIONS = Path(__file__).with_name("functions_of_level1.py")
NAMES = [node.name for node in ast.parse(FUNCTIONS.read_text()).body if isinstance(node, ast.FunctionDef)]
LEVEL_1 = frozenset(NAMES[:100])
# The recipes that write the kernels.
WRITTEN = ("pointwise", "row_wise")
KERNELGEN = [sys.executable, "-m", "kernelgen"]
ONE_CORE = {"OMP_NUM_THREADS": "1", "MAX_JOBS": "1"}
# The tests of a device, by pytest's -k: without a GPU in sight, those of one are skipped.
TESTS = {"cpu": "", "cuda": "not cpu"}


class OutOfTimeError(Exception):
    pass


class Run:
    """What the functions share: where their projects lie, and until when they may take."""

    def __init__(self, projects: Path, limit: float) -> None:
        self.projects, self.end = projects, time.monotonic() + limit

    def project(self, name: str) -> Path:
        return self.projects / f"{name}_kernels"

    def call(self, command: list[Any], folder: Path | None = None, **environment: str) -> tuple[int, str]:
        """A command's exit code and output.

        Raises:
            OutOfTimeError: it had to be stopped, or there was no time to begin.
        """
        left = self.end - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **ONE_CORE, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise OutOfTimeError from error
        return process.returncode, output

    def stamp(self, name: str) -> dict[str, Any]:
        """What became of a function; `note` says what was in the way of the kernels, or of the op."""
        project = self.project(name)
        code, output = self.call([*KERNELGEN, "new", project, "--defaults", "--data", "recipes=[]"])
        if code:
            raise RuntimeError(output)
        started = time.monotonic()
        code, output = self.call([*KERNELGEN, "add-op", name, "--from", f"{FUNCTIONS}:{name}", "--project", project])
        seconds = time.monotonic() - started
        notes = [line for line in output.splitlines() if "In the way was" in line or code]
        answers = yaml.safe_load((project / ".copier-answers.yml").read_text())
        recipe = next((op["recipe"] for op in answers["ops"] if op["name"] == name), None)
        row = {"function": name, "level_1": name in LEVEL_1, "recipe": recipe, "note": notes[0] if notes else None}
        return row | {"add_op_s": round(seconds, 1)}

    def suite(self, name: str, device: str) -> tuple[dict[str, Any], str]:
        """The op's tests by outcome and the failed ones, and these tests' text. pytest builds the project."""
        project = self.project(name)
        report = project / f"suite-{name}-{device}.xml"
        options = ["-q", "-p", "no:cacheprovider", "-k", TESTS[device], f"--junitxml={report}"]
        environment = {} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
        started = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-o",
            "junit_logging=all",
            f"src/{project.name}/ops/{name}",
        ]
        _, output = self.call(command, project, **environment)
        outcomes: Counter[str] = Counter(seconds=round(time.monotonic() - started))
        if not report.exists():
            return {**outcomes, "failed": ["the build, or the tests' collection"]}, output
        failed, texts = [], []
        for case in ElementTree.parse(report).iter("testcase"):
            outcome, text = outcome_of(case)
            outcomes[outcome] += 1
            if outcome == "failure":
                failed.append(case.get("name"))
                texts.append(f"==== {name}, {device}: {case.get('name')}\n{text}\n")
        return {**outcomes, "failed": failed}, "".join(texts)


def outcome_of(case: ElementTree.Element) -> tuple[str, str]:
    for child in case:
        if child.tag in ("failure", "error"):
            return "failure", f"{child.text}\n{case.findtext('system-out', '')}"
        if child.tag == "skipped":
            return ("expected failure" if child.get("type") == "pytest.xfail" else "skipped"), ""
    return "passed", ""


def results(run: Run, names: list[str], devices: list[str], jobs: int) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows, each once for its stamp and once for each suite that ended, and the text of failed tests."""
    with ThreadPoolExecutor(jobs) as pool:
        rows = {}
        for stamped in as_completed([pool.submit(run.stamp, name) for name in names]):
            if not stamped.exception():
                rows[stamped.result()["function"]] = stamped.result()
                yield stamped.result(), ""
        written = [name for name in names if name in rows and rows[name]["recipe"] in WRITTEN]
        suites: dict[Future[tuple[dict[str, Any], str]], tuple[str, str]] = {}
        for device in devices:
            # Of the rows' kernels first: they take longest.
            for name in sorted(written, key=lambda name: rows[name]["recipe"] != "row_wise"):
                suites[pool.submit(run.suite, name, device)] = name, device
        for suite in as_completed(suites):
            name, device = suites[suite]
            if isinstance(suite.exception(), OutOfTimeError):
                continue
            rows[name][device], text = suite.result()
            yield rows[name], text


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    written = [row for row in rows if row["recipe"] in WRITTEN]
    counts = {
        "functions": len(rows),
        "taken": sum(row["recipe"] is not None for row in rows),
        "with kernels": len(written),
        "with kernels, of level 1": sum(row["level_1"] for row in written),
    }
    for device in TESTS:
        suites = [row[device] for row in written if device in row]
        if suites:
            counts[f"tested, {device}"] = len(suites)
            counts[f"green, {device}"] = sum(bool(suite.get("passed")) and not suite["failed"] for suite in suites)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="FUNCTION")
    parser.add_argument("--suite", nargs="+", choices=list(TESTS), default=[], metavar="DEVICE", help="cpu, cuda")
    parser.add_argument("--limit", type=float, default=1e6, help="seconds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--failures", type=Path)
    options = parser.parse_args()
    options.projects.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    run = Run(options.projects.resolve(), options.limit)
    for row, failures in results(run, options.only, options.suite, options.jobs):
        rows[row["function"]] = row
        print(" ".join(f"{value}" for value in row.values()), flush=True)
        if options.failures and failures:
            with options.failures.open("a") as file:
                file.write(failures)
        if options.json:
            ordered = sorted(rows.values(), key=lambda row: NAMES.index(row["function"]))
            value = {"command": " ".join(sys.argv), "counts": summary(ordered), "rows": ordered}
            results_file.write(options.json, value)
    print(summary(list(rows.values())))


if __name__ == "__main__":
    main()
