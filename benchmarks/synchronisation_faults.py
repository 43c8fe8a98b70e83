"""Counts which planted faults of synchronisation are seen by plain runs, perturbed runs, compute-sanitizer, and the
emulated GPU.

    python benchmarks/synchronisation_faults.py [--out DIR] [--jobs 6] [--count 60] [--only WORD] [--json FILE]
    python benchmarks/synchronisation_faults.py --build-only

The faults are those of tests/emulator/faults that concern the order of threads or of asynchronous operations. Right
kernels run too, and nothing may complain of them.

A kernel of tests/emulator/styles is built by nvcc as it is, and again with random waits around whatever synchronises;
each library solves its problems --count times. A fault in a recipe is planted in a project: `kernelgen fuzz` and
`kernelgen fuzz --perturb` draw --count cases, and compute-sanitizer runs the op over the cases of its tests.

Every run is a process of its own with a limit of time: a fault may hang it. A fault is seen where the process reports a
wrong result or an error, or does not end. The emulated GPU's column is from tests/emulator/faults/results.json.
--build-only needs nvcc, and no GPU.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

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
# The checks of recipes' faults that a recipe alone shows, by its op and the path that it has to take.
RECIPES = {
    "linear_activation": ("linear_activation", "sm90"),
    "flash_attention": ("flash_attention", "sm80"),
    "sm90_attention": ("flash_attention", "sm90"),
}
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
        try:
            process = subprocess.run(
                self.command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return True
        return process.returncode != 0


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
            *_sanitized(plain),
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
        variables = {f"{package}_{op}_PATH".upper(): path, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        # --dtype: the types that the kernels with wgmma and mma.sync take.
        fuzz = [*KERNELGEN, "fuzz", op, "--project", str(self._project), "--python", sys.executable, "--seed", "1"]
        fuzz += ["--device", "cuda", "--dtype", "float16", "--count", str(count), "--limit", "20"]
        calls = [sys.executable, str(ROOT / "tools" / "calls.py"), str(self._project), "--dtypes", "float16"]
        return [
            Run("plain", fuzz, variables),
            Run("perturbed", [*fuzz, "--perturb"], variables),
            *_sanitized([*calls, "--only", op], variables),
        ]

    @property
    def _project(self) -> Path:
        return self.out / "projects" / self.name.replace(":", "-")


Kernel = StyleKernel | RecipeKernel


def _sanitized(command: list[str], variables: dict[str, str] | None = None) -> list[Run]:
    sanitizer = ["compute-sanitizer", "--error-exitcode", "9", "--tool"]
    return [Run(f"compute-sanitizer {tool}", [*sanitizer, tool, *command], variables or {}) for tool in SANITIZERS]


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
    _run([*KERNELGEN, "build", "--project", str(project), "--python", sys.executable])
    _run([sys.executable, "-m", "build_tools", "build"], folder=project, PERTURB="0")


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
    out = options.out.resolve()
    chosen = [kernel for kernel in kernels(out) if options.only in f"{type(kernel).__name__} {kernel.name}"]
    for op in sorted({RECIPES[kernel.subject][0] for kernel in chosen if isinstance(kernel, RecipeKernel)}):
        built_project(op, out)
    with ThreadPoolExecutor(options.jobs) as pool:
        seen = list(pool.map(lambda kernel: _seen(kernel, options), chosen))
    print(summary(chosen, seen))
    if options.json:
        outcomes = {kernel.name: tools for kernel, tools in zip(chosen, seen, strict=True)}
        options.json.write_text(json.dumps({"count": options.count, "seen": outcomes}, indent=1) + "\n")
    return int(any(tools for kernel, tools in zip(chosen, seen, strict=True) if tools and kernel.kind is None))


def _seen(kernel: Kernel, options: argparse.Namespace) -> list[str]:
    """The tools that see something; prints them."""
    try:
        kernel.build()
    except subprocess.CalledProcessError as error:
        print(f"{kernel.name:48} does not compile: {(error.stderr or error.stdout).strip()[-300:]}", flush=True)
        return []
    if options.build_only:
        return []
    seen = [run.tool for run in kernel.runs(options.count) if run.fails(options.limit)]
    result = recorded().get(kernel.name)
    seen += ["emulated"] if result and result.outcome != "missed" else []
    print(f"{kernel.name:48} {', '.join(seen) or 'nothing sees it'}", flush=True)
    return seen


def summary(kernels: list[Kernel], seen: list[list[str]]) -> str:
    """Markdown: how many faults each tool sees, by kind."""
    counts: dict[Kind | None, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for kernel, tools in zip(kernels, seen, strict=True):
        counts[kernel.kind].update([*{tool.split(" ")[0] for tool in tools}, "all"])
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
    parser.add_argument("--jobs", type=int, default=6, help="kernels at once (6)")
    parser.add_argument("--count", type=int, default=60, help="calls of each problem, or cases of an op (60)")
    parser.add_argument(
        "--limit", type=float, default=180, metavar="S", help="seconds until a run counts as hung (180)"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="StyleKernel, RecipeKernel, or part of a name")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    parser.add_argument("--build-only", action="store_true", help="compile every kernel, and run none")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
