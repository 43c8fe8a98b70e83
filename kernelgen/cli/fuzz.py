"""`kernelgen fuzz`."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from kernelgen.cli import emulated, lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import Parser, real, whole
from kernelgen.errors import UsageError

if TYPE_CHECKING:
    from kernelgen.lab.selection import Selection

_CODES = """exit codes:
  0  every case passed
  1  a case failed: the result is wrong, or the kernel crashed or hung
  2  nothing could run, or wrong usage"""
# Failures with a command of their own in the text; the JSON has all.
_MOST_SHOWN = 5


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    from kernelgen.lab.fuzz import fuzz

    names = ("seed", "seconds", "device", "gpu", "dtype", "count", "case", "trust")
    asked = {name: getattr(options, name) for name in names}
    selection = lab.find_for_device(options)
    if options.device == emulated.DEVICE:
        library = emulated.build(selection.root, selection.python, options.gpu)
        asked |= {"gpu": library.gpu.architecture, "variables": library.variables()}
    if options.perturb is not None:
        asked |= {"perturb": options.perturb, "variables": _perturbed_build(selection, options.perturb)}
    if not asked.get("variables"):
        lab.bring_up_to_date(selection, options)
    with lab.progress(not options.json) as show:
        outcome = fuzz(
            selection,
            options.ops,
            limit_s=options.limit,
            show=show,
            tell=note,
            **asked,
        )
    report = outcome.as_dict()
    print(json.dumps(report) if options.json else "\n".join(_text(report)))
    if not outcome.finished:
        print("kernelgen: Interrupted.", file=sys.stderr)
    return outcome.exit_code


def _perturbed_build(selection: "Selection", seed: int) -> dict[str, str]:
    """Builds the CUDA library with random waits; what a worker needs in its environment to run it."""
    from kernelgen.toolchain.build import Build, environment

    build = Build(selection.root, environment(perturb=seed), selection.python)
    return build.run(quiet=True).variables()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("fuzz", "Compare ops with their references in float64, on inputs that nobody writes by hand.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser, emulated=True)
    parser.add_argument("--count", type=whole(1), metavar="N", help="cases of each op (default: all pairs, about 200)")
    parser.add_argument("--seconds", type=real(0.001), metavar="S", help="go on drawing cases for so long, for all ops")
    parser.add_argument(
        "--seed", type=whole(0, 2**64 - 1), metavar="N", help="draw the cases and values of an earlier run again"
    )
    parser.add_argument("--dtype", metavar="D", help="one dtype of the op, such as float16 (default: all)")
    text = "take lab.py and the reference of this revision (default: as they are now)"
    parser.add_argument("--trust", metavar="REV", help=text)
    parser.add_argument("--case", metavar="JSON", help="run this one case, as a failure prints it")
    text = "how many seconds a case may take before it counts as hung (default: 60)"
    parser.add_argument("--limit", type=real(0.001), default=60.0, metavar="S", help=text)
    text = "on a GPU, with random waits around barriers, atomics and asynchronous copies; SEED (0) chooses where"
    parser.add_argument("--perturb", type=whole(0), nargs="?", const=0, metavar="SEED", help=text)
    lab.add_no_build(parser)
    parser.add_json()
    options = parser.parse_args(arguments)
    emulated.check(parser, options)
    if options.perturb is not None:
        if options.device not in (None, "cuda"):
            parser.error("--perturb is for kernels on a GPU; leave out --device")
        options.device = "cuda"
    if options.no_build and (options.perturb is not None or options.device == emulated.DEVICE):
        parser.error("--no-build is for the project's own libraries; leave it out with --perturb and --device emulated")
    if options.case is not None:
        if len(options.ops) != 1:
            parser.error("--case goes with one op")
        options.case = _read_case(options.case)
    return options


def _read_case(text: str) -> dict[str, Any]:
    try:
        case = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--case is not JSON: {error}.") from None
    if not isinstance(case, dict):
        raise UsageError('--case is a JSON object, such as \'{"rows": 3, "dtype": "float16"}\'.')
    return case


def _text(report: dict[str, Any]) -> list[str]:
    width = max(len(op["op"]) for op in report["ops"])
    lines = list(report["notes"])
    for op in report["ops"]:
        failed = op["cases"] - op["passed"]
        if op["skipped"] and not failed:
            lines.append(f"{op['op']:{width}}  skipped: {op['skipped']}")
            continue
        verdict = f"{failed} of {_cases(op)} FAILED" if failed else f"{_cases(op)} passed"
        lines.append(f"{op['op']:{width}}  {verdict} on {report['device']} (seed {report['seed']})")
        if op["too_large"]:
            lines.append(f"  {op['too_large']} more did not run: too large for this GPU's memory")
        shown = _shown(op["failures"])
        for failure in shown:
            sentence = failure["text"].replace("\n", "\n  ")
            lines += [f"  {failure['check']}: {sentence}", f"    {failure['command']}"]
        if left := failed - len(shown):
            lines.append(f"  and {left} more, which --json lists")
        if op["errors"] and not failed:
            largest = (f"{name} {facts['error']:.2f}" for name, facts in op["errors"].items())
            lines.append(f"  largest errors, where 1 is allowed: {', '.join(largest)}")
        lines += [f"  {op['note']}"] if op["note"] else []
    lines += [f"sizes are {report['sizes']}"] if report["sizes"] else []
    return lines


def _cases(op: dict[str, Any]) -> str:
    return f"{op['cases']} case{'s' * (op['cases'] != 1)}"


def _shown(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The failures that were shrunk, the first of every other check, and every crash; up to a few, then the others."""
    first, others, seen = [], [], set()
    for failure in sorted(failures, key=lambda failure: not failure["shrunk"]):
        is_new = failure["check"] == "crash" or failure["check"] not in seen
        (first if is_new else others).append(failure)
        seen.add(failure["check"])
    return (first + others)[:_MOST_SHOWN]
