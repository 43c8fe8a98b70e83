"""Links a library for the emulated GPU, and says in a sentence what the emulator lacks.

python -m kernelgen.emulator.link LIBRARY G++ [OBJECT or FLAG…]
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


def link(command: str, library: Path, words: Sequence[str]) -> None:
    """Links objects; the library appears whole, or not at all.

    Raises:
        EmulatorError: a function is missing, or the linker failed.
    """
    unfinished = library.with_suffix(".unfinished")
    line = [command, "-shared", *FLAGS, "-o", str(unfinished), *words, *LIBRARIES]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
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
    library, command, *words = arguments
    try:
        link(command, Path(library), words)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
