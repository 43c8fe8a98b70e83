"""How long an update of a project takes, by its number of ops, beside stock Copier's, in one interleaved run.

    python benchmarks/updates.py [--ops 5 50 200] [--runs 10] [--json FILE]

The newer template differs in one line of every recipe's kernel. Each command runs once unmeasured, then `--runs` times,
the commands taking turns, on a project that git has put back. Printed are the median and its 95% interval, by order
statistics.
"""

import argparse
import subprocess
from pathlib import Path

from timed_commands import COPIER, KERNELGEN, Command, checked_out, measure, read_options, report

RECIPES = ("elementwise", "rms_norm", "layer_norm", "swiglu")
IDENTITY = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@example.com"]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *IDENTITY, *arguments], check=True, capture_output=True)


def stamp(folder: Path, ops: int) -> None:
    """A committed project with so many ops."""
    # Not where this runs from: there Python would import that kernelgen, and stamp from its template.
    new = [*KERNELGEN, "new", str(folder), "--defaults", "--data", "recipes=[]"]
    subprocess.run(new, check=True, capture_output=True, cwd=folder.parent)
    for number in range(ops):
        recipe = RECIPES[number % len(RECIPES)]
        add = [*KERNELGEN, "add-op", f"op_{number}", "--recipe", recipe, "--project", str(folder)]
        subprocess.run(add, check=True, capture_output=True, cwd=folder.parent)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "stamped")


def make_newer(checkout: Path) -> None:
    for recipe in RECIPES:
        for file in (checkout / "template").glob(f"src/*/ops/*ops_by_recipe.{recipe} *"):
            kernel = min(file.glob("*.cu*"))
            kernel.write_text(f"// A newer template.\n{kernel.read_text()}")
    git(checkout, "commit", "--quiet", "--all", "--message", "newer")


def commands(folder: Path, ops: int) -> list[Command]:
    project = folder / f"project-{ops}"

    def put_back() -> None:
        git(project, "reset", "--quiet", "--hard")
        git(project, "clean", "--quiet", "-d", "--force")

    update = [*KERNELGEN, "update", "--project", str(project)]
    bound = 1.5 if ops == 50 else None
    return [
        Command(f"dry run, {ops} ops", [*update, "--dry-run"], put_back, bound=bound),
        Command(f"update, {ops} ops", update, put_back),
        Command(f"copier, {ops} ops", [*COPIER, "update", "--defaults", "--quiet", str(project)], put_back),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, nargs="+", default=[5, 50, 200], help="the numbers of ops")
    options = read_options(parser, runs=10)
    with checked_out() as (folder, checkout):
        # kernelgen and Copier take the template's newest commit where it has no release.
        for ops in options.ops:
            stamp(folder / f"project-{ops}", ops)
        make_newer(checkout)
        timed = [command for ops in options.ops for command in commands(folder, ops)]
        measure(timed, folder, options.runs)
    report(timed, options.json)


if __name__ == "__main__":
    main()
