"""How often `kernelgen compare --against` errs: false alarms, and slowdowns that it misses.

    python benchmarks/compare_gate.py [--device cpu|cuda] [--comparisons 200] [--slowdown 0.03] [--json FILE]
    python benchmarks/compare_gate.py --device cuda --comparisons 70 --add FILE --json FILE

The second command continues an earlier run: it takes the seeds after that run's, and writes both runs together.

The script makes projects with an interpreted op, one of which computes more rows than needed. First it measures how
many more make the op 3% slower: both versions take turns in one process, on many draws of inputs. (3% more rows cost
less than 3%, because a launch has a fixed cost.)

Then it compares the projects as the command does, with as many pairs of workers that take turns: `--comparisons` times
without the extra rows (A/A), and as often with them. Every tenth comparison the workers are replaced, because a lucky
placement in memory would otherwise bias all comparisons. The verdict is the command's, at its default thresholds. As in
the command, a regression is confirmed by other processes: here, by the comparison ten later.
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
# The comparisons after which the workers are replaced.
COMPARISONS_PER_PAIR = 10
# Runs are counted together only if these settings are equal.
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
# Rows and columns. A row costs a small fraction of a percent. On the CPU the tensors fit a core's own cache, so the op
# is bound by arithmetic; on a GPU they are so large that it is bound by memory.
SHAPES = {"cpu": (1600, 32), "cuda": (40000, 1024)}
# To measure what a row costs: draws of inputs, rounds on each draw, and the factor by which more rows are added.
DRAWS, DRAW_ROUNDS, LEVER = 40, 20, 4
# How far the planted slowdown may be from the requested one, as a share of it.
TOLERANCE = 0.1


def make_project(root: Path, device: str, extra: int) -> Path:
    """A project with an op that computes `extra` rows more than needed."""
    folder = root / "src" / PACKAGE / "ops" / OP
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    rows, columns = SHAPES[device]
    (folder / "lab.py").write_text(LAB.format(rows=rows, columns=columns, extra=extra))
    return root


def plant(device: str, share: float) -> tuple[int, list[float]]:
    """The extra rows that slow the op down by `share`, and the ratio that they cause, with its 99% interval."""
    rows, _ = SHAPES[device]
    # The cost of a row is measured on many more rows, where it exceeds the noise.
    many = round(LEVER * rows * share)
    cost_of_row = (cost(device, many)[0] - 1) / many
    extra = round(share / cost_of_row)
    return extra, cost(device, extra)


def cost(device: str, extra: int) -> list[float]:
    """The ratio of the time with `extra` rows to the time without, both taking turns in this process."""
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
                taken[i].append(watch.sample([calls[i]] * watch.plan(1e-4, 10))[0])
        ratios.append(statistics.median(taken[1]) / statistics.median(taken[0]))
    return median(ratios, 0.99).as_list()


def compare(before: Path, after: Path, options: argparse.Namespace, first: int, count: int) -> list[dict]:
    """The rows of `count` comparisons by the same workers; `first` is the seed of the first."""
    with ExitStack() as stack:
        live = [stack.enter_context(closing(start(before, after, options.device))) for _ in range(options.pairs)]
        return [compare_once(live, options, seed) for seed in range(first, first + count)]


def compare_once(live: list[pair.Pair], options: argparse.Namespace, seed: int) -> dict:
    begin = time.perf_counter()
    schedule = pair.Schedule(options.blocks, options.rounds, options.samples, seed)
    is_decided = Thresholds().is_decided if len(live) == 1 else lambda ratios: False  # As in the command.
    parts = [
        pair.measure(
            workers,
            pair.PairedResult(OP, "planted", "float32"),
            schedule.share(number, len(live)),
            is_decided=is_decided,
        )
        for number, workers in enumerate(live)
    ]
    result = pair.merged(parts)
    difference = paired_difference(result.ratios, seed=seed)
    verdict, _ = judge({OP: difference}, Thresholds())[OP]
    return {
        "verdict": verdict,
        "ratio": difference.ratio.as_list(),
        "delta": difference.delta,
        "p": difference.p,
        "before_s": result.before,
        "seconds": time.perf_counter() - begin,
        "faults": result.faults,
        "ratios": [round(value, 5) for value in result.ratios],
    }


def start(before: Path, after: Path, device: str) -> pair.Pair:
    request = {"work": "compare", "package": PACKAGE, "op": OP, "seed": 1, "device": device, "interpreted": True}
    request["environment"] = steady_variables()
    python = Path(sys.executable)
    roots = (("before", before), ("after", after))
    live = pair.Pair(*(WorkerProcess(name, python, root, request) for name, root in roots))
    live.list()
    return live


def count(rows: list[dict]) -> int:
    return sum(row["verdict"] == REGRESSION for row in rows)


def confirmed(rows: list[dict]) -> int:
    """Regressions that other processes confirm, as in the command: here, those of the comparison ten later."""
    differences, thresholds = [paired_difference(row["ratios"]) for row in rows], Thresholds()
    pairs = zip(differences, differences[COMPARISONS_PER_PAIR:] + differences[:COMPARISONS_PER_PAIR], strict=True)
    return sum(thresholds.agreed(first, first.p, second) == REGRESSION for first, second in pairs)


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
    text = "continue the runs of these files and write all together; with --comparisons 0, only merge them"
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE", help=text)
    parser.add_argument("--slowdown", type=float, default=0.03)
    parser.add_argument("--blocks", type=int, help="default: the command's")
    parser.add_argument("--pairs", type=int, help="pairs of workers; default: the command's")
    parser.add_argument("--rounds", type=int, default=pair.ROUNDS)
    parser.add_argument("--samples", type=int, default=pair.SAMPLES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every comparison there too")
    options = parser.parse_args()
    options.blocks = options.blocks or pair.BLOCKS[options.device]
    options.pairs = options.pairs or pair.pairs_for(options.blocks, options.device)
    if options.device == "cpu":
        # One thread: with as many as cores, whatever else runs is measured too.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    record = Record({"A/A": [], f"{options.slowdown:.1%} slower": []})
    for file in options.add:
        if problem := record.add(json.loads(file.read_text()), options):
            parser.error(f"{file} {problem}")
    if options.comparisons and not run(record, options):
        print("The planted slowdown is not the requested one: measure on a quieter machine.", file=sys.stderr)
        return 2
    record.write(options)
    summaries = record.summaries()
    print(json.dumps(summaries, indent=1))
    alarms, caught = (line["confirmed_regressions"] / line["comparisons"] for line in summaries)
    return 0 if alarms <= 0.01 and caught >= 0.95 else 1


@dataclass
class Record:
    """All comparisons by kind, of this run and of the runs that it continues; and facts about each run."""

    rows: dict[str, list[dict]]
    runs: list[dict] = field(default_factory=list)

    def add(self, written: dict, options: argparse.Namespace) -> str:
        """Add the comparisons of an earlier run's file; or return why they cannot be counted together."""
        for name in SETTINGS:
            if written[name] != getattr(options, name):
                return f"was measured with {written[name]} {name}, not {getattr(options, name)}"
        earlier, kinds = written["comparisons"], list(self.rows)
        if list(earlier) != kinds:
            return f"holds {list(earlier)[-1]!r}, not {kinds[-1]!r}"
        if devices := {run["machine"]["device"] for run in written["runs"]} - {options.device}:
            return f"was measured on {', '.join(devices)}, not on {options.device}"
        if any(row in self.rows[kind] for kind, rows in earlier.items() for row in rows):
            return "holds comparisons that were added already"
        for kind, rows in earlier.items():
            self.rows[kind] += rows
        self.runs += written["runs"]
        return ""

    def summaries(self) -> list[dict]:
        return [summary(kind, rows) for kind, rows in self.rows.items()]

    def write(self, options: argparse.Namespace) -> None:
        if options.json:
            facts = {name: getattr(options, name) for name in SETTINGS}
            facts |= {"runs": self.runs, "summaries": self.summaries(), "comparisons": self.rows}
            results_file.write(options.json, facts)


def run(record: Record, options: argparse.Namespace) -> bool:
    """Make `options.comparisons` more of each kind; False if the planted slowdown is not the requested one."""
    extra, planted = plant(options.device, options.slowdown)
    truth, low, high = (f"{end - 1:.2%}" for end in planted)
    print(f"planted: {extra} extra rows, which cost {truth} ({low} to {high})", file=sys.stderr, flush=True)
    if abs(planted[0] - 1 - options.slowdown) > TOLERANCE * options.slowdown:
        return False
    same, slow = record.rows
    first = len(record.rows[same])
    facts = {"machine": machine(options.device), "planted_ratio": planted, "comparisons": 0}
    record.runs.append(facts)
    with tempfile.TemporaryDirectory() as scratch:
        plain, *variants = (
            make_project(Path(scratch) / name, options.device, more)
            for name, more in (("plain", 0), ("same", 0), ("slow", extra))
        )
        # The two kinds take turns: a change of the machine's speed affects both, and an interrupted run holds both.
        for finished in range(0, options.comparisons, COMPARISONS_PER_PAIR):
            batch = min(COMPARISONS_PER_PAIR, options.comparisons - finished)
            for name, variant in zip((same, slow), variants, strict=True):
                record.rows[name] += compare(plain, variant, options, first + finished, batch)
            facts["comparisons"] += batch
            counts = (f"{name}: {count(rows)} regressions in {len(rows)}" for name, rows in record.rows.items())
            print(", ".join(counts), file=sys.stderr, flush=True)
            record.write(options)
    return True


if __name__ == "__main__":
    sys.exit(main())
