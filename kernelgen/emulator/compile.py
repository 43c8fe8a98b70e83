"""Compiles a CUDA source for the emulated GPU: preprocesses it, rewrites it and compiles the result.

    python -m kernelgen.emulator.compile OBJECT SOURCE G++ HEADERS [FLAG…] [--instance FLAG…]…

is what Ninja runs for each kernel of a project. It writes the object, and its dependencies to OBJECT.d. The flags after
--instance are those of an instantiation; the object holds them all.
"""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelgen.emulator.compiler import HERE, Compiler, EmulatorError, run
from kernelgen.emulator.instances import checked, repeated
from kernelgen.emulator.precompiled import LOADED, Preprocessed, escaped, preprocess
from kernelgen.emulator.rewrite import rewrite
from kernelgen.emulator.unhooked import DUMP, unhooked_calls

# What an object follows from, beside the source, its headers and the flags.
MODULES = ("assembly", "compile", "compiler", "instances", "precompiled", "rewrite", "source_text", "unhooked")
RULES = [HERE / f"{name}.py" for name in MODULES]
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
    _compile_text(compiler, source, preprocess(compiler, source, flags, target if depends else None), target)


def compile_instances(
    compiler: Compiler, source: Path, target: Path, flags: Sequence[str], instances: Sequence[Sequence[str]]
) -> None:
    """Compiles a .cu file for several instances into one object, and writes its dependencies beside it.

    Args:
        instances: the flags of each, beside those of all.

    Raises:
        EmulatorError: the source cannot be compiled; the message holds the compiler's output.
    """
    text = _preprocess_instances(compiler, source, target, flags, instances)
    if text:
        _compile_text(compiler, source, text, target)
        return
    parts = [target.with_suffix(f".{index}.o") for index in range(len(instances))]
    for part, instance in zip(parts, instances, strict=True):
        compile_kernel(compiler, source, part, [*flags, *instance], depends=True)
    run([compiler.command, "-r", "-nostdlib", "-o", str(target), *map(str, parts)])
    rules = [Path(f"{part}.d").read_text().replace(escaped(str(part)), escaped(str(target))) for part in parts]
    Path(f"{target}.d").write_text("".join(rules))
    for part in parts:
        part.unlink()
        Path(f"{part}.d").unlink()


def _preprocess_instances(
    compiler: Compiler, source: Path, target: Path, flags: Sequence[str], instances: Sequence[Sequence[str]]
) -> Preprocessed | None:
    """The source with its end for every instance; None where it has to be compiled for each by itself."""
    text = repeated(source.read_text(encoding="utf-8"), str(source), instances)
    if text is None:
        return None
    copy = target.with_suffix(".cu")
    copy.write_text(text)
    try:
        preprocessed = preprocess(compiler, copy, ["-iquote", str(source.parent), *flags], target)
    finally:
        copy.unlink()
    depends = Path(f"{target}.d")
    depends.write_text(depends.read_text().replace(escaped(str(copy)), escaped(str(source))))
    own = checked(preprocessed.own)
    if own is None:
        return None
    names = [text.replace(f'"{copy}"', f'"{source}"') for text in (preprocessed.names, own)]
    return replace(preprocessed, names=names[0], own=names[1])


def _compile_text(compiler: Compiler, source: Path, source_text: Preprocessed, target: Path) -> None:
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
    target, source, command, headers, *rest = arguments
    compiler = Compiler(command, Path(headers))
    flags, *instances = [
        list(words) for is_mark, words in itertools.groupby(["--instance", *rest], "--instance".__eq__) if not is_mark
    ]
    try:
        if instances:
            compile_instances(compiler, Path(source), Path(target), flags, instances)
        else:
            compile_kernel(compiler, Path(source), Path(target), flags, depends=True)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
