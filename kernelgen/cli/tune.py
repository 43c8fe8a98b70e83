"""`kernelgen tune`."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.cli import lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import LARGEST_SEED, Parser, real, whole
from kernelgen.errors import KernelgenError
from kernelgen.tune.errors import TuningError

if TYPE_CHECKING:
    from kernelgen.lab.selection import Selection
    from kernelgen.tune.request import Reporter, TuningRequest
    from kernelgen.tune.task import Task
    from kernelgen.tune.tuning import TuningResult

_CODES = """exit codes:
  0  a faster configuration was confirmed and written (or: another worker confirms; a dry run)
  2  the default stands: nothing was written
  3  nothing could be tuned, or wrong usage"""
_WRITTEN, _STANDS = 0, 2


def run(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        home = lab.find(options)
        with _rule(options, home) as rule:
            return _tune(_request(options, home, rule), options)
    except TuningError:
        raise
    except KernelgenError as error:
        raise TuningError(str(error), error.details) from error


@contextmanager
def _rule(options: argparse.Namespace, home: "Selection") -> Iterator[Path | None]:
    """The checkout of the revision to trust, whose differences are said; None without one."""
    if options.trust is None:
        yield None
        return
    from kernelgen.lab.trust import changes_of_rule, trusted

    with trusted(home.root, options.trust) as rule:
        for sentence in changes_of_rule(rule, home.root, home.package, home.ops, options.trust):
            note(sentence)
        yield rule


def _tune(request: "TuningRequest", options: argparse.Namespace) -> int:
    from kernelgen.tune import display, tuning
    from kernelgen.tune.task import read_task

    with display.shown(quiet=options.json) as reporter:
        reporter.stage("reading the space", None)
        if options.chips:
            return _show_spaces(request, reporter, options)
        task = read_task(request)
        if options.dry_run:
            return _dry_run(request, task, reporter, options)
        try:
            result = tuning.tune(request, task, reporter)
        except KeyboardInterrupt:
            note(tuning.what_is_kept(request, task))
            raise
    return _finish(request, result, options)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("tune", "Search an op's tunables for a faster configuration, and keep one only with evidence.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser, ops=1)
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="the cases of lab.py that count (default: all)")
    parser.add_argument("--dtype", metavar="D", help="one dtype of the op (default: those that lab.py names)")
    text = "take lab.py, with its space and its cases, and the reference of this revision (default: as they are now)"
    parser.add_argument("--trust", metavar="REV", help=text)
    parser.add_argument("--backward", action="store_true", help="tune for the gradient's time instead")
    parser.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    _add_search(parser)
    _add_gate(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the whole record there, as JSON")
    parser.add_argument("--pictures", type=Path, metavar="FILE", help="write pictures of it there, as one HTML page")
    text = "show the space, what the gates reject and what the search would cost; search nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)
    parser.add_json()
    options = parser.parse_args(arguments)
    _check(parser, options)
    return options


def _add_search(parser: Parser) -> None:
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--seeds", type=whole(1), default=20, metavar="N", help="points spread over the space (default: 20)"
    )
    group.add_argument("--trials", type=whole(0), default=100, metavar="N", help="trials after those (default: 100)")
    group.add_argument(
        "--minutes", type=real(0.01), metavar="M", help="start no trial after so long; shape classes share it"
    )
    group.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help="of the search and the inputs (default: 0)"
    )
    group.add_argument(
        "-j", dest="jobs", type=whole(1), metavar="N", help="compilers at once (default: by cores and memory)"
    )
    group.add_argument(
        "--gpus", type=whole(1), metavar="N", help="GPUs to measure on (default: all of the first's kind)"
    )
    text = "how many seconds a candidate may say nothing before it counts as hung (default: 60)"
    group.add_argument("--limit", type=real(1), default=60.0, metavar="S", help=text)
    text = "where workers share their trials: a journal's path, a database's URL or grpc://HOST:PORT"
    group.add_argument("--storage", metavar="WHERE", help=text)
    group.add_argument("--resume", action="store_true", help="go on with the tuning that ended before it was done")
    text = "with --dry-run: the compute capability to reckon with, such as 9.0, where that GPU is not here; the spaces "
    text += "alone of several, such as 8.0,9.0, or of all"
    group.add_argument("--chip", metavar="C", help=text)


def _add_gate(parser: Parser) -> None:
    group = parser.add_argument_group("the gate")
    group.add_argument(
        "--best", type=whole(1), default=3, metavar="N", help="candidates to try to confirm (default: 3)"
    )
    lab.add_blocks(group, least=10)
    text = "no case may be so much slower (default: 3)"
    group.add_argument("--slower", type=real(0), default=3.0, metavar="PERCENT", help=text)
    text = "one case has to be at least so much faster (default: 3)"
    group.add_argument("--faster", type=real(0), default=3.0, metavar="PERCENT", help=text)


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if options.storage and options.resume:
        parser.error("--resume is for the project's own journal; a --storage is joined anyway")
    for file in filter(None, (options.out, options.pictures)):
        if not file.resolve().parent.is_dir():
            parser.error(f"there is no folder {file.parent} to write {file.name} to")
    if options.pictures and find_spec("matplotlib") is None:
        parser.error(f"--pictures needs matplotlib; install it with: {sys.executable} -m pip install matplotlib")
    if options.chip and not options.dry_run:
        parser.error("--chip goes with --dry-run; a search measures on the GPUs that are here")
    options.chips = []
    if options.chip:
        from kernelgen.tune.device_limits import DEVICE_LIMITS, device_limits

        if options.device == "cpu":
            parser.error("--chip is a GPU's; leave out --device cpu")
        chips = list(DEVICE_LIMITS) if options.chip == "all" else options.chip.split(",")
        for chip in chips:
            if device_limits(chip) is None:
                parser.error(f"--chip {chip} is not known; known are {', '.join(DEVICE_LIMITS)}, or all of them: all")
        options.chips = chips if len(chips) > 1 else []


def _request(options: argparse.Namespace, home: "Selection", rule: Path | None) -> "TuningRequest":
    from kernelgen.lab.compare import Thresholds
    from kernelgen.tune.request import TuningRequest

    names = ("dtype", "cases", "backward", "tf32", "seed", "seeds", "trials", "minutes", "jobs", "gpus", "storage")
    return TuningRequest(
        home.root,
        home.package,
        home.ops[0],
        home.python,
        device="cuda" if options.chip else options.device,
        limit_s=options.limit,
        rule=rule,
        thresholds=Thresholds(slower=options.slower / 100, faster=options.faster / 100),
        **{name: getattr(options, name) for name in (*names, "resume", "best", "blocks", "chip")},
    )


def _show_spaces(request: "TuningRequest", reporter: "Reporter", options: argparse.Namespace) -> int:
    """The space on each of several GPUs. Nothing is compiled: for each of them that would take a minute."""
    from kernelgen.tune import text
    from kernelgen.tune.task import Task, read_tasks

    answers = []
    for chip, task in read_tasks(request, options.chips):
        is_task = isinstance(task, Task)
        answers.append(task.as_dict() if is_task else {"device": "cuda", "chip": chip, "error": str(task)})
        if not options.json:
            print(text.of_task(request, task) if is_task else f"{request.op} on {chip}: {task}", flush=True)
    reporter.stage("", None)
    if options.json:
        print(json.dumps({"chips": answers}))
    return 0


def _dry_run(request: "TuningRequest", task: "Task", reporter: "Reporter", options: argparse.Namespace) -> int:
    from kernelgen.tune import cost, text

    if not options.json:
        print(text.of_task(request, task), flush=True)
    target = f"compute capability {task.chip}" if task.device == "cuda" else "this CPU"
    note(f"compiling {request.op} for {target}, once as it is and once as a candidate, to say what a search would cost")
    try:
        figures = cost.estimate_cost(request, task, reporter)
    except KernelgenError as error:
        if not options.chip:
            raise
        figures = None  # There may be no compiler here for another machine's chip.
        note(f"what a search would cost is not known: {error}")
    reporter.stage("", None)
    if options.json:
        print(json.dumps({**task.as_dict(), "cost": figures}))
    elif figures:
        print(text.of_cost(figures))
    return 0


def _finish(request: "TuningRequest", result: "TuningResult", options: argparse.Namespace) -> int:
    from kernelgen.tune import text

    code = _WRITTEN if result.written or result.left_to_others else _STANDS
    record = {**result.record, "written": str(result.written) if result.written else None, "exit_code": code}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.pictures:
        from kernelgen.lab.report import collect, page

        options.pictures.write_text(page.html(collect.of_tuning(record), request.op), encoding="utf-8")
    print(json.dumps(record) if options.json else text.of_result(request, result))
    return code
