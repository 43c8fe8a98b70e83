"""How long builds take: a project with every recipe, over bare nvcc and g++ with the same flags; and its peers.

    python benchmarks/build.py              # a few minutes on two cores
    python benchmarks/build.py --peers      # also torch's own ways to build, and what each remedy brings: half an hour

Run it with a Python that has torch, ninja and kernelgen, on a machine with nvcc; no GPU is needed. Each comparison
alternates between its two sides, and ratios are of neighbouring runs: a machine that slows down slows both. Processor
time is given beside the time that passed, since other programs on the machine prolong the second alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import results_file
from build_peers import peers
from build_project import ALL_ARCHITECTURES, KERNEL, PACKAGE, REPOSITORY, Project
from build_times import Time, median, paired, ratio, say, show

RESULTS = Path(__file__).parent / "results"
HEADER = PACKAGE / "include/cuda/vector.cuh"


def own_loop(project: Project, repeat: int) -> dict[str, object]:
    """What a developer waits for, over the bare compilers: a cold build, edits, no change, and builds with ccache."""
    few = max(2, repeat // 2)
    project.cold()
    commands = project.bare_commands()
    objects = [output for output in commands if output.endswith(".o")]
    report: dict[str, object] = {"cold": cold_build(project, objects, few)}
    project.cold()
    report["compile seconds of each kernel's file"] = compile_seconds(project)
    for source, outputs in kernels(project, objects).items():
        name = source.relative_to(PACKAGE / "ops")
        report[f"edit {name}"] = edit_of_kernel(project, source, outputs, repeat)
    report["threads"] = threads(project, few)
    project.build()
    noop = [project.build() for _ in range(3 * repeat)]
    report["no-op"] = {"time": median(noop)}
    show("nothing edited", noop)
    headers = [edited(project, HEADER)() for _ in range(max(1, repeat // 2))]
    report["header edit"] = {"time": median(headers)}
    show("edit of include/cuda/vector.cuh", headers)
    if shutil.which("ccache"):
        report |= with_ccache(project, repeat, few)
    return report


def edited(project: Project, source: Path, **settings: str) -> Callable[[], Time]:
    """A build after an edit of one file."""

    def build() -> Time:
        project.edit(source)
        return project.build(**settings)

    return build


def cold_build(project: Project, objects: list[str], repeat: int) -> dict[str, object]:
    cores = len(os.sched_getaffinity(0))
    cold, bare = paired(repeat, project.cold, lambda: project.bare(*objects))
    ideal = [Time(wall=run["wall"] / cores, cpu=run["cpu"]) for run in bare]
    report = {"files": len(objects), "time": median(cold), "sum of bare compiles": median(bare)}
    report["over bare / cores"] = ratio(cold, ideal)
    show("cold build of every recipe", cold, "bare compiles / cores", ideal)
    # Two compilers are not twice as fast as one where other programs use the machine too; this bound has that in it.
    cold, bare = paired(repeat, project.cold, lambda: project.bare_at_once(*objects))
    report["over bare, at once"] = ratio(cold, bare)
    show("", cold, "bare compiles at once", bare)
    return report


def compile_seconds(project: Project) -> dict[str, list[float]]:
    by_op = project.compile_seconds()
    for op, seconds in by_op.items():
        say(f"{f'a file of {op}':34} {seconds[0]:8.1f} to {seconds[-1]:.1f} s, {len(seconds)} files")
    return by_op


def kernels(project: Project, objects: list[str]) -> dict[Path, list[str]]:
    """The objects of each `.cu` file, in the order of their names."""
    labels = project.configuration()["objects"]
    by_source: dict[str, list[str]] = {}
    for output in objects:
        source = labels[output].partition(" (")[0]
        if source.endswith(".cu"):
            by_source.setdefault(source, []).append(output)
    return {Path(source): by_source[source] for source in sorted(by_source)}


def edit_of_kernel(project: Project, source: Path, outputs: list[str], repeat: int) -> dict[str, object]:
    """A file that is instantiated several times is edited once, and compared with all of its compilations."""

    def bare() -> Time:
        compiled, link = project.bare_at_once(*outputs), project.bare(str(PACKAGE / "_cuda.so"))
        return Time({key: compiled[key] + link[key] for key in ("wall", "cpu")})

    ours, theirs = paired(repeat, edited(project, source), bare)
    show(f"edit of {source.relative_to(PACKAGE / 'ops')}", ours, "nvcc -c and link", theirs)
    return {"time": median(ours), "bare nvcc -c and link": median(theirs), "over bare": ratio(ours, theirs)}


def threads(project: Project, repeat: int) -> dict[str, object]:
    """An edit compiled for seven architectures, by as many threads of nvcc as there are cores."""
    cores, seven = len(os.sched_getaffinity(0)), {"TORCH_CUDA_ARCH_LIST": ALL_ARCHITECTURES}
    several = edited(project, KERNEL, **seven, NVCC_THREADS=str(cores))
    ours, theirs = paired(repeat, several, edited(project, KERNEL, **seven))
    show(f"edit, 7 architectures, {cores} threads", ours, "one thread", theirs)
    return {"cores": cores, "time": median(ours), "over one": ratio(ours, theirs)}


def with_ccache(project: Project, repeat: int, few: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as cache:
        settings = {"USE_CCACHE": "1", "CCACHE_DIR": cache}
        filling = project.cold(**settings)
        missed, without = paired(repeat, edited(project, KERNEL, **settings), edited(project, KERNEL))
        show("edit that ccache has not seen", missed, "without a cache", without)
        project.cold(**settings)
        warm, cold = paired(few, lambda: project.cold(**settings), project.cold)
        show("cold build, warm ccache", warm, "cold build", cold)
    return {
        "edit that the cache has not seen": {"time": median(missed), "over none": ratio(missed, without)},
        "warm cache": {"time": median(warm), "filling it": filling, "over cold": ratio(warm, cold)},
    }


def machine() -> dict[str, object]:
    def first_line(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().splitlines()[-1]

    from importlib.metadata import version

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(memory, 1),
        "g++": first_line("g++", "-dumpfullversion"),
        "nvcc": first_line("nvcc", "--version"),
        "torch": version("torch"),
        "load before": os.getloadavg()[0],
    }


def main() -> None:
    import yaml

    recipes = yaml.safe_load((REPOSITORY / "copier.yml").read_text())["recipes"]["choices"]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7, help="runs of each side of an edit (default: 7)")
    parser.add_argument("--arch", default="9.0a", help="the architecture to compile for (default: 9.0a)")
    parser.add_argument("--recipes", nargs="+", default=recipes, help="default: every one")
    parser.add_argument("--peers", action="store_true", help="also build the ways that take minutes, once each")
    parser.add_argument("--output", type=Path, default=RESULTS / "build.json", help="default: %(default)s")
    options = parser.parse_args()

    report: dict[str, object] = {"machine": machine(), "recipes": options.recipes, "architecture": options.arch}
    say("\n".join(f"{key}: {value}" for key, value in report["machine"].items()) + "\n")
    with tempfile.TemporaryDirectory(prefix="kernelgen-build-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        project = Project(home / "demo", options.recipes, options.arch)
        report["loop"] = own_loop(project, options.repeat)
        if options.peers:
            report["peers"] = peers(home, Project(home / "one" / "demo", ["elementwise"], options.arch))
    report["machine"]["load after"] = os.getloadavg()[0]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    results_file.write(options.output, report)
    say(f"\nwritten: {options.output}")


if __name__ == "__main__":
    main()
