"""Headers, compiled once: the prelude that every CUDA source begins with takes g++ as long as an ordinary kernel does,
and PyTorch's headers take it half as long as an op's glue does.

The prelude is kept in two forms. One has what rewriting made of its text, and is what the compiler loads; its folder is
named for the text as the preprocessor left it, so macros that change it make another. The other has its macros, and
spares the preprocessor the text; g++ does without it where a macro of the source's flags would change it.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.emulator.cache import cache_folder, kept, remove_unused, states
from kernelgen.emulator.compiler import DEVICE, Compiler, run
from kernelgen.emulator.lock import locked
from kernelgen.emulator.rewrite import rewrite, toolkit_of

# What the preprocessor writes before and after the files that the command line includes.
BEGIN, END = '# 0 "<built-in>"\n', '"<command-line>" 2\n'
# What it writes where it took the macros' form.
LOADED = "#pragma GCC pch_preprocess "
# Flags that say which GPU a source is for, and with that what the prelude is.
OF_ARCHITECTURE = "-DEMULATED_", "-D__CUDA_"
# What the glue of ops includes, apart from headers of the project.
GLUE_HEADERS = (
    *("cuda_runtime_api.h", "torch/csrc/stable/accelerator.h", "torch/csrc/stable/library.h"),
    *("torch/csrc/stable/macros.h", "torch/csrc/stable/ops.h", "torch/csrc/stable/tensor.h"),
    *("algorithm", "cmath", "optional", "string", "tuple", "type_traits", "vector"),
)


@dataclass(frozen=True)
class Preprocessed:
    """A source as the preprocessor left it: the lines that name it, the prelude, compiled, and what is its own."""

    names: str
    header: Path
    own: str
    toolkit: str | None  # The folder of the toolkit's headers.

    @property
    def prelude(self) -> str:
        """The prelude's text, rewritten."""
        return self.header.with_suffix(".h").read_text()


def preprocess(compiler: Compiler, source: Path, flags: Sequence[str], target: Path | None = None) -> Preprocessed:
    """Preprocesses a .cu file; writes the dependencies of the object `target` beside it.

    Raises:
        EmulatorError: g++ refuses the source; the message holds its output.
    """
    macros = _Macros.of(compiler, flags)
    command = [compiler.command, *compiler.kernel_flags(), *flags, *compiler.preprocessor_flags(macros.source)]
    depends = ["-MD", "-MF", f"{target}.d", "-MT", str(target)] if target else []
    names, prelude, own = split(run([*command, *depends, str(source)]))
    if LOADED not in prelude:
        return Preprocessed(names, precompiled(compiler, prelude), own, toolkit_of(prelude))
    if target:
        with Path(f"{target}.d").open("a") as file:
            file.write("".join(f"{target}: {path}\n" for path in macros.escaped_inputs()))
    os.utime(macros.header.parent)
    return Preprocessed(names, macros.header, own, macros.toolkit)


def split(text: str) -> tuple[str, str, str]:
    """Of a preprocessed source the lines that name it and its folder, the prelude, and the rest."""
    begin, end = text.index(BEGIN), text.rindex(END) + len(END)
    if text.startswith(LOADED, end):
        end = text.index("\n", end) + 1
    return text[:begin], text[begin:end], text[end:]


def precompiled(compiler: Compiler, prelude: str) -> Path:
    """The precompiled header of a prelude, from the cache or new. Its text, rewritten, is in prelude.h beside it.

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
            text = folder / "prelude.h"
            text.write_text(rewrite(prelude))
            _precompile(command, text, header)
        os.utime(folder)
    return header


def _precompile(command: Sequence[str], text: Path, header: Path) -> None:
    unfinished = header.with_suffix(".unfinished")
    run([*command, "-o", str(unfinished), str(text)])
    unfinished.rename(header)


def glue_header(command: Sequence[str]) -> Path:
    """A header for `-include`, with its precompiled form beside it: what the glue of ops includes of PyTorch and C++.

    A dependency file does not name the files that it is made of, so objects depend on the precompiled form, which is a
    new one when one of those has changed.

    Args:
        command: the compiler and the flags of all glue. Where a source's own flags change what the header means, g++
            reads its text.

    Raises:
        EmulatorError: it cannot be compiled; the message holds the compiler's output.
    """

    def make(folder: Path) -> dict[str, Any]:
        text = folder / "glue.h"
        text.write_text("".join(f"#include <{name}>\n" for name in GLUE_HEADERS))
        return {"inputs": _precompile_from_files(command, text)}

    folder, _ = kept("glue", [*command, *GLUE_HEADERS], make)
    return folder / "glue.h"


def _precompile_from_files(command: Sequence[str], source: Path) -> dict[str, list[int]]:
    """Writes the precompiled form of a header beside it; returns the files that it is made of, with their states."""
    depends = source.with_suffix(".d")
    _precompile([*command, "-MD", "-MF", str(depends), "-x", "c++-header"], source, Path(f"{source}.gch"))
    return states([*_names(depends.read_text()), shutil.which(command[0]) or command[0]])


@dataclass(frozen=True)
class _Macros:
    """The prelude's macros, compiled."""

    source: Path  # The prelude's name for the preprocessor, which looks for the compiled form beside it.
    header: Path  # The other form.
    toolkit: str | None
    inputs: Mapping[str, Sequence[int]]  # The files that it is made of, with their sizes and times in ns.

    @classmethod
    def of(cls, compiler: Compiler, flags: Sequence[str]) -> "_Macros":
        """Those for a source's flags, from the cache or new."""
        own = [flag for flag in flags if flag.startswith(OF_ARCHITECTURE)]
        command = [compiler.command, *compiler.kernel_flags(), *own]
        folder, facts = kept("macros", command, lambda folder: cls._make(compiler, command, folder))
        return cls(folder / "prelude.h", Path(facts["header"]), facts["toolkit"], facts["inputs"])

    @staticmethod
    def _make(compiler: Compiler, command: Sequence[str], folder: Path) -> dict[str, Any]:
        source, empty = folder / "prelude.h", folder / "empty.cu"
        source.write_text(f'#include "{DEVICE}/prelude.h"\n')
        empty.write_text("")
        _, prelude, _ = split(run([*command, *compiler.preprocessor_flags(source), str(empty)]))
        header = precompiled(compiler, prelude)
        inputs = _precompile_from_files(command, source)
        return {"header": str(header), "toolkit": toolkit_of(prelude), "inputs": inputs}

    def escaped_inputs(self) -> list[str]:
        """The names as a dependency file spells them."""
        return [escaped(path) for path in self.inputs]


def escaped(path: str) -> str:
    """A path as a dependency file spells it."""
    return path.replace("\\", "\\\\").replace(" ", "\\ ").replace("$", "$$")


def _names(dependencies: str) -> list[str]:
    """The files that a rule of make names after its target."""
    words = dependencies.replace("\\\n", " ").partition(":")[2].replace("\\ ", "\0").split()
    return [word.replace("\0", " ").replace("$$", "$") for word in words]
