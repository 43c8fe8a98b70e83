"""How long `new` and `add-op` take as processes, beside stock copier, in one interleaved run.

    python benchmarks/scaffold.py [--runs 20] [--json FILE]

Each command runs once unmeasured, then `--runs` times, the commands taking turns. Printed are the median and its 95%
interval, by order statistics.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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


def commands(folder: Path, checkout: Path) -> list[Command]:
    """The commands to time, all below `folder`; copier stamps from `checkout`."""
    project = folder / "project"
    subprocess.run([*KERNELGEN, "new", str(project), "--defaults"], check=True, capture_output=True)

    def remove_op() -> None:
        command = [*KERNELGEN, "remove-op", "timed", "--project", str(project)]
        subprocess.run(command, check=True, capture_output=True)

    def remove(name: str) -> Callable[[], None]:
        return lambda: shutil.rmtree(folder / name)

    add = [*KERNELGEN, "add-op", "timed", "--project", str(project)]
    schema = "(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor"
    copy = [*COPIER, "copy", "--defaults", "--quiet", str(checkout), "copied"]
    return [
        Command("python -c pass", [sys.executable, "-c", "pass"]),
        Command("kernelgen --help", [*KERNELGEN, "--help"], bound=0.15, aim=0.08),
        Command("add-op --recipe", [*add, "--recipe", "elementwise"], remove_op, bound=0.25, aim=0.15),
        Command("add-op --schema", [*add, "--schema", schema], remove_op, bound=0.25, aim=0.2),
        Command("kernelgen new", [*KERNELGEN, "new", "made", "--defaults"], remove("made"), bound=1.0, aim=0.6),
        Command("copier --help", [*COPIER, "--help"]),
        Command("copier copy", copy, remove("copied")),
    ]


def make_checkout(folder: Path) -> Path:
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


def table(rows: list[dict]) -> str:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="measured runs of each command, 10 or more")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if options.runs < 10:
        parser.error("--runs takes 10 or more: fewer give no 95% interval")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        checkout = make_checkout(folder)
        os.environ["PYTHONPATH"] = str(checkout)
        # Modules are compiled once, as those of an installed command, not in every run.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        timed = commands(folder, checkout)
        measure(timed, folder, options.runs)
    rows = [command.summary() for command in timed]
    print(table(rows))
    if options.json:
        machine = {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        results_file.write(options.json, machine | {"load": os.getloadavg(), "rows": rows})


if __name__ == "__main__":
    main()
