"""The error that points at a place in a schema."""

from __future__ import annotations

import re

from kernelgen.errors import UsageError


class SchemaError(UsageError):
    """A schema that cannot be used: one sentence, then the faulty line with a caret under the place.

    `sentence` is the first line alone; `offset` counts characters of the text that was parsed.
    """

    def __init__(self, sentence: str, text: str, offset: int) -> None:
        self.sentence, self.text, self.offset = sentence, text, offset
        super().__init__(f"{sentence}\n{line_with_caret(text, offset)}")


def line_with_caret(text: str, offset: int) -> str:
    """The line of `text` around `offset`, indented by two, and below it a caret under that character."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[start : end if end >= 0 else len(text)]
    # Tabs stay tabs, so that the caret lines up wherever the terminal puts them.
    padding = re.sub(r"[^\t]", " ", line[: offset - start])
    return f"  {line}\n  {padding}^"
