"""`kernelgen compare`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.cli import lab
from kernelgen.cli.emulated import measures_time
from kernelgen.cli.parser import LARGEST_SEED, Parser, real, whole
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.lab.compare import Comparison, Thresholds

_CODES = """exit codes:
  0  improved: an improvement was shown, and no regression
  1  a regression was shown, or results are wrong
  2  neither: no difference, or too little was measured to tell
  3  nothing could be compared, or wrong usage"""


class NotComparedError(KernelgenError):
    """There is no verdict; the message says why. (1 and 2 are verdicts of this verb.)"""

    exit_code = 3


def run(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        comparison = _revisions(options) if options.against else _files(options)
    except KernelgenError as error:
        raise NotComparedError(str(error), error.details) from error
    _print(comparison, options)
    return comparison.exit_code


def _options(arguments: list[str]) -> argparse.Namespace:
    text = "Say whether ops became faster or slower: from two files of `kernelgen bench`, or from two revisions."
    parser = Parser("compare", text)
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    text = "two files of `kernelgen bench --out`; with --against, ops"
    parser.add_argument("what", nargs="*", metavar="WHAT", help=text)
    text = "build this revision aside, and measure the ops of both in one run, taking turns"
    parser.add_argument("--against", metavar="REV", help=text)
    text = (
        "take lab.py, the reference and the peers of this revision ('.': as they are now; default: that of --against)"
    )
    parser.add_argument("--trust", metavar="REV", help=text)
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="these cases alone")
    _add_measuring(parser)
    _add_thresholds(parser)
    parser.add_argument("--markdown", action="store_true", help="print a comment for a pull request")
    parser.add_json()
    options = parser.parse_args(arguments)
    if not options.against and len(options.what) != 2:
        parser.error("give two files, or --against REV and an op")
    if options.json and options.markdown:
        parser.error("--json and --markdown are two forms; choose one")
    return options


def _add_measuring(parser: Parser) -> None:
    group = parser.add_argument_group("with --against")
    group.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="the project (default: here)")
    group.add_argument("--python", type=Path, metavar="PYTHON", help="the project's Python")
    text = "where to run (default: cuda where there is a GPU)"
    group.add_argument("--device", choices=("cpu", "cuda"), type=measures_time, help=text)
    group.add_argument("--dtype", metavar="D", help="one dtype of the op (default: those that lab.py names)")
    group.add_argument("--backward", action="store_true", help="measure the gradient instead")
    group.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    group.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help="of the inputs and the order (default: 0)"
    )
    lab.add_blocks(group)
    text = "how many seconds a worker may say nothing before it counts as hung (default: 120)"
    group.add_argument("--limit", type=real(0.001), default=120.0, metavar="S", help=text)


def _add_thresholds(parser: Parser) -> None:
    group = parser.add_argument_group("thresholds")
    text = "a regression is so much slower (default: 3)"
    group.add_argument("--slower", type=real(0), default=3.0, metavar="PERCENT", help=text)
    group.add_argument("--faster", type=real(0), default=10.0, metavar="PERCENT", help="an improvement (default: 10)")
    group.add_argument("--delta", type=real(0, 1), default=0.3, help="the least |Cliff's delta| (default: 0.3)")
    group.add_argument("--alpha", type=real(0, 1), default=0.05, help="what p has to be below (default: 0.05)")


def _thresholds(options: argparse.Namespace) -> "Thresholds":
    from kernelgen.lab.compare import Thresholds

    return Thresholds(options.slower / 100, options.faster / 100, options.delta, options.alpha)


def _files(options: argparse.Namespace) -> "Comparison":
    from kernelgen.lab import compare, results

    before, after = (results.read(Path(name)) for name in options.what)
    return compare.files(tuple(options.what), before, after, _thresholds(options), options.cases)


def _revisions(options: argparse.Namespace) -> "Comparison":
    from kernelgen.lab.compare_revisions import ComparisonRequest, measure

    options.ops = options.what
    selection = lab.find_for_device(options)
    names = ("against", "device", "dtype", "cases", "backward", "tf32", "seed", "blocks", "trust")
    request = ComparisonRequest(**{name: getattr(options, name) for name in names}, limit_s=options.limit)
    with lab.progress(not options.json) as show:
        return measure(selection, request, _thresholds(options), options.what, lambda key, share: show(key, share, 1.0))


def _print(comparison: "Comparison", options: argparse.Namespace) -> None:
    from kernelgen.lab import comparison_text

    if options.json:
        print(json.dumps(comparison.as_dict()))
    elif options.markdown:
        print(comparison_text.markdown(comparison))
    else:
        print(_text(comparison))


def _text(comparison: "Comparison") -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from kernelgen.lab import comparison_text

    table = Table(*comparison_text.HEADINGS, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in comparison_text.rows(comparison):
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(table)
    notes = [f"{verdict.case}: {note}" for verdict in comparison.verdicts for note in verdict.notes]
    head = f"{comparison.before} → {comparison.after}, on {comparison.machine}"
    return "\n".join(
        [*comparison.notes, head, captured.get().rstrip(), *notes, comparison_text.rule(comparison.thresholds)]
    )
