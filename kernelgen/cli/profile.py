"""`kernelgen profile`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen.cli import lab
from kernelgen.cli.output import note
from kernelgen.cli.parser import LARGEST_SEED, Parser, real, whole
from kernelgen.errors import LabError

if TYPE_CHECKING:
    from kernelgen.lab.ncu.profiler import Profile

_CODES = """exit codes:
  0  profiled, with counters or without
  1  the op failed, crashed or hung
  2  nothing could be profiled, or wrong usage"""
# Kernels of one call that the text shows, and operators where there are no counters.
_MOST_SHOWN = 3
_MOST_ROWS = 12
_LONGEST_NAME = 80


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    from kernelgen.lab.ncu.profiler import profile_op

    selection = lab.find_for_device(options)
    with _folder(options.out, selection.root) as folder:
        lab.bring_up_to_date(selection, options)
        names = ("device", "case", "dtype", "backward", "tf32", "seed")
        profiled = profile_op(
            selection,
            {name: getattr(options, name) for name in names},
            folder,
            against=options.against,
            limit_s=options.limit,
            tell=_tell,
        )
    if options.json:
        print(json.dumps(profiled.as_dict()))
    else:
        written = [path for path in profiled.written if path.exists()]
        print("\n".join(_text(profiled.profile, profiled.before, written)))
    return 0


@contextmanager
def _folder(out: Path | None, root: Path) -> Iterator[Path]:
    """Where the profile is kept; a folder that goes, and a note, if the project cannot be written.

    Raises:
        LabError: the folder that was asked for cannot be written.
    """
    from kernelgen.files import require_writable

    folder = out or root / "build" / "profiles"
    try:
        require_writable(folder / "profile")
    except OSError as error:
        if out:
            raise LabError(f"{out} cannot be written: {error.strerror}; name another folder with --out.") from error
        note(f"{folder} cannot be written ({error.strerror}): the profile is shown and not kept; see --out")
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
    else:
        yield folder


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"kernelgen: {text} …", file=sys.stderr)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("profile", "Show what an op's kernels do, by Nsight Compute, and what to look at next.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _CODES
    lab.add_options(parser, ops=1)
    parser.add_argument("--case", metavar="CASE", help="the case of lab.py to profile (default: the first)")
    parser.add_argument("--dtype", metavar="D", help="a dtype of the op (default: the first that lab.py measures)")
    parser.add_argument("--backward", action="store_true", help="profile the gradient instead")
    parser.add_argument("--tf32", action="store_true", help="let float32 matrix products use TF32")
    text = "show the change since this revision, which is built aside, or since a profile that was saved as JSON"
    parser.add_argument("--against", metavar="REV", help=text)
    parser.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help="of the inputs (default: 0)"
    )
    text = "how many seconds the op may take before it counts as hung (default: 300)"
    parser.add_argument("--limit", type=real(0.001), default=300.0, metavar="S", help=text)
    text = "where the report, the CSV and the JSON go (default: build/profiles in the project)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    lab.add_no_build(parser)
    parser.add_json()
    return parser.parse_args(arguments)


# ---- What is printed ------------------------------------------------------------------------------------------


def _text(profile: "Profile", before: "Profile | None", written: list[Path]) -> list[str]:
    from kernelgen.lab import results
    from kernelgen.lab.ncu import profiler

    time, count = results.seconds(profiler.seconds(profile)), len(profile["kernels"])
    head = f"{results.key(profile)} on {results.machine(profile['environment'])}: {time}"
    lines = [f"{head} in {count} launch{'es' * (count > 1)}, caches cold" if count else head]
    shown = sorted(profile["kernels"], key=lambda kernel: -kernel["seconds"])[:_MOST_SHOWN]
    for kernel in shown:
        lines += ["", *_kernel(kernel, profile)]
    if not shown:
        lines += [f"No counters: {profile['reason']}. By torch's profiler, for each call:", *_times(profile)]
    if before:
        lines += ["", *_change(before, profile)]
    return [*lines, "", *(f"written: {path}" for path in written)]


def _kernel(facts: dict[str, Any], profile: "Profile") -> list[str]:
    from kernelgen.lab import results
    from kernelgen.lab.ncu import figures

    launch = facts["launch"]
    shape = " x ".join(f"{launch[name]:.0f}" for name in ("grid_size", "block_size") if name in launch)
    time = f"{results.seconds(facts['seconds'])}, {facts['share']:.0%} of the time"
    kernel = figures.ProfiledKernel.from_dict(facts)
    rows = figures.rows(kernel, profile["ceilings"].get("copy_bytes_per_s"), facts["least"])
    lines = [f"{_cut(facts['name'])}: {time}, grid x block {shape}"]
    lines += [f"  {name:16} {figure:>7}  {rest}".rstrip() for name, figure, rest in rows]
    return lines + [f"  → {sentence}" for sentence in facts["says"]]


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _times(profile: "Profile") -> list[str]:
    from kernelgen.lab import results
    from kernelgen.lab.ncu import runner

    rows, whole = profile["times"]["rows"], sum(row["seconds"] for row in profile["times"]["rows"]) or 1
    lines = []
    for row in rows[:_MOST_ROWS]:
        share = f"{row['seconds'] / whole:.0%}"
        # Operators of torch have short names, with their namespace; kernels have long ones.
        name = _cut(runner.short(row["name"]) if "(" in row["name"] else row["name"])
        lines.append(f"  {results.seconds(row['seconds']):>9}  {share:>4}  {row['count']:g} x {name}")
    return lines


def _change(before: "Profile", after: "Profile") -> list[str]:
    """Before and after: the call, and the heaviest kernel's figures."""
    from kernelgen.lab import results
    from kernelgen.lab.ncu import figures, profiler

    times = [profiler.seconds(profile) for profile in (before, after)]
    lines = [f"before → after: {' → '.join(map(results.seconds, times))} ({times[1] / times[0] - 1:+.1%})"]
    heaviest = [profiler.heaviest(profile) for profile in (before, after)]
    if all(heaviest):
        tables = [figures.rows(kernel) for kernel in heaviest]
        lines.append(f"  {_cut(heaviest[0].name)} → {_cut(heaviest[1].name)}")
        lines += [f"  {a[0]:16} {a[1]:>7} → {b[1]}" for a, b in zip(*tables, strict=True)]
    lines.append("One call each: `kernelgen compare --against` says whether a difference is real.")
    return lines
