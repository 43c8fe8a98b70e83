"""The forms of instructions that the emulated GPU knows, as device/ptx_forms.cpp lists them."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelgen.emulator.compiler import DEVICE

_FURTHER = ("L2::cache_hint", "multicast::cluster")  # Qualifiers that add an operand.


@dataclass(frozen=True)
class Form:
    text: str
    operands: int  # The least number, without those that qualifiers add.
    most: int
    capability: int

    @functools.cache  # noqa: B019 - there are few, for the whole run.
    def words(self) -> list[tuple[list[str], bool]]:
        """The alternatives of each word of the name, and whether it is optional."""
        lists = dict(_lists())
        words = []
        for word in self.text.split():
            alternatives: list[str] = []
            for alternative in word.removesuffix("?").split("|"):
                alternatives += lists.get(alternative, alternative).split("|")
            plain = [alternative.split("@")[0].replace("#", "64") for alternative in alternatives]
            words.append((plain, word.endswith("?")))
        return words

    @property
    def shortest(self) -> list[str]:
        """The parts of the name without what is optional."""
        return [alternatives[0] for alternatives, is_optional in self.words() if not is_optional]

    @property
    def longest(self) -> list[str]:
        return [alternatives[0] for alternatives, _ in self.words()]

    def spellings(self) -> Iterator[list[str]]:
        """Names that have each alternative of each word."""
        yield self.shortest
        for place, (alternatives, _) in enumerate(self.words()):
            for alternative in alternatives:
                yield [*self.longest[:place], alternative, *self.longest[place + 1 :]]


def further_operands(parts: list[str]) -> int:
    return sum(part in _FURTHER for part in parts)


@functools.cache
def _text() -> str:
    text = (DEVICE / "ptx_forms.cpp").read_text()
    return re.sub(r'"\s*\n\s*"', "", re.sub(r"//.*", "", text))


@functools.cache
def _lists() -> list[tuple[str, str]]:
    return re.findall(r'\{"(<\w+>)", "([^"]+)"\}', _text())


def forms() -> list[Form]:
    listed = re.findall(r'\{"([a-z][^"]*)",\s*(\w+),\s*(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?\}', _text())
    return [
        Form(text, int(least), int(most or least), int(capability or 0)) for text, _, least, most, capability in listed
    ]
