"""How long `new` and `add-op` take as processes, beside stock copier, in one interleaved run.

    python benchmarks/scaffold.py [--runs 20] [--json FILE]

Each command runs once unmeasured, then `--runs` times, the commands taking turns. Printed are the median and its 95%
interval, by order statistics.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from timed_commands import COPIER, KERNELGEN, Command, checked_out, measure, read_options, report


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


def main() -> None:
    options = read_options(argparse.ArgumentParser(description=__doc__.splitlines()[0]), runs=20)
    with checked_out() as (folder, checkout):
        timed = commands(folder, checkout)
        measure(timed, folder, options.runs)
    report(timed, options.json)


if __name__ == "__main__":
    main()
