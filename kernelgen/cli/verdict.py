"""`kernelgen verdict`."""

import argparse
import json
from typing import TYPE_CHECKING

from kernelgen.cli import lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import LARGEST_SEED, Parser, real, whole

if TYPE_CHECKING:
    from kernelgen.lab.verdict import Verdict

_CODES = """exit codes:
  0  it builds and is right; with --against, a regression of 3% is ruled out too
  1  it does not build, is wrong, or became slower
  2  something could not be shown either way, or wrong usage"""


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.trust and not options.against:
        parser.error("--trust goes with --against")

    from kernelgen.lab.verdict import Request, judge

    names = ("against", "trust", "device", "cases", "seed", "blocks")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    request = Request(**given, limit_s=options.limit)
    verdict = judge(lab.find_for_device(options), request, lambda step: None if options.json else note(f"{step} …"))
    print(json.dumps(verdict.as_dict()) if options.json else _text(verdict))
    return verdict.exit_code


def _parser() -> Parser:
    parser = Parser("verdict", "Say in one answer whether an op builds, is right, and is fast: after every edit.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser, ops=1)
    text = "say, too, whether it became faster or slower than at this revision"
    parser.add_argument("--against", metavar="REV", help=text)
    text = "take lab.py, the reference and the peers of this revision (default: that of --against)"
    parser.add_argument("--trust", metavar="REV", help=text)
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="measure these cases of lab.py alone")
    parser.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), metavar="N", help="of cases, inputs and the order (default: another)"
    )
    lab.add_blocks(parser)
    text = "how many seconds a case may say nothing before it counts as hung (default: 120)"
    parser.add_argument("--limit", type=real(0.001), default=120.0, metavar="S", help=text)
    parser.add_json()
    return parser


def _text(verdict: "Verdict") -> str:
    head = {0: "right", 1: "REFUTED"}.get(verdict.exit_code, "not shown")
    lines = [f"{verdict.op}: {head}"]
    for step in verdict.steps:
        first, *rest = step.text.splitlines() or [""]
        lines += [f"  {step.name:8} {step.outcome:7} {step.seconds:6.1f} s  {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)
