"""Times commands as processes, in one interleaved run: medians with their 95% intervals, by order statistics."""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import results_file
from order_statistics import interval, median

ROOT = Path(__file__).parents[1]
KERNELGEN = [sys.executable, "-m", "kernelgen"]
COPIER = [sys.executable, "-m", "copier"]


@dataclass
class Command:
    """A command to time; `after` undoes it, unmeasured. `bound` and `aim` are in seconds."""

    name: str
    arguments: list[str]
    after: Callable[[], None] = lambda: None
    bound: float | None = None
    aim: float | None = None
    seconds: list[float] = field(default_factory=list)

    def run(self, folder: Path) -> float:
        start = time.perf_counter()
        subprocess.run(self.arguments, cwd=folder, check=True, capture_output=True)
        taken = time.perf_counter() - start
        self.after()
        return taken

    def summary(self) -> dict[str, float | int | str | None]:
        low, high = interval(self.seconds)
        count, middle = len(self.seconds), median(self.seconds)
        return {"command": self.name, "runs": count, "median_s": middle, "low_s": low, "high_s": high} | {
            "bound_s": self.bound,
            "aim_s": self.aim,
        }


def read_options(parser: argparse.ArgumentParser, runs: int) -> argparse.Namespace:
    """The command line, with `runs` and `json` beside what the parser has."""
    parser.add_argument("--runs", type=int, default=runs, help="measured runs of each command, 10 or more")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if options.runs < 10:
        parser.error("--runs takes 10 or more: fewer give no 95% interval")
    return options


@contextmanager
def checked_out() -> Iterator[tuple[Path, Path]]:
    """A scratch folder, and in it a checkout of this kernelgen, which is the one that commands run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        checkout = _make_checkout(folder)
        os.environ["PYTHONPATH"] = str(checkout)
        # Modules are compiled once, as those of an installed command, not in every run.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        yield folder, checkout


def _make_checkout(folder: Path) -> Path:
    checkout = folder / "checkout"
    for name in ("kernelgen", "template"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "copier.yml", checkout)
    identity = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@example.com"]
    for command in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "-m", "timed"]):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)
    return checkout


def measure(timed: list[Command], folder: Path, runs: int) -> None:
    """Runs every command once unmeasured, then so many times, the commands taking turns."""
    for command in timed:
        command.run(folder)
    for _ in range(runs):
        for command in timed:
            command.seconds.append(command.run(folder))


def report(timed: list[Command], file: Path | None) -> None:
    """Prints the figures, and writes them to the file with the machine they were measured on."""
    rows = [command.summary() for command in timed]
    print(_table(rows))
    if file:
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        results_file.write(file, machine | {"load": os.getloadavg(), "rows": rows})


def _table(rows: list[dict]) -> str:
    lines = [f"{'command':18} {'median':>8} {'95% interval':>17} {'runs':>5} {'bound':>6} {'aim':>6}"]
    for row in rows:
        low_high = f"{row['low_s']:.3f} to {row['high_s']:.3f}"
        limits = [f"{row[key]:.2f}" if row[key] else "" for key in ("bound_s", "aim_s")]
        verdict = "" if not row["bound_s"] else "  met" if row["high_s"] <= row["bound_s"] else "  MISSED"
        lines.append(
            f"{row['command']:18} {row['median_s']:7.3f}s {low_high:>17} {row['runs']:5} "
            f"{limits[0]:>6} {limits[1]:>6}{verdict}"
        )
    return "\n".join(lines)
