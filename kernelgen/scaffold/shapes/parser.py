"""Reads shapes, such as `q: B S H D; cos, sin: S D/2 float32 -> B S H D`, against the schema whose tensors they are of.

shapes    := arguments ["->" results]
arguments := what of some tensors, or a condition, with ";" between them
of some   := NAME {"," NAME} ":" what             in results NAMEs name results; without them, "," separates results
what      := [dims] [dtype] ["<" size]            "<" bounds whole numbers, such as indices
dims      := "()" | ["..."] {size}                "..." is any leading dimensions, the same wherever it stands
dtype     := "float" | "int" | "float32" | …      float and int: one dtype for all that say so, of any width
condition := NAME (">=" | "<=") size
size      := sums, products and quotients of names and whole numbers; a/b leaves no remainder, a//b is rounded down
"""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.errors import line_with_caret
from kernelgen.scaffold.schema.identifiers import CPP_WORDS
from kernelgen.scaffold.schema.model import Argument, Schema
from kernelgen.scaffold.shapes.dtypes import CLASSES, ELEMENTS
from kernelgen.scaffold.shapes.expressions import Size, named, number, operation

_TOKEN = re.compile(r"\s+|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+)|(?P<mark>->|\.\.\.|\(\)|>=|<=|//|[-+*/();:,<])")
_SIZE_STARTS = ("name", "number", "(")
_DTYPES = (*CLASSES, *ELEMENTS)
# The largest number that a size may be written as.
_LARGEST = 2**31
# What the stamped sources call things.
_USED = {"leading", "sizes", "check", "first", "make", "case", "self", "dtype", "row", "rows", "lane"}


class ShapesError(UsageError):
    """Shapes that cannot be used: one sentence, then the line with a caret under the place."""

    def __init__(self, sentence: str, text: str, offset: int) -> None:
        self.sentence, self.text, self.offset = sentence, text, offset
        super().__init__(f"{sentence}\n{line_with_caret(text, offset)}")


@dataclass(frozen=True)
class Shape:
    """What is said of a tensor: its dimensions, after any leading ones; its dtype; and a bound of its whole numbers.

    `offset` is where in the text its dimensions begin, `offsets` where each of them does.
    """

    dims: tuple[Size, ...]
    leading: bool = False
    dtype: str = "float"
    below: Size | None = None
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join(["..."] * self.leading + [str(dim) for dim in self.dims]) or "()"


@dataclass(frozen=True)
class Condition:
    """`left` is at least (>=) or at most (<=) `right`."""

    left: str
    symbol: str
    right: Size

    def __str__(self) -> str:
        return f"{self.left} {self.symbol} {self.right}"


@dataclass(frozen=True)
class Shapes:
    """The shape of each tensor argument, by name, and of each result; `text` is their canonical spelling."""

    schema: Schema
    arguments: dict[str, Shape]
    results: tuple[Shape, ...]
    conditions: tuple[Condition, ...] = ()
    source: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        groups: dict[str, list[str]] = {}
        for name, shape in self.arguments.items():
            groups.setdefault(_what(shape), []).append(name)
        parts = [f"{', '.join(names)}: {what}" for what, names in groups.items()] + list(map(str, self.conditions))
        results = [_what(shape) for shape in self.results]
        if any(result.name for result in self.schema.returns):
            results = [f"{named.name}: {what}" for named, what in zip(self.schema.returns, results, strict=True)]
        separator = "; " if any(":" in result for result in results) else ", "
        return "; ".join(parts) + (f" -> {separator.join(results)}" if results else "")

    @property
    def shapes(self) -> list[Shape]:
        return [*self.arguments.values(), *self.results]

    def error(self, sentence: str, offset: int = 0) -> ShapesError:
        return ShapesError(sentence, self.source or self.text, offset)


def _what(shape: Shape) -> str:
    dtype = "" if shape.dtype == "float" else f" {shape.dtype}"
    return f"{shape}{dtype}" + (f" < {shape.below}" if shape.below else "")


def parse(text: str, schema: Schema) -> Shapes:
    """The shapes that `text` gives to every tensor of the schema. Results that the schema does not name are named here.

    Raises ShapesError: one sentence, then the line with a caret under the place.
    """
    return _Parser(text, schema).shapes()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    offset: int


@dataclass
class _Said:
    """What was said of a tensor so far."""

    dims: tuple[Size, ...] | None = None
    leading: bool = False
    dtype: str = ""
    below: Size | None = None
    offsets: tuple[int, ...] = ()


class _Parser:
    def __init__(self, text: str, schema: Schema) -> None:
        self.text, self.schema = text, schema
        self.tokens = self.tokenized()
        self.position = 0
        self.arguments = {a.name: _Said() for a in schema.arguments if a.type.is_tensor}
        self.scalars = {a.name for a in schema.arguments if is_size(a)}
        self.conditions: list[tuple[Condition, _Token]] = []
        self.results: list[tuple[str, _Said, _Token]] = []

    def error(self, sentence: str, token: _Token | None = None) -> ShapesError:
        return ShapesError(sentence, self.text, (token or self.token).offset)

    def tokenized(self) -> list[_Token]:
        tokens, offset = [], 0
        while offset < len(self.text):
            match = _TOKEN.match(self.text, offset)
            if match is None:
                sentence = f"Shapes cannot hold the character {self.text[offset]!r}."
                raise ShapesError(sentence, self.text, offset)
            if match.lastgroup:
                kind = match.group() if match.lastgroup == "mark" else match.lastgroup
                tokens.append(_Token(kind, match.group(), offset))
            offset = match.end()
        return [*tokens, _Token("end", "the end", len(self.text.rstrip()))]

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def take(self, *kinds: str) -> _Token | None:
        if self.token.kind not in kinds:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def peek(self, *kinds: str) -> bool:
        """Whether tokens of these kinds follow."""
        return tuple(token.kind for token in self.tokens[self.position : self.position + len(kinds)]) == kinds

    def names_follow(self) -> bool:
        """Whether names and a colon follow."""
        ahead = self.position
        while [token.kind for token in self.tokens[ahead : ahead + 2]] == ["name", ","]:
            ahead += 2
        return [token.kind for token in self.tokens[ahead : ahead + 2]] == ["name", ":"]

    # ---- The whole

    def shapes(self) -> Shapes:
        while self.token.kind not in ("->", "end"):
            if self.names_follow():
                self.group()
            elif self.peek("name", ">=") or self.peek("name", "<="):
                self.condition()
            else:
                raise self.error(f"Expected the name of a tensor and ':', as in `{self.example()}`.")
            if not self.take(";") and self.token.kind not in ("->", "end"):
                raise self.error(f"Expected ';' or '->', not {self.token.text}.")
        if self.take("->"):
            self.result_groups()
        if self.token.kind != "end":
            raise self.error(f"Expected the end of the shapes, not {self.token.text}.")
        return self.checked()

    def example(self) -> str:
        return f"{next(iter(self.arguments), 'x')}: ... D"

    def group(self) -> None:
        tokens = self.name_list()
        what = self.what()
        for token in tokens:
            if token.text not in self.arguments:
                raise self.error(self.no_tensor(token.text), token)
            self.merge(self.arguments[token.text], what, token)

    def no_tensor(self, name: str) -> str:
        if any(argument.name == name for argument in self.schema.arguments):
            return f"{name} is no tensor, and has no shape."
        close = difflib.get_close_matches(name, self.arguments, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the tensors are {', '.join(self.arguments) or 'none'}."
        return f"There is no argument {name}; {hint}"

    def name_list(self) -> list[_Token]:
        tokens = [self.take("name")]
        while self.take(","):
            tokens.append(self.take("name"))
        self.take(":")
        return tokens

    def result_groups(self) -> None:
        while self.token.kind != "end":
            start = self.token
            tokens = self.name_list() if self.names_follow() else None
            what = self.what()
            for token in tokens or [None]:
                self.results.append((token.text if token else "", what, token or start))
            if not self.take(";", ","):
                break

    def condition(self) -> None:
        start = self.take("name")
        symbol = self.take(">=", "<=")
        self.conditions.append((Condition(start.text, symbol.kind, self.size()), start))

    # ---- A tensor

    def what(self) -> _Said:
        said, offsets, start = _Said(), [], self.token
        if self.take("()"):
            said.dims = ()
        else:
            said.leading = bool(self.take("..."))
            dims = []
            while self.token.kind in _SIZE_STARTS and self.token.text not in _DTYPES:
                offsets.append(self.token.offset)
                dims.append(self.size())
            if self.token.kind == "...":
                raise self.error("'...' stands for leading dimensions, before all others and once.")
            if dims or said.leading:
                said.dims, said.offsets = tuple(dims), tuple(offsets)
        if self.token.text in _DTYPES:
            said.dtype = self.take("name").text
        if self.take("<"):
            said.below = self.size()
        if said == _Said():
            raise self.error(f"Expected sizes, '...', '()' or a dtype, not {self.token.text}.", start)
        return said

    def merge(self, said: _Said, more: _Said, token: _Token) -> None:
        if said.dims is not None and more.dims is not None:
            raise self.error(f"{token.text} has two shapes.", token)
        if said.dtype and more.dtype:
            raise self.error(f"{token.text} has two dtypes.", token)
        if more.dims is not None:
            said.dims, said.leading, said.offsets = more.dims, more.leading, more.offsets
        said.dtype, said.below = said.dtype or more.dtype, said.below or more.below

    # ---- A size

    def size(self) -> Size:
        size = self.product()
        while symbol := self.take("+", "-"):
            size = operation(symbol.kind, size, self.product())
        return size

    def product(self) -> Size:
        size = self.atom()
        while symbol := self.take("*", "/", "//"):
            divisor = self.token
            right = self.atom()
            if symbol.kind == "/" and not size.name:
                raise self.error("Divide a single size, as in H*(D/2); `//` divides anything, and rounds down.", symbol)
            if symbol.kind == "/" and right.operands:
                raise self.error("Divide by a whole number or by a single size.", divisor)
            if symbol.kind == "//" and right.value is None:
                raise self.error("`//` divides by a whole number.", divisor)
            if symbol.kind in ("/", "//") and right.value == 0:
                raise self.error("Nothing is divided by 0.", divisor)
            size = operation(symbol.kind, size, right)
        return size

    def atom(self) -> Size:
        start = self.token
        if self.take("number"):
            if int(start.text) >= _LARGEST:
                raise self.error(f"A size is at most {_LARGEST - 1:,}.", start)
            return number(int(start.text))
        if self.take("("):
            factors = [self.size()]
            while self.token.kind in _SIZE_STARTS:
                factors.append(self.size())
            if not self.take(")"):
                raise self.error("Expected ')'.")
            size = factors[0]
            for factor in factors[1:]:  # As einops writes a product: (H D).
                size = operation("*", size, factor)
            return size
        if self.take("name"):
            self.check_size_name(start)
            return named(start.text)
        raise self.error(f"Expected a size, not {self.token.text}.")

    def check_size_name(self, token: _Token) -> None:
        name = token.text
        if name in _DTYPES:
            raise self.error(f"{name} is a dtype, which stands after the sizes.", token)
        if name in self.arguments:
            raise self.error(f"{name} is a tensor; give the size another name.", token)
        argument = next((a for a in self.schema.arguments if a.name == name), None)
        if argument and name not in self.scalars:
            raise self.error(f"{name} is a {argument.type_text}; only an int argument can be a size.", token)
        if keyword.iskeyword(name) or name in CPP_WORDS or name in _USED or "__" in name or name.startswith("_"):
            raise self.error(f"A size cannot be called {name}, which has a meaning in the op's sources.", token)

    # ---- What has to hold of the whole

    def checked(self) -> Shapes:
        for name, said in self.arguments.items():
            if said.dims is None:
                raise self.error(f"{name} has no shape; write one, such as `{name}: ... D`.", self.tokens[-1])
        self.check_count()
        schema = self.with_result_names()
        arguments = {name: self.shape(said, is_result=False) for name, said in self.arguments.items()}
        for (name, shape), argument in zip(arguments.items(), self.tensors(), strict=True):
            if argument.mutated and shape.below:
                raise self.error(f"{name} is written to, so its numbers have no bound.", self.tokens[0])
        classes = {shape.dtype for name, shape in arguments.items() if self.is_required(name)}
        results = []
        for _, said, token in self.results:
            shape = self.shape(said, is_result=True, default="float" if "float" in classes else "")
            if not shape.dtype:
                raise self.error("No argument is of dtype float, so the result needs a dtype, such as float32.", token)
            if shape.dtype in CLASSES and shape.dtype not in classes:
                raise self.error(f"No argument is of dtype {shape.dtype}, so which one the result has is open.", token)
            results.append(shape)
        for name, shape in arguments.items():
            if shape.dtype in CLASSES and shape.dtype not in classes:
                raise self.error(
                    f"The dtype of {name} is that of another tensor, which has to be there.", self.tokens[0]
                )
        self.check_leading(arguments, results)
        conditions = tuple(condition for condition, _ in self.conditions)
        return Shapes(schema, arguments, tuple(results), conditions, self.text)

    def tensors(self) -> list[Argument]:
        return [argument for argument in self.schema.arguments if argument.type.is_tensor]

    def is_required(self, name: str) -> bool:
        argument = next(a for a in self.schema.arguments if a.name == name)
        return not argument.type.optional and not argument.type.is_list

    def check_count(self) -> None:
        returns = self.schema.returns
        if any(result.type.text() != "Tensor" for result in returns):
            sentence = "Shapes describe ops whose results are tensors; leave --shapes out."
            raise self.error(sentence, self.tokens[0])
        if len(self.results) != len(returns):
            token = self.results[len(returns)][2] if len(self.results) > len(returns) else self.tokens[-1]
            raise self.error(f"The op returns {len(returns)}, not {len(self.results)} tensors.", token)

    def with_result_names(self) -> Schema:
        returns = []
        for result, (name, _, token) in zip(self.schema.returns, self.results, strict=True):
            if name and result.name and name != result.name:
                raise self.error(f"The schema calls this result {result.name}.", token)
            if name and (name in [a.name for a in self.schema.arguments] or name in [r.name for r in returns]):
                raise self.error(f"Another tensor is called {name}.", token)
            returns.append(replace(result, name=result.name or name))
        return replace(self.schema, returns=tuple(returns))

    def shape(self, said: _Said, is_result: bool, default: str = "float") -> Shape:
        dims = () if said.dims is None else said.dims
        if is_result and said.dims is None:
            raise self.error("A result needs a shape; write its sizes.", self.tokens[-1])
        return Shape(dims, said.leading, said.dtype or default, said.below, said.offsets)

    def check_leading(self, arguments: dict[str, Shape], results: Sequence[Shape]) -> None:
        given = any(shape.leading for name, shape in arguments.items() if self.is_required(name))
        if not given and any(shape.leading for shape in [*arguments.values(), *results]):
            raise self.error("'...' has to stand in the shape of an argument that is always given.", self.tokens[0])


def is_size(argument: Argument) -> bool:
    """Whether an argument may be a size: a whole number, always given."""
    return argument.type.base in ("int", "SymInt") and not argument.type.optional and not argument.type.is_list
