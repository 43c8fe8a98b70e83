"""Fuzzes right ops again and again, with other seeds: any failure is a false alarm, or a fault of a recipe.

    python tools/soak.py PROJECT [--device cpu] [--runs 200] [--jobs 2] [--seed 1] [--minutes M] [--only OP ...]

A run is `kernelgen fuzz OP --seed N` with its default cases, as a user calls it. The ops of PROJECT, which has to be
built, take turns; each turn has the next seed. Each run is printed when it ends, with what failed, and a table at the
end. On a GPU the largest case of a run takes up to 28 GiB of its memory: give it as many jobs as there is room for. The
exit code is 1 if a run failed, and 2 if none ended in time.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600
SHOWN = 3  # Problems of a run.


@dataclass(frozen=True)
class Run:
    """A run of `kernelgen fuzz`: its seconds, its exit code, and what it says of the op."""

    op: str
    seed: int
    seconds: float
    code: int
    cases: int = 0
    problems: tuple[str, ...] = ()


def main() -> int:
    options = _options()
    ops = options.only or list_of_ops(options.project)
    deadline = time.monotonic() + options.minutes * 60
    turns = [(ops[number % len(ops)], options.seed + number // len(ops)) for number in range(options.runs)]

    def run(turn: tuple[str, int]) -> Run | None:
        return fuzz(options, *turn) if time.monotonic() < deadline else None

    cores = sorted(os.sched_getaffinity(0))
    options.cores = SimpleQueue()
    for job in range(options.jobs):
        options.cores.put(cores[job :: options.jobs] or cores)
    runs = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for ended in pool.map(run, turns):
            if ended:
                runs.append(ended)
                report(ended)
    return summary(runs, options)


def list_of_ops(project: Path) -> list[str]:
    answer = subprocess.run([*_kernelgen(), "list", "--project", project, "--json"], capture_output=True, check=True)
    return [op["name"] for op in json.loads(answer.stdout)["ops"]]


def fuzz(options: argparse.Namespace, op: str, seed: int) -> Run:
    """One run of `kernelgen fuzz` on cores of its own: it spreads over as many as it may use."""
    cores = options.cores.get()
    command = [*_kernelgen(), "fuzz", op, "--project", str(options.project), "--python", sys.executable]
    command += ["--device", options.device, "--seed", str(seed), "--no-build", "--json"]
    begin = time.monotonic()
    try:
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
        ended = subprocess.run(pinned, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Run(op, seed, time.monotonic() - begin, 1, problems=(f"did not end in {LIMIT_S} s",))
    finally:
        options.cores.put(cores)
    return parsed(op, seed, time.monotonic() - begin, ended)


def parsed(op: str, seed: int, seconds: float, ended: subprocess.CompletedProcess[str]) -> Run:
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        return Run(op, seed, seconds, ended.returncode or 1, problems=((ended.stdout + ended.stderr)[-2000:],))
    results = answer.get("ops", [])
    problems = tuple(json.dumps(failure) for result in results for failure in result["failures"])
    if ended.returncode and not problems:
        problems = ((ended.stdout + ended.stderr)[-2000:],)
    return Run(op, seed, seconds, ended.returncode, sum(result["cases"] for result in results), problems)


def report(run: Run) -> None:
    outcome = f"{len(run.problems)} problems" if run.code else "none failed"
    print(f"{run.op} --seed {run.seed}: {run.cases} cases in {run.seconds:.0f} s, {outcome}", flush=True)
    for problem in run.problems[:SHOWN]:
        print(f"{run.op} --seed {run.seed}: {problem}", flush=True)
    if len(run.problems) > SHOWN:
        print(f"{run.op} --seed {run.seed}: {len(run.problems) - SHOWN} more", flush=True)


def summary(runs: list[Run], options: argparse.Namespace) -> int:
    failed = Counter(run.op for run in runs if run.code)
    for op, count in Counter(run.op for run in runs).items():
        of_op = [run for run in runs if run.op == op]
        seconds, cases = sum(run.seconds for run in of_op) / count, sum(run.cases for run in of_op)
        print(f"{op:28} {count:4} runs, {cases:6} cases, {seconds:5.1f} s a run, {failed[op] or 'none'} failed")
    print(f"{len(runs)} of {options.runs} runs on {options.device}, {failed.total()} failed")
    return 2 if not runs else int(failed.total() > 0)


def _kernelgen() -> list[str]:
    return [sys.executable, "-m", "kernelgen"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", type=Path, metavar="PROJECT", help="a project whose ops are right, built")
    parser.add_argument("--device", choices=("cpu", "cuda", "emulated"), default="cpu")
    parser.add_argument("--runs", type=int, default=200, help="default: 200")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--minutes", type=float, default=60, help="start none after so many minutes (60)")
    parser.add_argument("--only", nargs="+", metavar="OP", help="default: all ops")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
