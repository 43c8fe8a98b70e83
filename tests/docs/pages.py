"""Reads the Markdown of this repository: its code blocks, their marks, its links and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))

_BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Command:
    """One `$ ` line of a console block, and what the page says it prints."""

    text: str
    expected: list[str]
    line: int


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is the comment on the line before it, such as `file: scale.py`."""

    language: str
    text: str
    mark: str
    line: int

    @property
    def reason_not_run(self) -> str | None:
        return self.mark.removeprefix("not run:").strip() if self.mark.startswith("not run:") else None

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file:").strip() if self.mark.startswith("file:") else None

    def commands(self) -> list[Command]:
        commands: list[Command] = []
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            if line.startswith("$ "):
                commands.append(Command(line[2:], [], number))
            elif commands:
                commands[-1].expected.append(line)
            else:
                raise ValueError(f"line {number}: a console block begins with a command, not with {line!r}")
        return commands


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    text = read(page)
    return [
        Block(m["language"], m["text"], m["mark"] or "", text.count("\n", 0, m.start("text")))
        for m in _BLOCK.finditer(text)
    ]


def links(page: str) -> list[str]:
    """What the page links to inside this repository, `#heading` included."""
    prose = _BLOCK.sub("", read(page))
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def anchors(page: str) -> set[str]:
    """The headings of a page as links name them."""
    return anchors_in(read(page))


def anchors_in(text: str) -> set[str]:
    """The headings of Markdown as links name them."""
    prose = _BLOCK.sub("", text)
    headings = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
