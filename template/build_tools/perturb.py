"""`python -m build_tools.perturb SEED NVCC ARGUMENTS`: nvcc, with random waits around whatever synchronises threads.

A fault of synchronisation hides as long as threads arrive in a lucky order. The waits make other orders likely. They
are added to the PTX, where every barrier and asynchronous copy is an instruction, whoever wrote it: a header of this
project, inline assembly or a library.

nvcc lists its steps (--dryrun), which are run one by one; the PTX is changed before ptxas compiles it.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

# Waits are added before these instructions, and after them.
BEFORE = re.compile(
    r"bar(rier)?\.|mbarrier\.|fence\.|membar\.|cp\.(async|reduce)\.|wgmma\.(fence|wait_group)|(atom|red)\.|"
    r"(ld|st)\.(volatile|relaxed|acquire|release)|griddepcontrol\.wait"
)
# Between wgmma.mma_async and its commit, ptxas would wait for the tensor cores at each further instruction.
AFTER = re.compile(
    r"bar(rier)?\.|mbarrier\.|membar\.|cp\.(async|reduce)\.|wgmma\.(commit|wait)_group|(atom|red)\.|"
    r"(ld|st)\.(volatile|relaxed|acquire|release)|griddepcontrol\."
)
# An instruction after whatever stands before it in its statement: labels, source lines, braces, a predicate.
INSTRUCTION = re.compile(r"^((?:\s|[{}]|[$\w]+:|(?://|\.loc\b).*\n)*)((?:@!?[%$\w]+\s+)?)([a-z][\w.:]*)")
# One place in so many has no wait at all, one wait in so many is long.
QUIET_PLACES, LONG_WAITS = 4, 8
SHORT_NS, LONG_NS = 256, 8192


def main(arguments: Sequence[str]) -> int:
    seed, *command = (argument for argument in arguments if not argument.startswith("--time="))
    if "-MD" in command:
        # The listed steps lack the one that turns the preprocessor's dependencies into those of the object.
        command.remove("-MD")
        separate = ["-M", "-MT", command[command.index("-o") + 1], "-o", command[command.index("-MF") + 1]]
        code = subprocess.run([*_without(command, "-MF", "-o"), *separate], check=False).returncode
        if code:
            return code
        command = _without(command, "-MF")
    with tempfile.TemporaryDirectory() as folder:
        steps, environment = _steps([*command, "--dryrun", "--keep", "--keep-dir", folder])
        for step in steps:
            if ptx := _ptx_of(step):
                text = ptx.read_text(encoding="utf-8")
                ptx.write_text(perturbed(text, random.Random(f"{seed} {command[-1]}")), encoding="utf-8")
            code = subprocess.run(["sh", "-c", step], env=environment, check=False).returncode
            if code:
                return code
    return 0


def _without(command: Sequence[str], *options: str) -> list[str]:
    """The command without these options, which take a value."""
    kept = list(command)
    for option in options:
        begin = kept.index(option)
        del kept[begin : begin + 2]
    return kept


def _steps(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """nvcc's shell commands, and the environment that they need."""
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.removeprefix("#$ ") for line in listing.stderr.splitlines() if line.startswith("#$ ")]
    if listing.returncode or not lines:
        sys.exit(listing.stderr)
    environment, steps = dict(os.environ), []
    for line in lines:
        name, is_assignment, value = line.partition("=")
        if is_assignment and re.fullmatch(r"\w+", name):
            environment[name] = value.strip()
        elif not line.startswith("--"):  # A remark on the list of dependencies, which a step before it writes.
            steps.append(line)
    return steps, environment


def _ptx_of(step: str) -> Path | None:
    """The file that a step of ptxas compiles."""
    if not step.startswith(("ptxas ", '"ptxas"')):
        return None
    return next(Path(word) for word in shlex.split(step) if word.endswith(".ptx"))


def perturbed(ptx: str, choices: random.Random) -> str:
    """PTX with waits in it; `choices` draws which instructions get one."""
    return "".join(_with_waits(statement, choices) for statement in _statements(ptx))


def _statements(ptx: str) -> Iterator[str]:
    """The text in parts: up to and with each semicolon, and each line that is a comment or a directive."""
    part = ""
    for line in ptx.splitlines(keepends=True):
        if not part.strip() and line.lstrip().startswith(("//", ".")):
            yield part + line
            part = ""
            continue
        *ended, rest = line.split(";")
        for text in ended:
            yield f"{part}{text};"
            part = ""
        part += rest
    yield part


def _with_waits(statement: str, choices: random.Random) -> str:
    match = INSTRUCTION.match(statement)
    if not match or not statement.endswith(";"):
        return statement
    begin, name = match.end(1), match[3]
    before = _wait(choices) if BEFORE.match(name) else ""
    after = _wait(choices) if AFTER.match(name) else ""
    return f"{statement[:begin]}{before}{statement[begin:]}{after}"


def _wait(choices: random.Random) -> str:
    """PTX that sleeps for a random time: for most warps none, for some up to SHORT_NS, for few up to LONG_NS.

    The times come from the clock, so that they differ from launch to launch; a warp reads it at once, so that its lanes
    stay together.
    """
    if choices.randrange(QUIET_PLACES) == 0:
        return ""
    salt = choices.randrange(1, 2**31, 2)
    longest = LONG_NS if choices.randrange(LONG_WAITS) == 0 else SHORT_NS
    wait = f"""
.reg .b32 time, warp;
.reg .pred sleeps;
mov.u32 time, %clock;
mov.u32 warp, %warpid;
mad.lo.u32 time, warp, {salt ^ 0x5BD1E994}, time;
mul.lo.u32 time, time, {salt};
shr.u32 warp, time, 15;
xor.b32 time, time, warp;
mul.lo.u32 time, time, 0x2C1B3C6D;
shr.u32 warp, time, 30;
setp.eq.u32 sleeps, warp, 0;
shr.u32 time, time, 8;
and.b32 time, time, {longest - 1};
@sleeps nanosleep.u32 time;
"""
    return "\n{ // perturbed" + wait + "}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
