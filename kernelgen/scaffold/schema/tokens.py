"""The tokens of an operator schema, and its string literals."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelgen.scaffold.schema.errors import SchemaError


@dataclass(frozen=True)
class Token:
    """`kind` is name, number, string, end or, for punctuation, the punctuation itself; `offset` counts characters."""

    kind: str
    text: str
    offset: int


# PyTorch reads schemas with TorchScript's lexer: comments, a backslash that joins lines, three-quoted strings.
_TOKEN = re.compile(
    r"""
      (?P<space> (?: \s | \#[^\n]* | \\\n )+ )
    | (?P<hex> 0[xX][0-9a-fA-F]+ (?: \.[0-9a-fA-F]* )? (?: [pP][+-]?\d+ )? )
    | (?P<complex> (?: \d+\.?\d* | \.\d+ ) (?: [eE][+-]?\d+ )? j )
    | (?P<number> (?: \d+\.?\d* | \.\d+ ) (?: [eE][+-]?\d+ )? )
    | (?P<string> \"{3} (?: \\. | [^\\] )*? \"{3} | '{3} (?: \\. | [^\\] )*? '{3}
                | " (?: \\. | [^"\\\n] )* " | ' (?: \\. | [^'\\\n] )* ' )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark> -> | \.\.\. | [()\[\]?!*,=|-] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_REFUSED_LITERALS = {
    "hex": "PyTorch reads the hexadecimal number {} wrong without saying so; write it in decimal.",
    "complex": "The complex number {} has no place in a schema here; pass two floats.",
}


def tokenize(text: str) -> list[Token]:
    """Cut `text` into tokens, the last of kind `end`.

    Raises SchemaError at the first character that begins no token.
    """
    tokens, offset = [], 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise SchemaError(_stray(text[offset]), text, offset)
        kind, word = match.lastgroup, match.group()
        if kind in _REFUSED_LITERALS:
            raise SchemaError(_REFUSED_LITERALS[kind].format(word), text, offset)
        if kind != "space":
            tokens.append(Token(word if kind == "mark" else kind, word, offset))
        offset = match.end()
    tokens.append(Token("end", "", len(text.rstrip())))
    return tokens


def _stray(character: str) -> str:
    if character in "\"'":
        return "This string is not closed."
    return f"A schema cannot hold the character {character!r} here."


_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "\\": 92, "'": 39, '"': 34, "\n": 10}


def unquote(literal: str) -> str:
    r"""The text that a string literal of a schema stands for.

    The escapes are those of PyTorch's parser: \a \b \t \n \v \f \\ \' \" and \ooo, an octal byte of UTF-8.
    Raises ValueError, whose message is a sentence, for any other.
    """
    quotes = 3 if literal[:3] in ('"""', "'''") else 1
    body = literal[quotes:-quotes]
    data, offset = bytearray(), 0
    for match in re.finditer(r"\\([0-7]{3}|.)", body, re.DOTALL):
        data += body[offset : match.start()].encode("utf-8", "strict")
        code = match.group(1)
        value = int(code, 8) if len(code) == 3 else _ESCAPES.get(code, 256)
        if value > 255:
            raise ValueError(f"PyTorch's schema parser does not know the escape \\{code}.")
        data.append(value)
        offset = match.end()
    data += body[offset:].encode("utf-8", "strict")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("The octal escapes of this string are not UTF-8.") from None


def quote(value: str) -> str:
    """The string literal that PyTorch's schema parser reads back as `value`."""
    escapes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"'}

    def escape(c: str) -> str:
        return escapes.get(c) or (f"\\{ord(c):03o}" if ord(c) < 32 or ord(c) == 127 else c)

    return '"' + "".join(map(escape, value)) + '"'
