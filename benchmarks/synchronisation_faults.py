"""Counts which planted faults of synchronisation are seen by plain runs, perturbed runs, compute-sanitizer, and the
emulated GPU.

    python benchmarks/synchronisation_faults.py [--out DIR] [--jobs 6] [--count 60] [--only WORD ...]
    python benchmarks/synchronisation_faults.py --table
    python benchmarks/synchronisation_faults.py --build-only

The faults are those of tests/emulator/faults that concern the order of threads or of asynchronous operations. Right
kernels run too, and nothing may complain of them.

A kernel of tests/emulator/styles is built by nvcc as it is, and again with random waits around whatever synchronises;
each library solves its problems --count times. A fault in a recipe is planted in a project: `kernelgen fuzz` and
`kernelgen fuzz --perturb` draw --count cases, and compute-sanitizer runs the op over the cases of its tests.

Every run is a process of its own with a limit of time, since a fault may hang it; the right kernels have to end in it,
too. A fault is seen where the process reports a wrong result or an error, or does not end. Outcomes go into
benchmarks/results/synchronisation_faults.json as they come; --table prints what is there. The emulated GPU's column is
from tests/emulator/faults/results.json. --build-only needs nvcc, and no GPU.
"""

import argparse
import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import results_file  # noqa: E402
from tests.emulator.faults import Fault, Kind  # noqa: E402
from tests.emulator.faults.__main__ import recorded  # noqa: E402
from tests.emulator.faults.recipes import RECIPE_FAULTS  # noqa: E402
from tests.emulator.faults.styles import STYLE_FAULTS  # noqa: E402
from tests.emulator.styles import STYLES, Style  # noqa: E402
from tests.emulator.styles.hardware import compile_for_gpu  # noqa: E402

KINDS = {
    *(Kind.BLOCK_BARRIER, Kind.WARP_BARRIER, Kind.WIDE_BARRIER, Kind.NAMED_BARRIER, Kind.DIVERGENCE, Kind.DEADLOCK),
    *(Kind.FENCE, Kind.PLAIN_UPDATE, Kind.PLAIN_FLAG, Kind.TWO_WRITERS, Kind.ENDED_BLOCK),
    *(Kind.MBARRIER, Kind.STAGE, Kind.ASYNC_WAIT, Kind.PROXY_FENCE, Kind.INIT_FENCE),
}
# The checks of recipes' faults that a recipe alone shows: its op, and the path to take where it is not the GPU's own.
RECIPES = {
    "linear_activation": ("linear_activation", None),
    "flash_attention": ("flash_attention", "sm80"),
    "sm90_attention": ("flash_attention", None),
}
RESULTS = ROOT / "benchmarks" / "results" / "synchronisation_faults.json"
SANITIZERS = ("racecheck", "synccheck", "memcheck", "initcheck")
COLUMNS = ("plain", "perturbed", "compute-sanitizer", "emulated")
ARCHITECTURE = "9.0a"
KERNELGEN = [sys.executable, "-m", "kernelgen"]


@dataclass(frozen=True)
class Run:
    """A process that sees a fault, or not."""

    tool: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)

    def fails(self, limit_s: float) -> bool:
        environment = {**_environment(), **self.variables}
        # A group of its own: what hangs is a process that the command started.
        process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass(frozen=True)
class StyleKernel:
    """A kernel of another style, right or with a fault."""

    name: str
    kind: Kind | None
    style: Style
    text: str
    out: Path

    def build(self) -> None:
        for variant, seed in (("plain", None), ("perturbed", 0)):
            compile_for_gpu(self.text, f"sm_{ARCHITECTURE.replace('.', '')}", self._library(variant), seed)

    def runs(self, count: int) -> list[Run]:
        solve = [sys.executable, "-m", "tests.emulator.styles.hardware"]
        plain, perturbed = (
            [*solve, str(self._library(variant)), self.style.name] for variant in ("plain", "perturbed")
        )
        return [
            Run("plain", [*plain, "--calls", str(count)]),
            Run("perturbed", [*perturbed, "--calls", str(count)]),
            *_sanitized(plain, SANITIZERS),
        ]

    def _library(self, variant: str) -> Path:
        return self.out / variant / f"{self.name.replace(':', '-')}.so"


@dataclass(frozen=True)
class RecipeKernel:
    """A recipe's op in a project of its own, right or with a fault."""

    name: str
    kind: Kind | None
    subject: str
    fault: Fault | None
    out: Path

    def build(self) -> None:
        op, _ = RECIPES[self.subject]
        if not self._project.exists():
            shutil.copytree(built_project(op, self.out), self._project, symlinks=True)
            if self.fault:
                self.fault.apply(next(self._project.glob(f"src/*/ops/{op}")))
        build(self._project)

    def runs(self, count: int) -> list[Run]:
        op, path = RECIPES[self.subject]
        package = next(self._project.glob("src/*/ops")).parent.name
        variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} | ({f"{package}_{op}_PATH".upper(): path} if path else {})
        # --dtype: the types that the kernels with wgmma and mma.sync take.
        fuzz = [*KERNELGEN, "fuzz", op, "--project", str(self._project), "--python", sys.executable, "--seed", "1"]
        fuzz += ["--device", "cuda", "--dtype", "float16", "--count", str(count), "--limit", "20"]
        calls = [sys.executable, str(ROOT / "tools" / "calls.py"), str(self._project), "--dtypes", "float16"]
        return [
            Run("plain", fuzz, variables),
            Run("perturbed", [*fuzz, "--perturb"], variables),
            # initcheck does not see what Hopper's copy engine writes, and reports every read of it.
            *_sanitized([*calls, "--only", op], SANITIZERS if path else SANITIZERS[:3], variables),
        ]

    @property
    def _project(self) -> Path:
        return self.out / "projects" / self.name.replace(":", "-")


Kernel = StyleKernel | RecipeKernel


def _sanitized(command: list[str], tools: Sequence[str], variables: dict[str, str] | None = None) -> list[Run]:
    sanitizer = ["compute-sanitizer", "--error-exitcode", "9", "--tool"]
    return [Run(f"compute-sanitizer {tool}", [*sanitizer, tool, *command], variables or {}) for tool in tools]


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "TORCH_CUDA_ARCH_LIST": ARCHITECTURE}


def built_project(op: str, out: Path) -> Path:
    """A project of one recipe, with both of its builds."""
    project = out / "projects" / f"all-right-{op}"
    if not project.exists():
        _run([*KERNELGEN, "new", str(project), "--defaults", "--data", f"recipes=[{op}]"])
        build(project)
    return project


def build(project: Path) -> None:
    """Builds a project twice: as it is, and with random waits.

    Raises:
        subprocess.CalledProcessError: a compiler refuses it.
    """
    release = [*KERNELGEN, "build", "--project", str(project), "--python", sys.executable]
    perturbed = [sys.executable, "-m", "build_tools", "build"]
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(_run, release), pool.submit(_run, perturbed, folder=project, PERTURB="0")]
        for done in builds:
            done.result()


def _run(command: list[str], folder: Path = ROOT, **variables: str) -> None:
    environment = {**_environment(), **variables}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)


def kernels(out: Path) -> list[Kernel]:
    texts = {name: style.source.read_text() for name, style in STYLES.items()}
    styles = [StyleKernel(f"{name}:right", None, style, texts[name], out) for name, style in STYLES.items()]
    styles += [
        StyleKernel(fault.name, fault.kind, STYLES[fault.subject], fault.planted(texts[fault.subject]), out)
        for fault in STYLE_FAULTS
        if fault.kind in KINDS
    ]
    recipes = [RecipeKernel(f"{subject}:right", None, subject, None, out) for subject in RECIPES]
    recipes += [
        RecipeKernel(fault.name, fault.kind, fault.subject, fault, out)
        for fault in RECIPE_FAULTS
        if fault.kind in KINDS and fault.subject in RECIPES
    ]
    return [*recipes, *styles]


def main() -> int:
    options = _options()
    out, known = options.out.resolve(), _read()
    if options.table:
        print(table())
        return 0
    chosen = [kernel for kernel in kernels(out) if _is_wanted(kernel, options.only)]
    for op in sorted({RECIPES[kernel.subject][0] for kernel in chosen if isinstance(kernel, RecipeKernel)}):
        built_project(op, out)
    # A thread a kernel waits for the kernel's processes, of which --jobs run at once.
    with ThreadPoolExecutor(options.jobs) as processes, ThreadPoolExecutor(len(chosen) or 1) as pool:
        runs = {pool.submit(_seen, kernel, options, processes): kernel for kernel in chosen}
        for run in as_completed(runs):
            tools, name = run.result(), runs[run].name
            print(f"{name:48} {', '.join(tools) or 'nothing'}", flush=True)
            if not options.build_only:
                known[name] = tools
                results_file.write(RESULTS, dict(sorted(known.items())))
    return 0


def _is_wanted(kernel: Kernel, words: Sequence[str]) -> bool:
    return not words or any(word in f"{type(kernel).__name__} {kernel.name}" for word in words)


def _read() -> dict[str, list[str]]:
    """The tools that see something, by the kernel's name."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _seen(kernel: Kernel, options: argparse.Namespace, processes: ThreadPoolExecutor) -> list[str]:
    """The tools that see something on this GPU; a reason where it does not compile."""
    try:
        processes.submit(kernel.build).result()
    except subprocess.CalledProcessError as error:
        return [f"does not compile: {(error.stderr or error.stdout).strip()[-300:]}"]
    if options.build_only:
        return []
    runs = kernel.runs(options.count)
    failures = processes.map(lambda run: run.fails(options.limit), runs)
    return [run.tool for run, failed in zip(runs, failures, strict=True) if failed]


def table() -> str:
    """Markdown: how many faults each tool sees, by kind, of those that have been run."""
    known, emulated = _read(), recorded()
    counts: dict[Kind | None, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for kernel in kernels(Path()):
        if kernel.name in known:
            tools = {tool.split(" ")[0] for tool in known[kernel.name]}
            is_caught = kernel.name in emulated and emulated[kernel.name].outcome != "missed"
            counts[kernel.kind].update([*tools, *(["emulated"] if is_caught else []), "all"])
    right = counts.pop(None, collections.Counter())
    rows = [(kind.title, counts[kind]) for kind in Kind if kind in counts]
    rows += [("**all**", sum(counts.values(), collections.Counter())), ("right kernels", right)]
    lines = [f"| kind of fault | faults | {' | '.join(COLUMNS)} |", "|---|--:" + "|--:" * len(COLUMNS) + "|"]
    lines += [f"| {title} | {row['all']} | {' | '.join(str(row[tool]) for tool in COLUMNS)} |" for title, row in rows]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = ROOT / "build" / "gpu" / "synchronisation"
    parser.add_argument("--out", type=Path, default=folder, help="default: build/gpu/synchronisation")
    parser.add_argument("--jobs", type=int, default=6, help="processes at once (6)")
    parser.add_argument("--count", type=int, default=60, help="calls of each problem, or cases of an op (60)")
    parser.add_argument("--limit", type=float, default=180, metavar="S", help="until a run counts as hung (180)")
    text = "StyleKernel, RecipeKernel, or parts of names (default: all)"
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help=text)
    parser.add_argument("--table", action="store_true", help="print the table of the recorded outcomes")
    parser.add_argument("--build-only", action="store_true", help="compile every kernel, and run none")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
