"""`kernelgen tune`."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen.cli import lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.tune.search import Stats
    from kernelgen.tune.tuning import Plan, Result, Terrain, Views

_CODES = """exit codes:
  0  a faster configuration was confirmed and written (or: another worker confirms; a dry run)
  2  the default stands: nothing was written
  3  nothing could be tuned, or wrong usage"""
_WRITTEN, _STANDS, _UNABLE = 0, 2, 3
# Where no terminal shows the progress, a line after so many trials of a search, and in a stage after so long.
_LINE_TRIALS, _LINE_S = 10, 10.0


def run(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        from kernelgen.tune import tuning

        plan = _plan(options, lab.find(options))
        with _views(options.json) as views:
            views.stage("reading the space", None)
            terrain = tuning.survey(plan)
            if options.dry_run:
                return _dry_run(plan, terrain, views, options)
            result = tuning.tune(plan, terrain, views)
    except KernelgenError as error:
        error.exit_code = _UNABLE
        raise
    except KeyboardInterrupt:
        note("the trials that were done are kept; go on with --resume")
        raise
    except ModuleNotFoundError as error:
        unable = KernelgenError(
            f"Tuning needs {error.name}; install it with: {sys.executable} -m pip install optuna scikit-learn scipy"
        )
        unable.exit_code = _UNABLE
        raise unable from error
    return _finish(plan, result, options)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("tune", "Search an op's tunables for a faster configuration, and keep one only with evidence.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser, ops=1)
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="the cases of lab.py that count (default: all)")
    parser.add_argument("--dtype", metavar="D", help="one dtype of the op (default: those that lab.py names)")
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
    group.add_argument("--seeds", type=int, default=20, metavar="N", help="points spread over the space (default: 20)")
    group.add_argument("--trials", type=int, default=100, metavar="N", help="trials after those (default: 100)")
    group.add_argument(
        "--minutes", type=float, metavar="M", help="start no trial after so long, which classes of shapes share"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the search and the inputs (default: 0)")
    group.add_argument(
        "-j", dest="jobs", type=int, metavar="N", help="compilers at once (default: by cores and memory)"
    )
    group.add_argument("--gpus", type=int, metavar="N", help="GPUs to measure on (default: all of the first's kind)")
    text = "how many seconds a candidate may say nothing before it counts as hung (default: 60)"
    group.add_argument("--limit", type=float, default=60.0, metavar="S", help=text)
    text = "where workers share their trials: a journal's path, a database's URL or grpc://HOST:PORT"
    group.add_argument("--storage", metavar="WHERE", help=text)
    group.add_argument("--resume", action="store_true", help="go on with the tuning that ended before it was done")
    text = "with --dry-run: the compute capability to reckon with, such as 9.0, where that GPU is not here"
    group.add_argument("--chip", metavar="C", help=text)


def _add_gate(parser: Parser) -> None:
    group = parser.add_argument_group("the gate")
    group.add_argument("--best", type=int, default=3, metavar="N", help="candidates to try to confirm (default: 3)")
    lab.add_blocks(group)
    text = "no case may be so much slower (default: 3)"
    group.add_argument("--slower", type=float, default=3.0, metavar="PERCENT", help=text)
    text = "one case has to be at least so much faster (default: 3)"
    group.add_argument("--faster", type=float, default=3.0, metavar="PERCENT", help=text)


def _check(parser: Parser, options: argparse.Namespace) -> None:
    least = {"seeds": 1, "trials": 0, "minutes": 0.01, "jobs": 1, "gpus": 1, "limit": 1, "best": 1, "blocks": 10}
    for name, smallest in least.items():
        value = getattr(options, name)
        if value is not None and value < smallest:
            parser.error(f"--{name} {value:g} is too little; {smallest:g} is the least")
    if options.storage and options.resume:
        parser.error("--resume is for the project's own journal; a --storage is joined anyway")
    for file in filter(None, (options.out, options.pictures)):
        if not file.resolve().parent.is_dir():
            parser.error(f"there is no folder {file.parent} to write {file.name} to")
    if options.pictures and find_spec("matplotlib") is None:
        parser.error(f"--pictures needs matplotlib; install it with: {sys.executable} -m pip install matplotlib")
    if options.chip and not options.dry_run:
        parser.error("--chip goes with --dry-run; a search measures on the GPUs that are here")
    if options.chip:
        from kernelgen.tune.device_limits import DEVICE_LIMITS, device_limits

        if options.device == "cpu":
            parser.error("--chip is a GPU's; leave out --device cpu")
        if device_limits(options.chip) is None:
            parser.error(f"--chip {options.chip} is not known; known are {', '.join(DEVICE_LIMITS)}")


def _plan(options: argparse.Namespace, home: lab.Lab) -> "Plan":
    from kernelgen.lab.compare import Thresholds
    from kernelgen.tune.tuning import Plan

    names = ("dtype", "cases", "backward", "tf32", "seed", "seeds", "trials", "minutes", "jobs", "gpus", "storage")
    asked = {name: getattr(options, name) for name in (*names, "resume", "best", "blocks", "chip")}
    thresholds = Thresholds(slower=options.slower / 100, faster=options.faster / 100)
    device = "cuda" if options.chip else options.device
    facts = {"device": device, "limit_s": options.limit, "thresholds": thresholds}
    return Plan(home.root, home.package, home.ops[0], home.python, **asked, **facts)


# ---- What is printed ------------------------------------------------------------------------------------------


def _dry_run(plan: "Plan", terrain: "Terrain", views: "Views", options: argparse.Namespace) -> int:
    from kernelgen.tune import tuning

    if not options.json:
        print("\n".join(_terrain_text(plan, terrain)), flush=True)  # What it costs takes a while to find out.
    try:
        price = tuning.cost(plan, terrain, views)
    except KernelgenError as error:
        if not options.chip:
            raise
        price = None  # Another machine's chip: there may be no compiler for it here.
        note(f"what a search would cost is not known: {error}")
    views.stage("", None)
    if options.json:
        print(json.dumps({**terrain.as_dict(), "cost": price}))
    elif price:
        print(_price_text(price))
    return 0


def _terrain_text(plan: "Plan", terrain: "Terrain") -> list[str]:
    lines = [f"{plan.op} on {terrain.chip}: {terrain.space.size} points"]
    width = max(map(len, terrain.space.tunables))
    lines += [f"  {name:{width}}  {', '.join(map(str, values))}" for name, values in terrain.space.tunables.items()]
    for one in terrain.classes:
        of = f"{one.shapes}: " if one.shapes else ""
        for gate, found in one.rejected.items():
            lines.append(f"{of}{found['count']} rejected by {gate}, such as {found['examples'][0]['text']}")
        cases = f"{len(one.cases)} case{'s are' if len(one.cases) > 1 else ' is'} measured for each"
        lines.append(f"{of}{len(one.kept)} points are left; {cases}.")
    return lines


def _price_text(price: Mapping[str, Any]) -> str:
    measuring = price["measuring_s"]
    measured = f"{measuring:.1f} s to prove and measure" if measuring else "no GPU here to measure on"
    return (
        f"{price['trials']} trials, each {price['compiling_s']:.1f} s to compile ({price['jobs']} at once) and "
        f"{measured}: about {price['minutes']:.1f} minutes"
    )


def _finish(plan: "Plan", result: "Result", options: argparse.Namespace) -> int:
    code = _WRITTEN if result.written or result.left else _STANDS
    record = {**result.record, "written": str(result.written) if result.written else None, "exit_code": code}
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.pictures:
        from kernelgen.lab.report import collect, page

        options.pictures.write_text(page.html(collect.of_tuning(record), plan.op), encoding="utf-8")
    print(json.dumps(record) if options.json else "\n".join(_text(plan, result)))
    return code


def _text(plan: "Plan", result: "Result") -> list[str]:
    from kernelgen.lab import compare
    from kernelgen.tune.space import key

    lines = []
    for part in result.record["searches"]:
        stats = part["stats"]
        head = f"{plan.op}{' · ' + part['shapes'] if part['shapes'] else ''}: {stats['done']} trials"
        failed = f", {stats['failed']} of them no good" if stats["failed"] else ""
        lines.append(f"{head}{failed}; {part['ended']} after {stats['seconds']:.0f} s")
        for found in part.get("confirmed", ()):
            verdict = "confirmed" if found["passed"] else "not confirmed"
            lines.append(f"  {verdict}: {key(found['values'])}{': ' + found['problem'] if found['problem'] else ''}")
            for case in (found["comparison"] or {"cases": []})["cases"]:
                change, low, high = (100 * (end - 1) for end in case["ratio"])
                lines.append(f"    {case['case']}: {change:+.1f}% ({low:+.1f}, {high:+.1f}) {case['verdict']}")
                lines += [f"      {note}" for note in case["notes"]]
            lines += [f"    {note}" for note in (found["comparison"] or {}).get("notes", ())]
    if result.left:
        return [*lines, result.left]
    if result.written:
        shown = result.written.relative_to(plan.root)
        return [*lines, f"written to {shown}; build to use it: kernelgen build", compare.rule(plan.thresholds)]
    return [*lines, f"The default of {plan.op} stands; nothing was written.", compare.rule(plan.thresholds)]


@contextmanager
def _views(quiet: bool) -> "Iterator[Views]":
    """The progress: a view that is redrawn on a terminal; else a line now and then, unless it is to be quiet."""
    from kernelgen.tune.tuning import Views

    if quiet:
        yield Views()
        return
    if not sys.stderr.isatty():
        log = _Log()
        yield Views(log.stage, log.stats, log.note)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live("", console=console, transient=True, refresh_per_second=4) as live:
        yield Views(
            stage=lambda text, share: live.update(text if share is None else f"{text}: {share:.0%}"),
            stats=lambda shapes, stats: live.update(_table(shapes, stats)),
            note=lambda text: console.print(text, highlight=False),
        )


class _Log:
    """The progress as lines, for a file or an agent."""

    def __init__(self) -> None:
        self._shapes, self._said, self._at = "", 0, time.monotonic()

    def note(self, text: str) -> None:
        self._at = time.monotonic()
        print(f"kernelgen: {text}", file=sys.stderr, flush=True)

    def stage(self, text: str, share: float | None) -> None:
        if text and time.monotonic() >= self._at + _LINE_S:
            self.note(text if share is None else f"{text}: {share:.0%}")

    def stats(self, shapes: str, stats: "Stats") -> None:
        if shapes != self._shapes:
            self._shapes, self._said = shapes, 0
        if stats.here >= self._said + _LINE_TRIALS:
            self._said = stats.here
            self.note(f"{shapes}: {_progress(stats)}" if shapes else _progress(stats))


def _progress(stats: "Stats") -> str:
    best = f"best {stats.best:.3f} of the default's time" if stats.best_values else "none measured yet"
    return f"{stats.done} of {stats.total} trials, {best}, {stats.rate:.0f} a minute, {_left(stats)} left"


def _left(stats: "Stats") -> str:
    if not stats.rate:
        return "?"
    seconds = min(60 * (stats.total - stats.done) / stats.rate, max(0.0, stats.limit_s - stats.seconds))
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _table(shapes: str, stats: "Stats") -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from kernelgen.tune.space import key

    table = Table.grid(padding=(0, 2))
    table.add_row(shapes or "trials", ProgressBar(stats.total, stats.done, width=40), f"{stats.done} of {stats.total}")
    if stats.best_values:
        table.add_row("best", f"{stats.best:.3f} of the default's time", key(stats.best_values))
    table.add_row("rate", f"{stats.rate:.1f} trials a minute", f"{_left(stats)} left")
    used = f"compilers {stats.compilers_used:.0%} of {stats.jobs}, measuring {stats.lanes_used:.0%} of {stats.lanes}"
    table.add_row("in use", used, f"{stats.failed} no good, {stats.cached} from the cache")
    return table
