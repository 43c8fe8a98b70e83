"""`python -m build_tools COMMAND`, in the project's root. Results are JSON.

    build       bring the libraries up to date; what `kernelgen build` runs
    stale       say what changed since they were built
    configure   write a build definition, and build nothing
    headers     write the headers that an op's sources include
    objects     write those headers for every op, and print what an emulated GPU's library is compiled from
    tuning      print the header that an entry of tuned values makes
    jit         compile one op into a cache; what the package's jit.py runs
    facts       print what a build would use here

`build` leaves standard output to the compilers and writes its result to --report. A refusal is one sentence on
standard error and exit code 1; where there is a report, it is the report's `error`, and `errors` are the compilers' own
where --quiet lets them be read.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .build import build
from .messages import BuildError, MachineError, Note, printer, sentence
from .ops import Op, find_ops
from .project import Project, load
from .request import Request, single_op, whole_project
from .variant import RELEASE, find_variant


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # The background of a script ignores it.
        signal.signal(signal.SIGINT, _end)
    options = _parser().parse_args(arguments)
    note = printer(options.speaker)
    try:
        result = options.run(options, note)
    except (BuildError, OSError) as error:
        failure = {"error": sentence(error), "errors": getattr(error, "errors", [])}
        failure["of_machine"] = isinstance(error, (MachineError, OSError))
    except KeyboardInterrupt:
        return 130
    else:
        _show(result, options.report)
        return 0
    if options.report:
        _show(failure, options.report)
    else:
        note(failure["error"])
    return 1


def _end(number: int, frame: Any) -> None:
    """Interrupts the build and ignores further signals: a second one would keep it from cleaning up."""
    for handled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(handled, signal.SIG_IGN)
    raise KeyboardInterrupt


def _show(result: Any, report: Path | None) -> None:
    if report:
        report.write_text(json.dumps(result) + "\n", encoding="utf-8")
    elif result is not None:
        print(json.dumps(result))


# ---- The commands ---------------------------------------------------------------------------------------------


def _build(options: argparse.Namespace, note: Note) -> Any:
    project = load()
    request = _request(project, options)
    switches = {name: getattr(options, name) for name in ("jobs", "clean", "verbose", "quiet")}
    report = build(project, request, note, backends=_backends(options), **switches)
    if not options.report:
        return None
    return {"variant": request.variant.name, "configuration": asdict(report.configuration), "built": report.built}


def _stale(options: argparse.Namespace, note: Note) -> Any:
    from .stale import reason

    project = load()
    return {"reason": reason(project, _request(project, options), _backends(options))}


def _backends(options: argparse.Namespace) -> list[str]:
    return [options.backend] if options.backend else ["cpu", "cuda"]


def _configure(options: argparse.Namespace, note: Note) -> Any:
    from .configure import configure

    project = load()
    return asdict(configure(project, _request(project, options), note))


def _headers(options: argparse.Namespace, note: Note) -> Any:
    from .configure import write_headers

    op = _op(load(), options.op)
    request = Request([op], RELEASE, options.folder, options.folder)
    write_headers(request, options.architectures, note)
    return {"generated": str(request.generated)}


def _objects(options: argparse.Namespace, note: Note) -> Any:
    from .emulated import describe

    return describe(load(), options.folder, options.architecture, note)


def _tuning(options: argparse.Namespace, note: Note) -> Any:
    from .tuning_header import tuning_header

    return {"header": tuning_header(options.op, {"": options.entry})}


def _jit(options: argparse.Namespace, note: Note) -> Any:
    from .jit import compile_op

    return {"folder": str(compile_op(load(), options.folder, options.schemas, options.backends, note))}


def _facts(options: argparse.Namespace, note: Note) -> Any:
    from .facts import facts

    return facts()


def _request(project: Project, options: argparse.Namespace) -> Request:
    """The whole project; or one op for one backend, in a folder of its own."""
    variant = find_variant()
    if options.op is None:
        return whole_project(project, variant)
    return single_op(_op(project, options.op), variant, options.folder, [options.backend], options.tuned)


def _op(project: Project, name: str) -> Op:
    ops = {op.name: op for op in find_ops(project)}
    if name not in ops:
        raise BuildError(f"there is no op {name} in {project.source}/ops; there are {', '.join(ops) or 'none'}.")
    return ops[name]


# ---- The command line -----------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m build_tools", description="Builds this project's libraries.")
    parser.add_argument("--speaker", default="build_tools", metavar="NAME", help="what its notes begin with")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the result there")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace, Note], Any], text: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=text, description=text, parents=parents)
        parser.set_defaults(run=run)
        return parser

    selection = argparse.ArgumentParser(add_help=False)
    selection.add_argument("--backend", choices=("cpu", "cuda"), help="this library alone")
    selection.add_argument("--op", help="this op alone, for that backend and in --folder")
    selection.add_argument("--folder", type=Path)
    selection.add_argument("--tuned", type=json.loads, metavar="JSON", help="with this in place of its tuned.json")

    subparser = command("build", _build, "bring the libraries up to date", selection)
    subparser.add_argument("-j", dest="jobs", type=int, metavar="N", help="compiler processes at once")
    subparser.add_argument("--clean", action="store_true", help="remove what was built before")
    subparser.add_argument("--verbose", action="store_true", help="show the compilers' command lines")
    subparser.add_argument("--quiet", action="store_true", help="print to standard error only")

    command("stale", _stale, "say what changed since the libraries were built", selection)

    command("configure", _configure, "write a build definition, and build nothing", selection)

    subparser = command("headers", _headers, "write the headers that an op's sources include, into FOLDER/generated")
    subparser.add_argument("op")
    subparser.add_argument("folder", type=Path)
    subparser.add_argument("architectures", nargs="*", help="such as 9.0a: which tuned values are for these")

    subparser = command("objects", _objects, "print what an emulated GPU's library in FOLDER is compiled from")
    subparser.add_argument("folder", type=Path)
    subparser.add_argument("architecture", help="such as 9.0a")

    subparser = command("tuning", _tuning, "print the header that an entry of tuned values makes")
    subparser.add_argument("op")
    subparser.add_argument("entry", type=json.loads, metavar="JSON")

    subparser = command("jit", _jit, "compile one op into a cache, and print the folder of its libraries")
    subparser.add_argument("folder", type=Path)
    subparser.add_argument("schemas", type=json.loads, metavar="JSON", help="the schemas that are defined already")
    subparser.add_argument("backends", nargs="+", choices=("cpu", "cuda"))

    command("facts", _facts, "print what a build would use here")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
