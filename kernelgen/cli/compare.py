"""`kernelgen compare`."""

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen.cli import lab
from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError, LabError

if TYPE_CHECKING:
    from kernelgen.lab.compare import Comparison, Thresholds
    from kernelgen.lab.pair import Pair, Paired, Plan

_CODES = """exit codes:
  0  improved: an improvement was shown, and no regression
  1  a regression was shown, or results are wrong
  2  no significant difference
  3  nothing could be compared, or wrong usage"""
_UNABLE = 3


def run(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        comparison = _revisions(options) if options.against else _files(options)
    except KernelgenError as error:
        error.exit_code = _UNABLE  # 1 and 2 are verdicts here.
        raise
    except ModuleNotFoundError as error:
        unable = KernelgenError(f"Comparing needs {error.name}; install it with: {sys.executable} -m pip install scipy")
        unable.exit_code = _UNABLE
        raise unable from error
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
    group.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: cuda where there is a GPU)")
    group.add_argument("--dtype", metavar="D", help="one dtype of the op (default: those that lab.py names)")
    group.add_argument("--backward", action="store_true", help="measure the gradient instead")
    group.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs and the order (default: 0)")
    lab.add_blocks(group)
    text = "how many seconds a worker may say nothing before it counts as hung (default: 120)"
    group.add_argument("--limit", type=float, default=120.0, metavar="S", help=text)


def _add_thresholds(parser: Parser) -> None:
    group = parser.add_argument_group("thresholds")
    text = "a regression is so much slower (default: 3)"
    group.add_argument("--slower", type=float, default=3.0, metavar="PERCENT", help=text)
    group.add_argument("--faster", type=float, default=10.0, metavar="PERCENT", help="an improvement (default: 10)")
    group.add_argument("--delta", type=float, default=0.3, help="the least |Cliff's delta| (default: 0.3)")
    group.add_argument("--alpha", type=float, default=0.05, help="what p has to be below (default: 0.05)")


def _thresholds(options: argparse.Namespace) -> "Thresholds":
    from kernelgen.lab.compare import Thresholds

    return Thresholds(options.slower / 100, options.faster / 100, options.delta, options.alpha)


def _files(options: argparse.Namespace) -> "Comparison":
    from kernelgen.lab import compare, results

    before, after = (results.read(Path(name)) for name in options.what)
    return compare.files(tuple(options.what), before, after, _thresholds(options), options.cases)


def _revisions(options: argparse.Namespace) -> "Comparison":
    from kernelgen.lab import compare, results
    from kernelgen.toolchain import revision

    options.ops = options.what
    home = lab.find(options)
    with revision.checked_out(home.root, options.against) as (then, commit):
        for op in home.ops:
            revision.give_cases(home.root, then, home.package, op, options.against)
        for root in (then, home.root):
            revision.build(root, home.python)
        measuring = _Measuring(options, home, then)
        found = measuring.all(options.seed)
        if not found:
            raise KernelgenError(" ".join(measuring.notes) or "Nothing was measured.")
        machine = results.machine(measuring.environment)
        said = (f"{options.against} ({commit[:10]})", "the working tree", machine, found)
        comparison = compare.revisions(*said, _thresholds(options))
        if doubtful := compare.doubtful(comparison):
            again = measuring.all(options.seed + 1, doubtful)
            comparison = compare.revisions(*said, _thresholds(options), again)
    comparison.notes += measuring.notes
    comparison.evidence = [
        compare.software(measuring.environment),
        *compare.interleaved(found, measuring.plan(options.seed), measuring.turns),
        f"Measured at {commit[:10]} and in the working tree by `{_command(options)}`.",
    ]
    return comparison


def _command(options: argparse.Namespace) -> str:
    """What repeats the measurement."""
    words = ["kernelgen", "compare", "--against", options.against, *options.what]
    for name in ("device", "dtype", "blocks"):
        words += [f"--{name}", str(getattr(options, name))] if getattr(options, name) else []
    words += [f"--{name}" for name in ("backward", "tf32") if getattr(options, name)]
    return shlex.join([*words, *(["--cases", *options.cases] if options.cases else [])])


@dataclass
class _Measuring:
    """Both revisions, built: what measures them, and what went wrong in it."""

    options: argparse.Namespace
    home: lab.Lab
    then: Path
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    def all(self, seed: int, only: Sequence[str] | None = None) -> "list[Paired]":
        """Every case of every op, or those of these keys, by new processes; one that crashes or hangs is noted."""
        return [result for op in self.home.ops for result in self._op(op, seed, only)]

    def plan(self, seed: int) -> "Plan":
        """Of all pairs of workers together."""
        from kernelgen.lab import pair

        return pair.Plan(self.options.blocks or pair.BLOCKS[self.environment["device"]], seed=seed)

    @property
    def turns(self) -> int:
        """How many pairs of workers share the blocks."""
        from kernelgen.lab import pair

        return pair.pairs_for(self.plan(0).blocks, self.environment["device"])

    def _op(self, op: str, seed: int, only: Sequence[str] | None) -> "list[Paired]":
        from kernelgen.lab import pair

        parts: dict[str, list[Paired]] = {}
        for turn in itertools.count():
            for name, part in self._turn(op, seed, turn, only):
                parts.setdefault(name, []).append(part)
            if not parts or turn + 1 >= self.turns:
                break
        return [pair.merged(found) for name, found in parts.items() if name not in self.lost]

    def _turn(self, op: str, seed: int, turn: int, only: Sequence[str] | None) -> "Iterator[tuple[str, Paired]]":
        """What one pair of workers finds in its share of each case's blocks."""
        from kernelgen.lab import pair, results

        with ExitStack() as stack, lab.progress(not self.options.json) as show:
            try:
                live, listed = self._start(op, seed, stack)
            except LabError as error:  # Of this op alone: its kernel is not written, or it has no such case.
                self.notes.append(str(error))
                return
            self.environment = listed["environment"]
            plan = self.plan(seed).share(turn, self.turns)
            for case, dtype in listed["cases"]:
                part = pair.Paired(op, case, dtype, self.options.backward)
                name = results.key(part.as_dict())
                if name in self.lost or (only is not None and name not in only):
                    continue
                try:
                    yield name, pair.measure(live, part, plan, lambda share, name=name: show(name, share, 1.0))
                except pair.LostError as lost:
                    self.lost.add(name)
                    self.notes.append(f"{name}: {lost}")
                    live, _ = self._start(op, seed, stack)

    def _start(self, op: str, seed: int, stack: ExitStack) -> "tuple[Pair, dict[str, Any]]":
        from kernelgen.lab import pair

        options = self.options
        names = ("device", "dtype", "cases", "backward", "tf32")
        request = {"package": self.home.package, "op": op, "seed": seed}
        request |= {name: getattr(options, name) for name in names}
        sides = ((f"{op} at {options.against}", self.then), (f"{op} as it is now", self.home.root))
        live = pair.Pair(*(pair.Side(name, self.home.python, root, request, options.limit) for name, root in sides))
        stack.enter_context(closing(live))
        return live, live.both("list")[1]


def _print(comparison: "Comparison", options: argparse.Namespace) -> None:
    from kernelgen.lab import compare

    if options.json:
        print(compare.to_json(comparison))
    elif options.markdown:
        print(compare.markdown(comparison))
    else:
        print(_text(comparison))


def _text(comparison: "Comparison") -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from kernelgen.lab import compare

    table = Table(*compare.HEADINGS, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in compare.rows(comparison):
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(table)
    notes = [f"{one.case}: {note}" for one in comparison.verdicts for note in one.notes]
    head = f"{comparison.before} → {comparison.after}, on {comparison.machine}"
    return "\n".join([head, captured.get().rstrip(), *comparison.notes, *notes, compare.rule(comparison.thresholds)])
