"""Proves, in one command, what only a machine with a GPU can prove of the recipes.

    python tools/prove_on_gpu.py [--out DIR] [--jobs 6] [--only STEP ...]

It needs the packages that `make test` installs, nvcc and compute-sanitizer. A project of every recipe is stamped from
this checkout and built for this GPU. Then run: its whole test suite with the slow tests, the four tools of
compute-sanitizer over every op (and over the paths that ops do not take by default), planted faults that its tests have
to notice, the lab's own tests, the mutants that fuzz has to catch, the emulated GPU against this one, how many planted
faults of synchronisation which tool sees, and the measurement of a call's overhead. DIR keeps the output of each step,
and the project for the next call. A step that fails does not stop the others.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 900
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# PyTorch's caching allocator would hide accesses outside of a tensor, or to a freed one.
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# What racecheck reports of stages that mbarriers guard and plain loads read: row statistics that bulk copies bring,
# scales and flags beside tiles, and the places of tiles that a scheduler writes. A ring that is right shows it too. The
# emulated GPU sees races there.
RING = ROOT / "tests" / "emulator" / "kernels" / "ring.cu"
AT_RINGS = re.compile(
    "Write access at tma_load_bytes"
    "|(Read|Write) access at .*attention_fp8_kernel::sm90::fwd::(consume|load_tiles|transpose_tiles)"
    "|Write access at attention::sm90::fwd::Producer<.*>::(schedule|load_queries)"
    "|(Read|Write) access at .*attention::sm90::bwd::DrawnWork<"
    "|Read access at attention::sm90::(RaggedRows|fwd::WorkTile<.*>)::broadcast"
    "|Read access at attention::sm90::bwd::Keys<.*>::compute_(p|ds)"
)
# The exit code of a sanitizer that has found something.
ERRORS_EXIT_CODE = "9"
# Recipes of ops whose kernels are written from a function or from shapes, and the skeleton.
GENERATED = ("blank", "pointwise", "row_wise", "shaped")


@dataclass(frozen=True)
class Step:
    """A command of the proof; it fails after `limit_s` seconds."""

    name: str
    command: list[str]
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    limit_s: int = LIMIT_S


def main() -> int:
    options = _options()
    project = (options.out / "every-recipe").resolve()
    # These need the GPU to themselves: they measure, or take tens of gigabytes of its memory.
    alone = [overhead(project, options.out), suite(project, options.jobs), lab()]
    shared = [*checks(project), *emulation(options.out)]
    if unknown := set(options.only) - {step.name for step in alone + shared}:
        names = ", ".join(repr(step.name) for step in alone + shared)
        sys.exit(f"There is no step {sorted(unknown)[0]!r}; there are {names}.")
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; run this on a machine with one.")
    options.out.mkdir(parents=True, exist_ok=True)
    if not all(run(step, options.out) for step in making(project)):
        return 1
    passed = [run(step, options.out) for step in alone if _is_wanted(step, options)]
    with ThreadPoolExecutor(options.jobs) as pool:
        steps = [step for step in shared if _is_wanted(step, options)]
        passed += pool.map(lambda step: run(step, options.out), steps)
    print(f"{sum(passed)} of {len(passed)} passed; their output is in {options.out}")
    return int(not all(passed))


def _is_wanted(step: Step, options: argparse.Namespace) -> bool:
    return not options.only or step.name in options.only


def recipes(*rooms: str) -> list[str]:
    """The recipes whose op has folders of these names, such as `sm90`."""
    folders = (ROOT / "template").glob("src/*/ops/*ops_by_recipe.*")
    having = [folder for folder in folders if all((folder / room).is_dir() for room in rooms)]
    return sorted(folder.name.split("ops_by_recipe.")[1].split(" ")[0] for folder in having)


def making(project: Path) -> list[Step]:
    kernelgen = [sys.executable, "-m", "kernelgen"]
    chosen = f"recipes=[{', '.join(recipe for recipe in recipes() if recipe not in GENERATED)}]"
    stamp = Step("stamp", [*kernelgen, "new", str(project), "--defaults", "--data", chosen], ROOT)
    return [
        *([] if project.exists() else [stamp]),
        Step("build", [*kernelgen, "build", "--arch", "native", "--python", sys.executable], project),
    ]


def overhead(project: Path, out: Path) -> Step:
    script = [sys.executable, str(ROOT / "benchmarks" / "overhead.py"), "--project", str(project)]
    return Step("overhead", [*script, "--json", str((out / "overhead.json").resolve())], ROOT)


def suite(project: Path, jobs: int) -> Step:
    return Step("suite", [*_pytest(), "--slow", "-n", str(jobs)], project)


def lab() -> Step:
    files = ("tests/worker/test_clock.py", "tests/worker/test_exploits.py")
    return Step("lab", [*_pytest(), *files, "-k", "gpu"], ROOT)


def checks(project: Path) -> list[Step]:
    calls = [sys.executable, str(ROOT / "tools" / "calls.py"), str(project)]
    sanitizer = ["compute-sanitizer", "--error-exitcode", ERRORS_EXIT_CODE, "--tool"]
    package = project.name.replace("-", "_")
    # They take the path for Hopper, and can take the other there too.
    with_paths = recipes("sm80", "sm90")
    sm80 = {f"{package}_{op}_PATH".upper(): "sm80" for op in with_paths} | NO_CACHE
    tiles = [sys.executable, str(ROOT / "tools" / "tiles.py"), str(project)]
    halves = ["--only", *with_paths, "--dtypes", "float16", "bfloat16"]
    # initcheck does not see the writes of Hopper's copy engine, and reports every read of them. cuBLAS uses that engine
    # too, in the products of linear_activation's backward.
    not_seen = {"initcheck": ["--without", *recipes("sm90")]}
    not_seen_of_sm80 = {"initcheck": ["--forward-only", "linear_activation"]}
    return [
        *(Step(tool, [*sanitizer, tool, *calls, *not_seen.get(tool, [])], ROOT, NO_CACHE) for tool in TOOLS),
        *(
            Step(
                f"{tool} of sm80 paths",
                [*sanitizer, tool, *calls, *halves, *not_seen_of_sm80.get(tool, [])],
                ROOT,
                sm80,
            )
            for tool in TOOLS
        ),
        *(
            Step(f"{tool} of every tile", [*sanitizer, tool, *tiles], ROOT, NO_CACHE)
            for tool in TOOLS
            if tool != "initcheck"
        ),
        Step("planted faults", [*_pytest(), "tests/stamped/test_faults.py", "-k", "gpu"], ROOT),
        Step("mutants", [sys.executable, "-m", "tests.worker.gpu_mutants"], ROOT),
    ]


def emulation(out: Path) -> list[Step]:
    """The emulated GPU against this one, and against the tools that look for faults on it."""
    styles = [sys.executable, str(ROOT / "tools" / "styles_on_gpu.py"), "--out", str((out / "styles").resolve())]
    faults = [sys.executable, str(ROOT / "benchmarks" / "synchronisation_faults.py")]
    faults += ["--out", str((out / "synchronisation").resolve())]
    return [Step("styles", styles, ROOT), Step("synchronisation faults", faults, ROOT, limit_s=4 * LIMIT_S)]


def _pytest() -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def run(step: Step, out: Path) -> bool:
    """Run a step, and print its outcome in one line."""
    start, log = time.monotonic(), out / f"{step.name.replace(' ', '-')}.txt"
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **step.variables, "PYTHONPATH": path}
    with log.open("w") as file:
        try:
            result = subprocess.run(
                step.command,
                cwd=step.folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=step.limit_s,
                check=False,
            )
            code = str(result.returncode)
        except (OSError, subprocess.TimeoutExpired) as problem:
            code = str(problem)
    text = log.read_text(errors="replace")
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    outcome = "passed" if code == "0" else f"FAILED ({code})"
    if code == ERRORS_EXIT_CODE and is_of_rings_alone(text) and is_reported_of_a_right_ring(out):
        code, outcome = "0", f"passed but for reports at rings, as of {RING.name}"
    print(f"{step.name:16} {outcome}, {time.monotonic() - start:.0f} s: {last[:150]}", flush=True)
    return code == "0"


def is_of_rings_alone(text: str) -> bool:
    """Whether racecheck's output holds no other error, and its program ended well.

    An access that it cannot attribute, or only to the kernel, is at a ring if all that it collides with is.
    """
    errors = re.findall("^========= Error: Race reported between (.*\n(?:=========     and .*\n)*)", text, re.MULTILINE)
    others = len(re.findall("^========= Error: ", text, re.MULTILINE)) - len(errors)
    return bool(errors) and not others and all(map(is_at_rings, errors)) and "application returned an error" not in text


def is_at_rings(error: str) -> bool:
    first, *others = error.splitlines()
    collisions = [line.partition(" and ")[2] for line in others]
    return bool(AT_RINGS.match(first) or (collisions and all(map(AT_RINGS.match, collisions))))


def is_reported_of_a_right_ring(out: Path) -> bool:
    program = out / RING.stem
    subprocess.run(["nvcc", "-arch=native", "-lineinfo", "-o", program, RING], check=True)
    command = ["compute-sanitizer", "--tool", "racecheck", program]
    return "Race reported between" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="default: build/gpu")
    parser.add_argument("--jobs", type=int, default=6, help="tests and tools at once (6)")
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="such as suite or memcheck; default: all")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
