"""How often `kernelgen compare --against` errs: alarms where nothing changed, and slowdowns that it lets pass.

    python benchmarks/compare_gate.py [--device cpu|cuda] [--comparisons 200] [--slowdown 0.03] [--json FILE]

It makes projects of one interpreted op, which in one of them goes through a known share of rows more than it has to.
Then it compares them as the command does, with live workers that take turns: `--comparisons` times without the extra
work (A/A), and as often with it. The workers are replaced after every tenth comparison, so that no lucky place in
memory serves them all. The verdict on each comparison is that of the command, at its default thresholds; as in the
command, it is confirmed if other processes, here those of the next pair, come to the same one.

The inputs are the same for all, and hold rows to spare. The ratios that are printed say what the extra rows cost.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kernelgen.lab import pair, state  # noqa: E402
from kernelgen.lab.compare import REGRESSION, Thresholds, judge  # noqa: E402
from kernelgen.lab.statistics import paired_difference  # noqa: E402

PACKAGE, OP = "planted", "squash"
A_PAIR = 10

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
    return (make((2 * rows, columns)),)
"""
# Rows enough that 3% of them are whole. On the CPU the tensors fit a core's own cache and the work is arithmetic; on a
# GPU they are so large that a launch does not matter.
SHAPES = {"cpu": (200, 256), "cuda": (10000, 4096)}


def make_project(root: Path, device: str, share: float) -> Path:
    """A project with one op, which goes through that share of rows too many."""
    folder = root / "src" / PACKAGE / "ops" / OP
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    rows, columns = SHAPES[device]
    (folder / "lab.py").write_text(LAB.format(rows=rows, columns=columns, extra=round(rows * share)))
    return root


def compare(before: Path, after: Path, options: argparse.Namespace, first: int, count: int) -> list[dict]:
    """So many comparisons with one pair of workers, a row each; `first` is the number of the first, and its seed."""
    live = start(before, after, options.device)
    try:
        return [one(live, options, seed) for seed in range(first, first + count)]
    finally:
        live.close()


def one(live: pair.Pair, options: argparse.Namespace, seed: int) -> dict:
    begin = time.perf_counter()
    result = pair.Paired(OP, "planted", "float32")
    pair.measure(live, result, pair.Plan(options.blocks, options.rounds, options.samples, seed))
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
    request = {"package": PACKAGE, "op": OP, "seed": 1, "device": device, "interpreted": True}
    python = Path(sys.executable)
    sides = (pair.Side(name, python, root, request) for name, root in (("before", before), ("after", after)))
    live = pair.Pair(*sides)
    live.both("list")
    return live


def count(rows: list[dict]) -> int:
    return sum(row["verdict"] == REGRESSION for row in rows)


def confirmed(rows: list[dict]) -> int:
    """Regressions that other processes find too, as the command asks of each verdict: those of the next pair do."""
    seconds = rows[A_PAIR:] + rows[:A_PAIR]
    return sum(a["verdict"] == b["verdict"] == REGRESSION for a, b in zip(rows, seconds, strict=True))


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
    return facts | ({"gpu": torch.cuda.get_device_name(), **state.driver()} if device == "cuda" else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="the first seed, to go on with an earlier run"
    )
    parser.add_argument("--slowdown", type=float, default=0.03)
    parser.add_argument("--blocks", type=int, default=pair.BLOCKS)
    parser.add_argument("--rounds", type=int, default=pair.ROUNDS)
    parser.add_argument("--samples", type=int, default=pair.SAMPLES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every comparison there too")
    options = parser.parse_args()
    if options.device == "cpu":
        # One thread: with as many as cores, whatever else runs is measured too.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    planted = f"{options.slowdown:.1%} more work"
    rows: dict[str, list[dict]] = {"A/A": [], planted: []}
    with tempfile.TemporaryDirectory() as scratch:
        plain, same, slow = (
            make_project(Path(scratch) / name, options.device, share)
            for name, share in (("plain", 0), ("same", 0), ("slow", options.slowdown))
        )
        # The two kinds take turns, so that the machine's moods meet both, and a run that is cut short holds both.
        for done in range(0, options.comparisons, A_PAIR):
            for name, other in (("A/A", same), (planted, slow)):
                some = min(A_PAIR, options.comparisons - done)
                rows[name] += compare(plain, other, options, options.first + done, some)
            told = ", ".join(f"{name}: {count(some)} regressions in {len(some)}" for name, some in rows.items())
            print(told, file=sys.stderr, flush=True)
            report(rows, options)
    found = [summary(name, some) for name, some in rows.items()]
    print(json.dumps(found, indent=1))
    alarms, caught = (line["confirmed_regressions"] / line["comparisons"] for line in found)
    return 0 if alarms <= 0.01 and caught >= 0.95 else 1


def report(rows: dict[str, list[dict]], options: argparse.Namespace) -> None:
    if options.json:
        facts = {"machine": machine(options.device), "blocks": options.blocks, "rounds": options.rounds}
        facts |= {"samples": options.samples, "summaries": [summary(*some) for some in rows.items()]}
        options.json.write_text(json.dumps(facts | {"comparisons": rows}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
