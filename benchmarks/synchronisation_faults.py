"""Counts which planted faults of synchronisation are seen by plain runs, perturbed runs, compute-sanitizer, and the
emulated GPU.

    python benchmarks/synchronisation_faults.py [--out DIR] [--jobs 6] [--calls 60] [--json FILE] [--dry-run]

The faults are those of tests/emulator/faults/styles.py that concern the order of threads or of asynchronous
operations; the right kernels run too, and nothing may complain of them. Each is built by nvcc as it is, and again with
random waits around whatever synchronises, as `kernelgen fuzz --perturb` builds ops. Every run is a process of
its own with a limit of time: a fault may hang it. A fault is seen where the process reports a wrong result or an error,
or does not end. The emulated GPU's column is from tests/emulator/faults/results.json. --dry-run builds everything and
prints what would run; it needs nvcc, and no GPU.
"""

import argparse
import collections
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.emulator.faults import Kind  # noqa: E402
from tests.emulator.faults.__main__ import recorded  # noqa: E402
from tests.emulator.faults.styles import STYLE_FAULTS  # noqa: E402
from tests.emulator.styles import STYLES, Style  # noqa: E402
from tests.emulator.styles.hardware import compile_for_gpu  # noqa: E402

KINDS = {
    *(Kind.BLOCK_BARRIER, Kind.WARP_BARRIER, Kind.WIDE_BARRIER, Kind.NAMED_BARRIER, Kind.DIVERGENCE, Kind.DEADLOCK),
    *(Kind.FENCE, Kind.PLAIN_UPDATE, Kind.PLAIN_FLAG, Kind.TWO_WRITERS, Kind.ENDED_BLOCK),
    *(Kind.MBARRIER, Kind.STAGE, Kind.ASYNC_WAIT, Kind.PROXY_FENCE, Kind.INIT_FENCE),
}
SANITIZERS = ("racecheck", "synccheck", "memcheck", "initcheck")
COLUMNS = ("plain", "perturbed", "compute-sanitizer", "emulated")
LIMIT_S = 180
ARCHITECTURE = "sm_90a"


@dataclass(frozen=True)
class Candidate:
    """A kernel with a fault of synchronisation, or a right one."""

    name: str
    style: Style
    text: str
    kind: Kind | None

    def library(self, out: Path, variant: str) -> Path:
        return out.resolve() / variant / f"{self.name.replace(':', '-')}.so"


def candidates() -> list[Candidate]:
    texts = {name: style.source.read_text() for name, style in STYLES.items()}
    right = [Candidate(f"{name}:right", style, texts[name], None) for name, style in STYLES.items()]
    return right + [
        Candidate(fault.name, STYLES[fault.subject], fault.planted(texts[fault.subject]), fault.kind)
        for fault in STYLE_FAULTS
        if fault.kind in KINDS
    ]


def main() -> int:
    options = _options()
    kernels = candidates()
    with ThreadPoolExecutor(options.jobs) as pool:
        refused = [line for line in pool.map(lambda kernel: _built(kernel, options.out), kernels) if line]
        for line in refused:
            print(line)
        if options.dry_run:
            for kernel in kernels:
                for column, command in _commands(kernel, options):
                    print(f"{kernel.name} [{column}]: {' '.join(command)}")
            print(f"{sum(bool(kernel.kind) for kernel in kernels)} faults; {len(refused)} kernels do not compile")
            return len(refused)
        seen = list(pool.map(lambda kernel: _seen(kernel, options), kernels))
    for kernel, tools in zip(kernels, seen, strict=True):
        print(f"{kernel.name:48} {', '.join(tools) or 'nothing sees it'}")
    print(summary(kernels, seen))
    if options.json:
        outcomes = {kernel.name: tools for kernel, tools in zip(kernels, seen, strict=True)}
        options.json.write_text(json.dumps({"calls": options.calls, "seen": outcomes}, indent=1) + "\n")
    return 0


def summary(kernels: list[Candidate], seen: list[list[str]]) -> str:
    """Markdown: how many faults each tool sees, by kind."""
    counts: dict[Kind | None, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for kernel, tools in zip(kernels, seen, strict=True):
        counts[kernel.kind].update([*{tool.split(" ")[0] for tool in tools}, "all"])
    right = counts.pop(None)
    rows = [(kind.title, counts[kind]) for kind in Kind if kind in counts]
    rows += [("**all**", sum(counts.values(), collections.Counter())), ("right kernels", right)]
    lines = [f"| kind of fault | faults | {' | '.join(COLUMNS)} |", "|---|--:" + "|--:" * len(COLUMNS) + "|"]
    lines += [f"| {title} | {row['all']} | {' | '.join(str(row[tool]) for tool in COLUMNS)} |" for title, row in rows]
    return "\n".join(lines)


def _built(kernel: Candidate, out: Path) -> str:
    """Builds the kernel plainly and with random waits; "", or why it cannot be built."""
    try:
        for variant, seed in (("plain", None), ("perturbed", 0)):
            compile_for_gpu(kernel.text, ARCHITECTURE, kernel.library(out, variant), seed)
    except subprocess.CalledProcessError as error:
        return f"{kernel.name} does not compile: {error.stderr.strip()[:300]}"
    return ""


def _commands(kernel: Candidate, options: argparse.Namespace) -> Iterable[tuple[str, list[str]]]:
    def call(variant: str) -> list[str]:
        module = [sys.executable, "-m", "tests.emulator.styles.hardware"]
        return [*module, str(kernel.library(options.out, variant)), kernel.style.name]

    for variant in ("plain", "perturbed"):
        yield variant, [*call(variant), "--calls", str(options.calls)]
    for tool in SANITIZERS:
        yield (
            f"compute-sanitizer {tool}",
            ["compute-sanitizer", "--error-exitcode", "9", "--tool", tool, *call("plain")],
        )


def _seen(kernel: Candidate, options: argparse.Namespace) -> list[str]:
    """The tools that see something."""
    seen = [column for column, command in _commands(kernel, options) if _fails(command)]
    result = recorded().get(kernel.name)
    return [*seen, "emulated"] if result and result.outcome != "missed" else seen


def _fails(command: list[str]) -> bool:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=LIMIT_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = ROOT / "build" / "gpu" / "synchronisation"
    parser.add_argument("--out", type=Path, default=folder, help="default: build/gpu/synchronisation")
    parser.add_argument("--jobs", type=int, default=6, help="processes at once (6)")
    parser.add_argument("--calls", type=int, default=60, help="calls of each problem, plain and perturbed (60)")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    parser.add_argument("--dry-run", action="store_true", help="build, and print what would run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
