"""Links a library for the emulated GPU, and says in a sentence what the emulator lacks.

python -m kernelgen.emulator.link LIBRARY G++ FOLDER [OBJECT or FLAG…]

FOLDER holds libraries that the linker takes in place of others of their names, if they have all that is needed.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelgen.emulator.compiler import EmulatorError

MOST_NAMED = 12
# Some compilers have the C++ library as an archive only. A copy of it stays private to the library: the process has
# another, and where the two share a part of their variables neither works.
FLAGS = ["-Wl,-Bsymbolic", "-Wl,--no-undefined", "-Wl,--exclude-libs,ALL"]
LIBRARIES = ["-ldl", "-lrt"]  # Parts of the C library since glibc 2.34.


def link(command: str, library: Path, words: Sequence[str], first: Path | None = None) -> None:
    """Links objects; the library appears whole, or not at all.

    Args:
        command: g++.
        words: objects and flags.
        first: a folder of libraries to take in place of others of their names, if they have all that is needed.

    Raises:
        EmulatorError: a function is missing, or the linker failed.
    """
    unfinished = library.with_suffix(".unfinished")
    environment = {**os.environ, "LC_ALL": "C"}
    for folders in ([f"-L{first}"], []) if first else ([],):
        line = [command, "-shared", *FLAGS, "-o", str(unfinished), *folders, *words, *LIBRARIES]
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
        if not done.returncode:
            break
    if done.returncode:
        raise EmulatorError(_missing(done.stderr) or f"{shlex.join(line)}\n{done.stderr}")
    unfinished.rename(library)


def _missing(errors: str) -> str:
    """A sentence about the functions that nothing defines."""
    names = sorted(set(re.findall(r"undefined reference to [`'](.+)'$", errors, re.MULTILINE)))
    if not names:
        return ""
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    return f"The emulated GPU does not have {listed}: the sources call it, and neither they nor the emulator define it."


def main(arguments: Sequence[str]) -> int:
    library, command, first, *words = arguments
    try:
        link(command, Path(library), words, Path(first))
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
