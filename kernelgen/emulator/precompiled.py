"""The prelude, compiled once: what every CUDA source begins with, the toolkit's headers above all, takes g++ as long as
an ordinary kernel does.

The file is named for the prelude's text as the preprocessor left it, so macros that change it make another.
"""

import hashlib
import os
from pathlib import Path

from kernelgen.emulator.cache import cache_folder, remove_unused
from kernelgen.emulator.compiler import Compiler, run
from kernelgen.emulator.lock import locked
from kernelgen.emulator.rewrite import rewrite

# What the preprocessor writes before and after the files that the command line includes.
BEGIN, END = '# 0 "<built-in>"\n', '"<command-line>" 2\n'


def split(text: str) -> tuple[str, str, str]:
    """Of a preprocessed source the lines that name it and its folder, the prelude, and the rest."""
    begin, end = text.index(BEGIN), text.rindex(END) + len(END)
    return text[:begin], text[begin:end], text[end:]


def precompiled(compiler: Compiler, prelude: str) -> Path:
    """The precompiled header of a prelude, from the cache or new.

    Raises:
        EmulatorError: it cannot be compiled; the message holds the compiler's output.
    """
    command = [*compiler.command_for_preprocessed(), "-x", "c++-header"]
    version = run([compiler.command, "-dumpfullversion"])
    digest = hashlib.sha256(f"{command} {version} {prelude}".encode()).hexdigest()[:20]
    folder = cache_folder() / f"prelude-{digest}"
    header = folder / "prelude.gch"
    with locked(folder.with_suffix(".lock"), quietly=True):
        if not header.exists():
            folder.mkdir(exist_ok=True)
            remove_unused(folder.parent)
            text, unfinished = folder / "prelude.h", header.with_suffix(".unfinished")
            text.write_text(rewrite(prelude))
            run([*command, "-o", str(unfinished), str(text)])
            unfinished.rename(header)
        os.utime(folder)
    return header
