"""`kernelgen help`: the pages of documentation, which travel inside the package."""

import re
import sys
from pathlib import Path

from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError, UsageError

_PACKAGE = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
# Marks of the tests that run the pages' commands; they are no part of the text.
_MARK = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)


def run(arguments: list[str]) -> int:
    parser = Parser("help", "Print a page of documentation, or list them.")
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="the page; without it, the pages are listed")
    parser.add_argument("--path", action="store_true", help="print where the page's file is instead")
    options = parser.parse_args(arguments)

    files = pages(_folder())
    if options.topic is None:
        print(_folder() if options.path else _listing(files))
        return 0
    if options.topic not in files:
        return _other(options.topic, files)
    file = files[options.topic]
    if options.path:
        print(file)
    else:
        _print_page(_MARK.sub("", file.read_text(encoding="utf-8")))
    return 0


def pages(folder: Path) -> dict[str, Path]:
    """Each page's file, by the topic that names it."""
    return {file.stem: file for file in sorted(folder.glob("*.md"))}


def _folder() -> Path:
    """A wheel carries the pages inside the package; a checkout has them beside it.

    Raises:
        KernelgenError: the installation is damaged.
    """
    packed, beside = _PACKAGE / "_docs", _PACKAGE.parent / "docs"
    folder = packed if packed.is_dir() else beside
    if not (folder / "commands.md").is_file():
        raise KernelgenError(f"kernelgen's pages are missing from {folder}; reinstall kernelgen.")
    return folder


def _listing(files: dict[str, Path]) -> str:
    width = max(map(len, files))
    lines = [f"  {topic:{width}}  {_title(file)}" for topic, file in files.items()]
    return "\n".join(["Pages, for `kernelgen help TOPIC`:", "", *lines])


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as text:
        return text.readline().removeprefix("#").strip()


def _other(topic: str, files: dict[str, Path]) -> int:
    """A verb's own help, which `git help VERB` has taught people to ask for in this way."""
    from importlib import import_module

    from kernelgen.cli import VERBS
    from kernelgen.scaffold.names import did_you_mean

    if topic in VERBS:
        return import_module(VERBS[topic][1]).run(["--help"])
    raise UsageError(f"There is no page {topic!r}. {did_you_mean(topic, files)} `kernelgen help` lists the pages.")


def _print_page(text: str) -> None:
    """Formatted on a terminal; as it is written where a program reads."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    # A link to a file beside this one leads nowhere from a terminal.
    Console().print(Markdown(_LINK.sub(r"\1", text)))
