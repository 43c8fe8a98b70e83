"""Instantiations of a source that are compiled together.

nvcc makes an object of each, side by side. g++ takes longer over what they share, headers and templates, than over what
is an instance's own. So where a source ends with explicit instantiations, and INSTANCE_T and its like are nowhere else,
the compiler gets its text once, with the end repeated for each instance.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgen.cores import usable_cores

# With more cores than this per object of a source, a build is faster than its compilers are cheap.
CORES_PER_OBJECT = 4

MENTION = re.compile(r"\bINSTANCE_\w+")
DEFINITION = re.compile(r"-D(INSTANCE_\w+)(?:=(.*))?")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
# The first line of an instantiation that another object holds.
DECLARATION = re.compile(r"\s*extern\s+template\b")
# The first line of the repeated end, and all that may be repeated once it is preprocessed.
FIRST_LINE = re.compile(r"\s*(?:template\b(?!\s*<)|#\s*define\b)")
INSTANTIATION = re.compile(r"\s*(?:extern\s+)?template\b(?!\s*<)[^{}]*")
# A variable on the device: each object has its own.
DEVICE_VARIABLE = re.compile(r"__constant__|__managed__|__device__[^(){};=\[]*[{;=\[]")
# What stands before and after each repetition; no name of a source.
BEGIN, END = "#pragma emulated_instance begin", "#pragma emulated_instance end"
REPETITION = re.compile(rf"^{BEGIN}$(.*?)^{END}$", re.MULTILINE | re.DOTALL)
LINE_MARKER = re.compile(r"^#.*$", re.MULTILINE)


@dataclass(frozen=True)
class Object:
    """An object of a project's library: a source with its flags, and for kernels the flags of each instance in it."""

    path: str
    source: str
    label: str
    is_kernel: bool
    flags: Sequence[str]
    instances: Sequence[Sequence[str]] = ()


def objects(files: Iterable[Mapping[str, Any]], root: Path, folders: Sequence[str]) -> Iterator[Object]:
    """The objects for the files of a build, one an instance, that build_tools names; `folders` hold the project's
    headers. Paths are relative to `root`."""
    for (source, is_kernel), group in itertools.groupby(files, lambda file: (file["source"], file["is_kernel"])):
        parts = list(group)
        shared, instances = zip(*(_parted(file["flags"]) for file in parts), strict=True)
        is_joined = len(parts) > 1 and all(flags == shared[0] for flags in shared)
        if is_joined and _may_join(root / source, [root / folder for folder in (*folders, *_folders(shared[0]))]):
            yield from _joined(source, parts, shared[0], instances)
        else:
            for file in parts:
                yield Object(file["path"], source, file["label"], is_kernel, file["flags"])


def _joined(
    source: str, parts: Sequence[Mapping[str, Any]], flags: Sequence[str], instances: Sequence[Sequence[str]]
) -> Iterator[Object]:
    count = max(1, min(len(parts), usable_cores() // CORES_PER_OBJECT))
    for index in range(count):
        chosen = slice(len(parts) * index // count, len(parts) * (index + 1) // count)
        number = f".{index}" if count > 1 else ""
        path = Path(parts[0]["path"]).with_name(f"{Path(source).name}{number}.o")
        label = f"{source} ({len(parts[chosen])} instantiations)"
        yield Object(str(path), source, label, True, flags, instances[chosen])


def _parted(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags that instances share, and those that name one."""
    own = [flag for flag in flags if DEFINITION.fullmatch(flag)]
    return [flag for flag in flags if flag not in own], own


def _folders(flags: Sequence[str]) -> list[str]:
    return [flag.removeprefix("-I") for flag in flags if flag.startswith("-I")]


def _may_join(source: Path, folders: Sequence[Path]) -> bool:
    """Whether a source seems to end with its instantiations, and no header of the project mentions an instance."""
    text = source.read_text(encoding="utf-8")
    return repeated(text, str(source), []) is not None and not _headers_mention(source, text, folders)


def _headers_mention(source: Path, text: str, folders: Sequence[Path]) -> bool:
    seen = {source}
    waiting = [(source, text)]
    while waiting:
        path, text = waiting.pop()
        for name in INCLUDE.findall(text):
            header = next((folder / name for folder in (path.parent, *folders) if (folder / name).is_file()), None)
            if header is None or header in seen:
                continue
            seen.add(header)
            content = header.read_text(encoding="utf-8", errors="replace")
            if MENTION.search(content):
                return True
            waiting.append((header, content))
    return False


def repeated(text: str, name: str, instances: Sequence[Sequence[str]]) -> str | None:
    """A source's text with what mentions an instance for each instance in turn: its end, and before it declarations of
    instantiations that other objects hold.

    Args:
        text, name: of the source; lines keep their numbers and that name.
        instances: the flags of each, such as ["-DINSTANCE_T=float32"].

    Returns:
        None if the source does not end with explicit instantiations, or has variables on the device.
    """
    lines = text.split("\n")
    mentions = [i for i, line in enumerate(lines) if MENTION.search(line) and not line.lstrip().startswith("//")]
    if not mentions or DEVICE_VARIABLE.search(text):
        return None
    parts, done = [f'# 1 "{name}"'], 0
    for mention in mentions:
        if mention < done:
            continue
        begin, end = _statement_begin(lines, mention), _last_statement_end(lines)
        if DECLARATION.match(lines[begin]):
            end = next(i for i in range(mention, len(lines)) if lines[i].rstrip().endswith(";")) + 1
        elif not FIRST_LINE.match(lines[begin]):
            return None
        parts += lines[done:begin]
        for instance in instances:
            parts += _for_instance(instance, [f'# {begin + 1} "{name}"', *lines[begin:end]])
        parts.append(f'# {end + 1} "{name}"')
        done = end
    return "\n".join([*parts, *lines[done:]])


def _for_instance(flags: Sequence[str], lines: Sequence[str]) -> list[str]:
    macros = [match.groups() for flag in flags if (match := DEFINITION.fullmatch(flag))]
    before = [
        line
        for macro, value in macros
        for line in (f"#undef {macro}", f"#define {macro} {'1' if value is None else value}")
    ]
    return [*before, BEGIN, *lines, END, *(f"#undef {macro}" for macro, _ in macros)]


def _statement_begin(lines: Sequence[str], index: int) -> int:
    """The first line of the statement or directive that a line is part of."""
    while index:
        before = lines[index - 1].strip()
        is_part = before.endswith("\\") or not (before.endswith((";", "{", "}")) or before.startswith(("#", "//")))
        if not before or not is_part:
            break
        index -= 1
    return index


def _last_statement_end(lines: Sequence[str]) -> int:
    """The line after the last that does more than close a namespace."""
    end = len(lines)
    while end and (not lines[end - 1].strip() or lines[end - 1].startswith("}")):
        end -= 1
    return end


def checked(preprocessed: str) -> str | None:
    """What the preprocessor made of a repeated text, without its marks; None if not only instantiations were repeated,
    or a header mentions an instance."""
    for repetition in REPETITION.findall(preprocessed):
        statements = LINE_MARKER.sub("", repetition).split(";")
        if not all(INSTANTIATION.fullmatch(statement) for statement in statements[:-1]) or statements[-1].strip():
            return None
    if MENTION.search(preprocessed):
        return None
    # The lines' number is kept by the marker that follows.
    return preprocessed.replace(f"{BEGIN}\n", "").replace(f"{END}\n", "")
