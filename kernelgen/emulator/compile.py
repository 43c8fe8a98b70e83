"""Compiles a CUDA source for the emulated GPU: preprocesses it, rewrites it and compiles the result.

    python -m kernelgen.emulator.compile OBJECT SOURCE G++ HEADERS [FLAG…]

is what Ninja runs for each kernel of a project. It writes the object, and its dependencies to OBJECT.d.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from kernelgen.emulator.compiler import HERE, Compiler, EmulatorError, run
from kernelgen.emulator.precompiled import LOADED, Preprocessed, preprocess
from kernelgen.emulator.rewrite import rewrite
from kernelgen.emulator.unhooked import DUMP, unhooked_calls

# What an object follows from, beside the source, its headers and the flags.
RULES = [HERE / f"{name}.py" for name in ("compile", "compiler", "precompiled", "rewrite", "unhooked")]
# Of a kernel whose calls are all inlined: see keywords.h.
WHOLE = "__attribute__((flatten))"


def compile_kernel(
    compiler: Compiler, source: Path, target: Path, flags: Sequence[str], *, depends: bool = False
) -> None:
    """Compiles a .cu file.

    Args:
        flags: those that come after those of every kernel.
        depends: write the object's dependencies beside it.

    Raises:
        EmulatorError: the source cannot be compiled; the message holds the compiler's output.
    """
    source_text = preprocess(compiler, source, flags, target if depends else None)
    own = rewrite(source_text.own, source_text.toolkit)
    dump = target.with_suffix(".tsan")
    try:
        # Calls take g++ a third of the time that it takes to inline them all, as nvcc does.
        for text in (own.replace(WHOLE, ""), own):
            if not (unhooked := _compile(compiler, source_text, text, target, dump)):
                break
    finally:
        dump.unlink(missing_ok=True)
    for function in unhooked:
        print(
            f"{source}: {function} passes a struct from memory by value to a function that cannot be inlined: the "
            "emulated GPU does not check that read. Pass a reference.",
            file=sys.stderr,
        )


def _compile(compiler: Compiler, source: Preprocessed, own: str, target: Path, dump: Path) -> list[str]:
    """Compiles the source's own text, rewritten; returns the functions with reads that no hook sees."""
    rewritten = target.with_suffix(".ii")
    command = [*compiler.command_for_preprocessed(), f"{DUMP}={dump}", "-c", "-o", str(target), str(rewritten)]
    try:
        rewritten.write_text(f'{source.names}{LOADED}"{source.header}"\n{own}')
        try:
            run(command)
        except EmulatorError as error:
            if "PCH" not in str(error):
                raise
            # g++ loads a precompiled header at one address, which the system may not grant.
            rewritten.write_text(f"{source.names}{source.prelude}{own}")
            run(command)
    finally:
        rewritten.unlink(missing_ok=True)
    # g++ writes none for a source without functions.
    return unhooked_calls(dump.read_text(encoding="utf-8", errors="replace")) if dump.exists() else []


def main(arguments: Sequence[str]) -> int:
    target, source, command, headers, *flags = arguments
    try:
        compile_kernel(Compiler(command, Path(headers)), Path(source), Path(target), flags, depends=True)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
