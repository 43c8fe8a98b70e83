"""How often `kernelgen compare --against` errs: alarms where nothing changed, and slowdowns that it lets pass.

    python benchmarks/compare_gate.py [--device cpu|cuda] [--comparisons 200] [--slowdown 0.03] [--json FILE]
    python benchmarks/compare_gate.py --device cuda --comparisons 70 --add FILE --json FILE

The second goes on with the seeds of what an earlier run wrote, and writes both together.

It makes projects of one interpreted op, which in one of them goes through more rows than it has to. How many more is
found out first: so many that the op takes 3% longer, by a long measurement of both in one process, taking turns, on
inputs that are drawn anew again and again. (3% more rows cost less than 3%, because a launch costs what it costs.)

Then it compares the projects as the command does, with as many pairs of live workers that take turns: `--comparisons`
times without the extra rows (A/A), and as often with them. The workers are replaced after every tenth comparison, so
that no lucky place in memory serves them all. The verdict on each comparison is that of the command, at its default
thresholds; as in the command, other processes, here those of the tenth comparison after it, have a say.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import results_file  # noqa: E402

from kernelgen.lab import pair  # noqa: E402
from kernelgen.lab.compare import REGRESSION, Thresholds, judge  # noqa: E402
from kernelgen.lab.statistics import median, paired_difference  # noqa: E402
from kernelgen.lab.steady import steady_variables  # noqa: E402
from kernelgen.lab.worker_process import WorkerProcess  # noqa: E402
from kernelgen.worker import clock, machine_state  # noqa: E402

PACKAGE, OP = "planted", "squash"
# How many comparisons the same workers make.
A_PAIR = 10
# What comparisons have to have in common to be counted together.
SETTINGS = ("blocks", "pairs", "rounds", "samples")

LAB = """
import torch

ROWS = {rows}
EXTRA = {extra}


def squash(x):
    return torch.tanh(x[: ROWS + EXTRA])[:ROWS]


def reference(x):
    return torch.tanh(x[:ROWS])


OP, REFERENCE = squash, reference
DTYPES = (torch.float32,)
DOMAIN = {{"rows": (1, 2**20), "columns": (1, 4096)}}
CASES = {{"planted": {{"rows": ROWS, "columns": {columns}}}}}


def inputs(make, rows, columns):
    return (make((rows + rows // 6, columns)),)
"""
# Rows so short that one more is a small fraction of a percent. On the CPU the tensors fit a core's own cache and the
# work is arithmetic; on a GPU they are so large that memory sets the pace.
SHAPES = {"cpu": (1600, 32), "cuda": (40000, 1024)}
# To find out how many rows more make an op so much slower: draws of inputs, rounds on each, and how many times as many
# rows are tried.
DRAWS, DRAW_ROUNDS, LEVER = 40, 20, 4
# How far what is planted may be from what was asked for, as a share of it.
NEAR = 0.1


def make_project(root: Path, device: str, extra: int) -> Path:
    """A project with one op, which goes through so many rows too many."""
    folder = root / "src" / PACKAGE / "ops" / OP
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    rows, columns = SHAPES[device]
    (folder / "lab.py").write_text(LAB.format(rows=rows, columns=columns, extra=extra))
    return root


def plant(device: str, share: float) -> tuple[int, list[float]]:
    """How many rows more make the op slower by this share; and by how much they do, with a 99% interval."""
    rows, _ = SHAPES[device]
    # What a row costs shows better where there are more of them.
    far = round(LEVER * rows * share)
    a_row = (cost(device, far)[0] - 1) / far
    extra = round(share / a_row)
    return extra, cost(device, extra)


def cost(device: str, extra: int) -> list[float]:
    """The time with so many rows more over the time without, in one process that takes turns."""
    import torch

    watch, (rows, columns) = clock.clock_for(device), SHAPES[device]
    ratios = []
    for _ in range(DRAWS):
        x = torch.randn(rows + rows // 6, columns, device=device)
        calls = [lambda n=n, x=x: torch.tanh(x[:n])[:rows] for n in (rows, rows + extra)]
        for call in calls:
            clock.warm_up(watch, call, 0.02)
        taken: list[list[float]] = [[], []]
        for _ in range(DRAW_ROUNDS):
            for i in random.sample((0, 1), 2):
                taken[i].append(watch.sample([calls[i]] * watch.plan(1e-4, A_PAIR))[0])
        ratios.append(statistics.median(taken[1]) / statistics.median(taken[0]))
    return median(ratios, 0.99).as_list()


def compare(before: Path, after: Path, options: argparse.Namespace, first: int, count: int) -> list[dict]:
    """So many comparisons by the same workers, a row each; `first` is the number of the first, and its seed."""
    with ExitStack() as stack:
        live = [stack.enter_context(closing(start(before, after, options.device))) for _ in range(options.pairs)]
        return [one(live, options, seed) for seed in range(first, first + count)]


def one(live: list[pair.Pair], options: argparse.Namespace, seed: int) -> dict:
    begin = time.perf_counter()
    schedule = pair.Schedule(options.blocks, options.rounds, options.samples, seed)
    parts = [
        pair.measure(workers, pair.PairedResult(OP, "planted", "float32"), schedule.share(number, len(live)))
        for number, workers in enumerate(live)
    ]
    result = pair.merged(parts)
    found = paired_difference(result.ratios, seed=seed)
    verdict, _ = judge({OP: found}, Thresholds())[OP]
    return {
        "verdict": verdict,
        "ratio": found.ratio.as_list(),
        "delta": found.delta,
        "p": found.p,
        "before_s": result.before,
        "seconds": time.perf_counter() - begin,
        "faults": result.faults,
        "ratios": [round(value, 5) for value in result.ratios],
    }


def start(before: Path, after: Path, device: str) -> pair.Pair:
    request = {"work": "paired", "package": PACKAGE, "op": OP, "seed": 1, "device": device, "interpreted": True}
    request["environment"] = steady_variables()
    python = Path(sys.executable)
    roots = (("before", before), ("after", after))
    live = pair.Pair(*(WorkerProcess(name, python, root, request) for name, root in roots))
    live.both("list")
    return live


def count(rows: list[dict]) -> int:
    return sum(row["verdict"] == REGRESSION for row in rows)


def confirmed(rows: list[dict]) -> int:
    """Regressions as the command has them, which asks other processes: here the next ones."""
    found, thresholds = [paired_difference(row["ratios"]) for row in rows], Thresholds()
    pairs = zip(found, found[A_PAIR:] + found[:A_PAIR], strict=True)
    return sum(thresholds.agreed(one, one.p, other) == REGRESSION for one, other in pairs)


def summary(name: str, rows: list[dict]) -> dict:
    ratios = sorted(row["ratio"][0] for row in rows)
    widths = [row["ratio"][2] - row["ratio"][1] for row in rows]
    verdicts = [row["verdict"] for row in rows]
    return {
        "name": name,
        "comparisons": len(rows),
        "regressions": count(rows),
        "confirmed_regressions": confirmed(rows),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        "ratio_median": statistics.median(ratios),
        "ratio_p5_p95": [ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]],
        "interval_width_median": statistics.median(widths),
        "op_s": statistics.median(row["before_s"] for row in rows),
        "seconds_median": statistics.median(row["seconds"] for row in rows),
        "faults": sorted({fault for row in rows for fault in row["faults"]}),
    }


def machine(device: str) -> dict:
    facts = {"system": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg(), "device": device}
    import torch

    facts["torch"] = torch.__version__
    return facts | (
        {"gpu": torch.cuda.get_device_name(), "driver": machine_state.driver().get("driver")}
        if device == "cuda"
        else {}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--comparisons", type=int, default=200)
    text = "count what earlier runs wrote there too, and go on with their seeds; with --comparisons 0, merge them"
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE", help=text)
    parser.add_argument("--slowdown", type=float, default=0.03)
    parser.add_argument("--blocks", type=int, help="default: as the command has it")
    parser.add_argument("--pairs", type=int, help="pairs of workers; default: as the command has it")
    parser.add_argument("--rounds", type=int, default=pair.ROUNDS)
    parser.add_argument("--samples", type=int, default=pair.SAMPLES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every comparison there too")
    options = parser.parse_args()
    options.blocks = options.blocks or pair.BLOCKS[options.device]
    options.pairs = options.pairs or pair.pairs_for(options.blocks, options.device)
    if options.device == "cpu":
        # One thread: with as many as cores, whatever else runs is measured too.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = Found({"A/A": [], f"{options.slowdown:.1%} slower": []})
    for file in options.add:
        if problem := found.add(json.loads(file.read_text()), options):
            parser.error(f"{file} {problem}")
    if options.comparisons and not run(found, options):
        print("That is not what was to be planted: measure on a quieter machine.", file=sys.stderr)
        return 2
    found.write(options)
    summaries = found.summaries()
    print(json.dumps(summaries, indent=1))
    alarms, caught = (line["confirmed_regressions"] / line["comparisons"] for line in summaries)
    return 0 if alarms <= 0.01 and caught >= 0.95 else 1


@dataclass
class Found:
    """Every comparison by its kind, of this run and of those that it goes on with; and what each run was like."""

    rows: dict[str, list[dict]]
    runs: list[dict] = field(default_factory=list)

    def add(self, written: dict, options: argparse.Namespace) -> str:
        """Count what an earlier run wrote; or say why that does not belong here."""
        for name in SETTINGS:
            if written[name] != getattr(options, name):
                return f"was measured with {written[name]} {name}, not {getattr(options, name)}"
        theirs, mine = written["comparisons"], list(self.rows)
        if list(theirs) != mine:
            return f"holds {list(theirs)[-1]!r}, not {mine[-1]!r}"
        if devices := {one["machine"]["device"] for one in written["runs"]} - {options.device}:
            return f"was measured on {', '.join(devices)}, not on {options.device}"
        if any(row in self.rows[name] for name, some in theirs.items() for row in some):
            return "holds comparisons that were added already"
        for name, some in theirs.items():
            self.rows[name] += some
        self.runs += written["runs"]
        return ""

    def summaries(self) -> list[dict]:
        return [summary(*some) for some in self.rows.items()]

    def write(self, options: argparse.Namespace) -> None:
        if options.json:
            facts = {name: getattr(options, name) for name in SETTINGS}
            facts |= {"runs": self.runs, "summaries": self.summaries(), "comparisons": self.rows}
            results_file.write(options.json, facts)


def run(found: Found, options: argparse.Namespace) -> bool:
    """Measures so many comparisons more of each kind; False if what was planted is not what was asked for."""
    extra, planted = plant(options.device, options.slowdown)
    truth, low, high = (f"{end - 1:.2%}" for end in planted)
    print(f"planted: {extra} rows more, which cost {truth} ({low} to {high})", file=sys.stderr, flush=True)
    if abs(planted[0] - 1 - options.slowdown) > NEAR * options.slowdown:
        return False
    same, slow = found.rows
    first = len(found.rows[same])
    this = {"machine": machine(options.device), "planted_ratio": planted, "comparisons": 0}
    found.runs.append(this)
    with tempfile.TemporaryDirectory() as scratch:
        plain, *others = (
            make_project(Path(scratch) / name, options.device, more)
            for name, more in (("plain", 0), ("same", 0), ("slow", extra))
        )
        # The two kinds take turns, so that the machine's moods meet both, and a run that is cut short holds both.
        for done in range(0, options.comparisons, A_PAIR):
            some = min(A_PAIR, options.comparisons - done)
            for name, other in zip((same, slow), others, strict=True):
                found.rows[name] += compare(plain, other, options, first + done, some)
            this["comparisons"] += some
            told = ", ".join(f"{name}: {count(rows)} regressions in {len(rows)}" for name, rows in found.rows.items())
            print(told, file=sys.stderr, flush=True)
            found.write(options)
    return True


if __name__ == "__main__":
    sys.exit(main())
