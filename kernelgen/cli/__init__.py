"""The `kernelgen` command: finds the verb, runs it, and turns an error into a sentence and an exit code.

Only the module of the verb that was typed is imported.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType
from typing import Any

from kernelgen import __version__, caches
from kernelgen.errors import KernelgenError, UsageError
from kernelgen.scaffold.lock import interruptible

# Each verb, what it does, and the module whose `run(arguments) -> exit code` does it.
VERBS = {
    "new": ("stamp a project", "kernelgen.cli.new"),
    "add-op": ("add an op: a recipe under a new name, or one of your own", "kernelgen.cli.add_op"),
    "remove-op": ("remove an op", "kernelgen.cli.remove_op"),
    "list": ("list the ops of a project, and the recipes there are", "kernelgen.cli.list"),
    "update": ("bring a project to a newer template", "kernelgen.cli.update"),
    "diff": ("show what was changed since a project was stamped", "kernelgen.cli.diff"),
    "build": ("compile a project's ops", "kernelgen.cli.build"),
    "fuzz": ("prove ops right: adversarial inputs against the reference in float64", "kernelgen.cli.fuzz"),
    "bench": ("measure ops beside their peers", "kernelgen.cli.bench"),
    "compare": ("say whether ops became faster or slower", "kernelgen.cli.compare"),
    "verdict": ("say in one answer whether an op builds, is right, and is fast", "kernelgen.cli.verdict"),
    "profile": ("show what bounds an op's kernels: counters against their ceilings", "kernelgen.cli.profile"),
    "report": ("write a page about everything that was measured", "kernelgen.cli.report"),
    "tune": ("search an op's tunables, and keep a faster configuration with evidence", "kernelgen.cli.tune"),
    "doctor": ("check what a build needs here, and say what cures what is wrong", "kernelgen.cli.doctor"),
    "env": ("print the variables that a build uses, for a shell or a container", "kernelgen.cli.env"),
    "help": ("print a page of documentation, or list them", "kernelgen.cli.help"),
}
# Verbs whose exit code 1 is a verdict: what they end with where there is none.
_NO_VERDICT = {"fuzz": 2, "bench": 2, "verdict": 2, "profile": 2, "compare": 3, "tune": 3}
# What verbs need of packages that kernelgen does without otherwise, in its own environment.
_PACKAGES = {
    **dict.fromkeys(("bench", "compare", "verdict"), "numpy scipy"),
    "report": "matplotlib numpy scipy",
    "tune": "matplotlib optuna scikit-learn scipy",
}
# EX_SOFTWARE of sysexits.h.
_BUG = 70


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 error, 2 usage, 3 conflicts, 70 a bug, 128 + signal."""
    try:
        return _main(arguments)
    finally:
        _leave_output()


def _main(arguments: list[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    if os.path.expanduser("~") == "~":
        # A user that the system does not know, as in a container: caches are left out, as in the root folder.
        os.environ["HOME"] = "/"
    for stream in (sys.stdout, sys.stderr):
        # Names of files may be any bytes, and a locale may know ASCII alone.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="surrogateescape" if stream.encoding.lower() == "utf-8" else "backslashreplace")
    try:
        with interruptible() as signals:
            code = _run(arguments)
            sys.stdout.flush()
        # A verb that ends in good order says that it was interrupted, and not by what.
        return 128 + signals[-1] if signals and code == 130 else code
    except KernelgenError as error:
        is_verdict = error.is_verdict or error.exit_code != KernelgenError.exit_code
        code = error.exit_code if is_verdict else _without_verdict(arguments)
        return _fail(str(error), code, arguments, error.details)
    except KeyboardInterrupt as stop:
        return _fail("Interrupted.", 128 + getattr(stop, "number", 2), arguments)
    except BrokenPipeError:
        return _without_verdict(arguments)
    except OSError as error:
        return _fail(_of_machine(error), _without_verdict(arguments), arguments)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and arguments[0] in _PACKAGES:
            return _fail(_lacking(error, arguments[0]), _without_verdict(arguments), arguments)
        import traceback

        # Python's own exit code, 1, would mean a regression of `compare`, and a wrong result of `fuzz`.
        traceback.print_exc()
        advice = f"This is a bug of kernelgen {__version__}; report it with the lines above"
        return _fail(f"{advice}. {type(error).__name__}: {error}", _BUG, arguments)


def _open_closed_streams() -> None:
    """Puts the null device where a shell closed a stream (`>&-`): Python has None there, and the next file that is
    opened would get its number, and what libraries and compilers print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _leave_output() -> None:
    """Gives up what a stream did not take: Python would write it once more when it ends, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _without_verdict(arguments: list[str]) -> int:
    return _NO_VERDICT.get(arguments[0] if arguments else "", KernelgenError.exit_code)


def _lacking(error: ModuleNotFoundError, verb: str) -> str:
    """The sentence for a package that is not installed beside kernelgen."""
    from importlib.util import find_spec

    # The environments of `uv tool` have no pip.
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"`kernelgen {verb}` needs {error.name} where kernelgen is installed; get it with: {pip} {_PACKAGES[verb]}"


def _of_machine(error: OSError) -> str:
    """The sentence for what the system refused."""
    if "temporary directory" in str(error):
        return f"{error.strerror}; set TMPDIR to a folder that can be written and has room."
    what = error.strerror or str(error)
    if error.filename is None:
        # Standard output has no name: what failed then is the report, not the work.
        return f"{what}; the output is incomplete."
    cure = caches.cure(error.filename) if isinstance(error.filename, str | bytes) else ""
    return f"{what}: {error.filename}; {cure or 'nothing was changed'}."


def _run(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except SystemExit as stop:
        # `--help` ends so.
        return stop.code if isinstance(stop.code, int) else 0


def _dispatch(arguments: list[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if verb in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if verb in ("-V", "--version"):
        print(f"kernelgen {__version__}")
        return 0
    if verb not in VERBS:
        if verb.startswith("-"):
            raise UsageError(_misplaced(arguments))
        from kernelgen.scaffold.names import did_you_mean

        raise UsageError(f"There is no verb {verb!r}. {did_you_mean(verb, VERBS)} See `kernelgen --help`.")
    return import_module(VERBS[verb][1]).run(rest)


def _misplaced(arguments: list[str]) -> str:
    """What to type where options come before the verb."""
    verb = next((word for word in arguments if word in VERBS), "VERB")
    rest = [word for word in arguments if word != verb]
    return f"Options follow the verb: {shlex.join(['kernelgen', verb, *rest])}"


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:{width}}  {does}" for verb, (does, _) in VERBS.items())
    return (
        "usage: kernelgen VERB …\n\nFrom a PyTorch function to a fast, tested, shipped GPU op.\n\n"
        f"{verbs}\n\n`kernelgen VERB --help` says what a verb takes; `kernelgen help` lists the pages of documentation."
    )


def _fail(message: str, code: int, arguments: list[str], details: Mapping[str, Any] = MappingProxyType({})) -> int:
    if "--json" in arguments:
        with suppress(OSError):
            print(json.dumps({"error": message, "exit_code": code, **details}), flush=True)
            return code
    # Where standard error is what failed, the exit code alone can say so.
    with suppress(OSError):
        print(f"kernelgen: {message}", file=sys.stderr)
    return code
