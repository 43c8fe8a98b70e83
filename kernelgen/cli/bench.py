"""`kernelgen bench`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kernelgen.cli import lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import LARGEST_SEED, Parser, real, whole
from kernelgen.errors import LabError

_CODES = """exit codes:
  0  measured
  1  a case failed, or its results are wrong: its times mean nothing
  2  nothing could be measured, or wrong usage"""


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    from kernelgen.lab import bench

    selection = lab.find_for_device(options)
    lab.bring_up_to_date(selection, options)
    if options.out:
        _require_writable(options.out)
    names = ("device", "dtype", "cases", "peers", "backward", "tf32", "seed", "samples")
    asked = {name: getattr(options, name) for name in names}
    with lab.progress(not options.json) as show:
        asked["show"] = lambda text, cases: show(text, cases, None)
        measured = bench.measure(selection, options.limit, trust=options.trust, **asked)
    print(json.dumps(measured.results) if options.json else "\n".join(_text(measured.results)))
    try:
        written = measured.save(options.out, selection.root if options.save_baseline else None)
    except OSError as error:
        # The results are printed: with --json, an error there would be a second object.
        note(str(_unwritable(error.filename or options.out or selection.root, error)))
        return LabError.exit_code
    if not options.json:
        print("".join(f"written: {path}\n" for path in written), end="")
    if not measured.finished:
        print("kernelgen: Interrupted; what was measured is kept.", file=sys.stderr)
    return measured.exit_code


def _require_writable(path: Path) -> None:
    from kernelgen.files import require_writable

    try:
        require_writable(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path | str, error: OSError) -> LabError:
    return LabError(f"{path} cannot be written: {error.strerror}; name another file with --out.")


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
    text = "take lab.py, the reference and the peers of this revision (default: as they are now)"
    parser.add_argument("--trust", metavar="REV", help=text)
    parser.add_argument("--backward", action="store_true", help="measure the gradient instead")
    parser.add_argument(
        "--samples", type=whole(10), default=100, metavar="N", help="samples of each case (default: 100)"
    )
    parser.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help="of the inputs and the order (default: 0)"
    )
    parser.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    text = "how many seconds a case may say nothing before it counts as hung (default: 300)"
    parser.add_argument("--limit", type=real(0.001), default=300.0, metavar="S", help=text)
    parser.add_argument("--save-baseline", action="store_true", help="keep the results in the project's baselines/")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, for `kernelgen compare`")
    lab.add_no_build(parser)
    parser.add_json()
    return parser.parse_args(arguments)


# ---- The table ------------------------------------------------------------------------------------------------


def _text(measured: dict[str, Any]) -> list[str]:
    from kernelgen.lab import results
    from kernelgen.lab.remarks import remarks

    lines = []
    if measured["cases"]:
        environment, ceilings = measured["environment"], measured["ceilings"]
        rates = [f"copy {ceilings['copy_bytes_per_s'] / 1e9:.4g} GB/s"]
        products = ceilings["matrix_flops_per_s"].items()
        rates += [f"{name} product {results.flops_per_s(rate)}" for name, rate in products]
        lines += [f"{results.machine(environment)}, torch {environment['torch']}: {', '.join(rates)}", _table(measured)]
    lines += remarks(measured["cases"])
    lines += [f"{case['op']} · {case['case']}: failed: {case['reason']}" for case in measured["failures"]]
    return [*measured["notes"], *lines]


def _table(measured: dict[str, Any]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", overflow="fold")
    for heading in ("median, 95% interval", "p95", "p99", "copy rate", "matrix rate", "times as fast as"):
        table.add_column(heading, justify="right")
    for case in measured["cases"]:
        table.add_row(*_row(case))
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def _row(case: dict[str, Any]) -> list[str]:
    from kernelgen.lab import results
    from kernelgen.protocol import OP

    op = case["functions"][OP]
    shares = [f"{op[name]:.1%}" if op.get(name) else "" for name in ("copy_fraction", "matrix_fraction")]
    middle, low, high = map(results.seconds, op["median"])
    peers = [f"{peer} {value:.2f} ({low:.2f}, {high:.2f})" for peer, (value, low, high) in case["peers"].items()]
    times = [f"{middle} ({low}, {high})", results.seconds(op["p95"]), results.seconds(op["p99"])]
    return [results.key(case), *times, *shares, "\n".join(peers)] if not case["faults"] else _wrong(results.key(case))


def _wrong(key: str) -> list[str]:
    """Times of wrong results are not shown."""
    return [key, "WRONG", "", "", "", "", ""]
