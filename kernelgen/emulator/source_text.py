"""Preprocessed C++ as text: its brackets, literals and line markers."""

import re

CLOSING = {"(": ")", "[": "]", "{": "}"}
OPENING = {closing: opening for opening, closing in CLOSING.items()}
# A string, raw or not, or a character; not the separator in 1'000.
LITERAL = re.compile(
    r'(?:\b(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=mark)")'
    r'|"(?:[^"\\]|\\.)*"'
    r"|(?<![\w'])'(?:[^'\\\n]|\\.)+'"
)
RAW_STRING = re.compile(r'R"([^()\s\\]{0,16})\((.*?)\)\1"', re.DOTALL)
MARKER = re.compile(r'^# \d+ "(.*)"(.*)$', re.MULTILINE)


def closing_bracket(text: str, opening: int) -> int:
    """The index of the bracket that closes the one at index `opening`."""
    stack: list[str] = []
    index = opening
    while True:
        if text[index] in "\"'RuUL" and (literal := LITERAL.match(text, index)):
            index = literal.end()
            continue
        character = text[index]
        if character in CLOSING:
            stack.append(CLOSING[character])
        elif stack and character == stack[-1]:
            stack.pop()
            if not stack:
                return index
        index += 1


def split(text: str, separator: str) -> list[str]:
    """Splits at a character outside brackets and strings."""
    parts, begin, index = [], 0, 0
    while index < len(text):
        if text[index] in "\"'RuUL" and (literal := LITERAL.match(text, index)):
            index = literal.end()
        elif text[index] in CLOSING:
            index = closing_bracket(text, index) + 1
        else:
            if text[index] == separator:
                parts.append(text[begin:index])
                begin = index + 1
            index += 1
    return [*parts, text[begin:]]


def on_one_line(text: str) -> str:
    """The text without line markers; raw strings become ordinary ones."""
    return " ".join(RAW_STRING.sub(_ordinary_string, MARKER.sub("", text)).split())


def _ordinary_string(match: re.Match[str]) -> str:
    return '"' + match[2].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def error_line(message: str) -> str:
    """What stands for text that cannot be rewritten: the compiler says why, at its line."""
    return f'_Pragma("GCC error \\"the emulated GPU: {message}\\"")'
