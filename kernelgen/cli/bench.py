"""`kernelgen bench`."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from kernelgen.cli import lab
from kernelgen.cli.parser import Parser

_CODES = """exit codes:
  0  measured
  1  a case failed, or its results are wrong: its times mean nothing
  2  nothing could be measured, or wrong usage"""


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    from kernelgen.lab import process, results
    from kernelgen.lab.steady import steady_environment

    home = lab.find(options)
    os.environ.update(steady_environment())  # The worker inherits it.
    asked = {name: getattr(options, name) for name in ("device", "dtype", "cases", "peers", "backward", "tf32")}
    request = home.request("bench", seed=options.seed, samples=options.samples, **asked)
    found, notes = results.new({}), []
    with lab.progress(not options.json) as show:

        def on_event(event: dict[str, Any]) -> None:
            _take(event, found, notes)
            show(f"measuring {event.get('op', 'the machine')}", len(found["cases"]), None)

        finished = process.run(home.python, request, on_event, options.limit)
    found["notes"] = notes
    written = _save(found, options, home) if found["cases"] else []
    print(json.dumps(found) if options.json else "\n".join([*_text(found), *written]))
    if not finished:
        print("kernelgen: Interrupted; what was measured is kept.", file=sys.stderr)
        return 130
    if found["failures"] or any(case["faults"] for case in found["cases"]):
        return 1
    return 0 if found["cases"] else 2


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("bench", "Measure ops beside their peers, and against what this machine can do.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser)
    text = "the cases of lab.py to measure (default: all)"
    parser.add_argument("--cases", nargs="+", metavar="CASE", help=text)
    text = "the peers of lab.py to measure beside the op (default: all; none of them: --peers with no name)"
    parser.add_argument("--peers", nargs="*", metavar="PEER", help=text)
    text = "one dtype of the op, such as bfloat16 (default: those that lab.py names)"
    parser.add_argument("--dtype", metavar="D", help=text)
    parser.add_argument("--backward", action="store_true", help="measure the gradient instead")
    parser.add_argument("--samples", type=int, default=100, metavar="N", help="samples of each case (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs and the order (default: 0)")
    parser.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    text = "how many seconds a case may say nothing before it counts as hung (default: 300)"
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help=text)
    parser.add_argument("--save-baseline", action="store_true", help="keep the results in the project's baselines/")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, for `kernelgen compare`")
    parser.add_json()
    options = parser.parse_args(arguments)
    if options.samples < 10:
        parser.error(f"--samples {options.samples} is too few for an interval; take 10 or more")
    if options.limit <= 0:
        parser.error(f"--limit {options.limit} is too little")
    return options


def _take(event: dict[str, Any], found: dict[str, Any], notes: list[str]) -> None:
    """Sort an event of the worker into the results."""
    facts = dict(event)
    kind = facts.pop("event")
    if kind in ("environment", "ceilings"):
        found[kind] = facts
    elif kind == "case":
        found["cases"].append(facts)
    elif kind in ("failed", "lost"):
        found["failures"].append(facts)
    elif kind == "skipped":
        notes.append(facts["message"])
    elif kind == "given up":
        notes.append(f"{facts['op']}: {facts['reason']}")


def _save(found: dict[str, Any], options: argparse.Namespace, home: lab.Lab) -> list[str]:
    """Write what was asked for; a line for each file."""
    from kernelgen.lab import results

    files = {options.out: found} if options.out else {}
    if options.save_baseline:
        for op in dict.fromkeys(case["op"] for case in found["cases"]):
            files[results.baseline(home.root, found["environment"], op)] = results.of_op(found, op)
    for path, part in files.items():
        results.write(part, path)
    return [f"written: {path}" for path in files]


# ---- The table ------------------------------------------------------------------------------------------------


def _text(found: dict[str, Any]) -> list[str]:
    from kernelgen.lab import results
    from kernelgen.lab.remarks import remarks

    lines = []
    if found["cases"]:
        environment, top = found["environment"], found["ceilings"]
        rates = [f"copy {top['copy_bytes_per_s'] / 1e9:.4g} GB/s"]
        rates += [f"{name} product {results.flops_per_s(rate)}" for name, rate in top["matrix_flops_per_s"].items()]
        lines += [f"{results.machine(environment)}, torch {environment['torch']}: {', '.join(rates)}", _table(found)]
    lines += remarks(found["cases"])
    lines += [f"{case['op']} · {case['case']}: failed: {case['reason']}" for case in found["failures"]]
    return lines + found["notes"]


def _table(found: dict[str, Any]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", overflow="fold")
    for heading in ("median, 95% interval", "p95", "p99", "copy rate", "matrix rate", "times as fast as"):
        table.add_column(heading, justify="right")
    for case in found["cases"]:
        table.add_row(*_row(case))
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def _row(case: dict[str, Any]) -> list[str]:
    from kernelgen.lab import results

    op = case["functions"][results.OP]
    shares = [f"{op[name]:.1%}" if op.get(name) else "" for name in ("copy_fraction", "matrix_fraction")]
    middle, low, high = map(results.seconds, op["median"])
    peers = [f"{peer} {value:.2f} ({low:.2f}, {high:.2f})" for peer, (value, low, high) in case["peers"].items()]
    times = [f"{middle} ({low}, {high})", results.seconds(op["p95"]), results.seconds(op["p99"])]
    return [results.key(case), *times, *shares, "\n".join(peers)] if not case["faults"] else _wrong(results.key(case))


def _wrong(key: str) -> list[str]:
    """Times of wrong results are not shown."""
    return [key, "WRONG", "", "", "", "", ""]
