"""Reads operator schemas as PyTorch does, and more strictly: a recursive descent over the schema's tokens."""

from __future__ import annotations

import re
from dataclasses import replace

from kernelgen.scaffold.schema import defaults
from kernelgen.scaffold.schema.defaults import Default
from kernelgen.scaffold.schema.errors import SchemaError
from kernelgen.scaffold.schema.identifiers import LEXER_WORDS, PYTHON_WORDS
from kernelgen.scaffold.schema.model import Argument, Return, Schema
from kernelgen.scaffold.schema.tokens import Token, tokenize
from kernelgen.scaffold.schema.types import BASES, Type, refusal

_MAX_LIST_SIZE = 64
# PyTorch's dispatcher keeps one bit for each argument, in 64.
_MAX_ARGUMENTS = 64


# An operator's name and its overload's, before the arguments.
_OPERATOR = re.compile(r"\s*([A-Za-z_]\w*(?:::[A-Za-z_]\w*)?)(?:\.([A-Za-z_]\w*))?\s*(?=\()")


def parse(text: str) -> Schema:
    """Read a schema, such as `(Tensor x, float eps=1e-6) -> Tensor`, or `scale.out(Tensor x, *, Tensor(a!) out) -> ()`.

    It takes every spelling that PyTorch's parser takes, for the types that the stable ABI carries, except those
    that PyTorch takes and that fail, or give wrong results, when the operator is called:

    - a default that does not fit its type (`int n=1.5`, `int n=0x10`, `bool b=1`, `str s=None`,
      `int[2]? n=1`);
    - two arguments, or two results, of the same name; a name that C++ reserves (`__x`, `_X`); a
      keyword-only argument that Python cannot pass, such as `lambda`;
    - every alias except `Tensor(a!)` on an argument (and `Tensor!`, `Tensor(a!)?`, `Tensor(a!)[]`) and the
      same on a result: an operator of which a result is, or is a view of, an argument cannot be functionalized,
      so `torch.compile` and opcheck refuse it. A result `Tensor(a!)` is therefore no result of the operator; the
      Python function returns the argument. For the same reason an operator that mutates an argument returns
      plain Tensors or nothing, and mutates no list that may hold None;
    - results of type ScalarType, Layout and MemoryFormat, which reach Python as integers, bool lists, and lists
      that may hold None, which torch.compile does not take from an operator.

    Raises SchemaError: one sentence, then the line with a caret under the place.
    """
    return _Parser(text).schema()


class _Parser:
    """A method for each rule of the grammar; `position` is the index of the next token."""

    def __init__(self, text: str) -> None:
        self.text = text
        name = _OPERATOR.match(text)
        self.operator = self.checked_operator(name) if name else None
        # The rest keeps its place, to which errors point.
        self.tokens = tokenize(" " * len(name[0]) + text[len(name[0]) :] if name else text)
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def error(self, sentence: str, token: Token | None = None) -> SchemaError:
        return SchemaError(sentence, self.text, (token or self.token).offset)

    def take(self, *kinds: str) -> Token | None:
        token = self.token
        if token.kind not in kinds:
            return None
        self.position += 1
        return token

    def expect(self, kind: str, what: str) -> Token:
        token = self.take(kind)
        if token is None:
            text = "the end" if self.token.kind == "end" else self.token.text
            raise self.error(f"Expected {what}, not {text}.")
        return token

    def schema(self) -> Schema:
        if self.token.kind == "name":
            raise self.error("A schema starts with its '(', or with the operator's name and its '('.")
        arguments = self.arguments()
        self.expect("->", "'->' and what the operator returns")
        returns = self.returns()
        self.expect("end", "the end of the schema")
        named = _name_aliases([a for a, _ in arguments])
        returned = self.returned(named, returns)
        results = [result for result in returns if result[0].alias is None]
        self.check_mutation(arguments, results)
        is_plain = len(results) == len(returns)
        return Schema(named, tuple(r for r, _ in results), None if is_plain else returned, self.operator)

    def checked_operator(self, match: re.Match[str]) -> str:
        name, overload = match.groups()
        if "::" in name:
            raise SchemaError("The namespace is the package's: leave it out.", self.text, match.start(1))
        if "__" in name or (overload and "__" in overload) or overload == "default":
            raise SchemaError(
                "An operator's name holds single underscores, and its overload is not called default.",
                self.text,
                match.start(1),
            )
        return f"{name}.{overload}" if overload else name

    def returned(self, arguments: tuple[Argument, ...], returns: list[tuple[Return, Token]]) -> tuple[str | int, ...]:
        """What the function returns: by name the arguments that are written to, by number the operator's results."""
        returned: list[str | int] = []
        for result, start in returns:
            if result.alias is None:
                returned.append(sum(isinstance(value, int) for value in returned))
                continue
            argument = next((a for a in arguments if a.alias == result.alias and a.type == result.type), None)
            if argument is None or argument.type.takes_none:
                raise self.error(
                    f"{result.type.text(result.alias + '!')} can only be the result where an argument of that type, "
                    "which is always given, is written to.",
                    start,
                )
            returned.append(argument.name)
        return tuple(returned)

    def arguments(self) -> list[tuple[Argument, Token]]:
        self.expect("(", "'(' and the arguments")
        arguments: list[tuple[Argument, Token]] = []
        keyword_only = False
        while not self.take(")"):
            if arguments or keyword_only:
                self.expect(",", "',' or ')'")
            if self.take("*"):
                keyword_only = True
                continue
            start = self.token
            if len(arguments) == _MAX_ARGUMENTS:
                raise self.error(f"PyTorch gives an operator at most {_MAX_ARGUMENTS} arguments; pass lists instead.")
            argument, name = self.argument(keyword_only)
            self.check_name(name, [a.name for a, _ in arguments], "arguments")
            if not keyword_only and argument.default is None and any(a.default for a, _ in arguments):
                raise self.error(f"{name.text} needs a default, since an argument before it has one.", name)
            if keyword_only and name.text in PYTHON_WORDS:
                raise self.error(
                    f"{name.text} is reserved in Python and cannot name a keyword-only argument; rename it.", name
                )
            arguments.append((argument, start))
        return arguments

    def argument(self, keyword_only: bool) -> tuple[Argument, Token]:
        type, alias = self.type()
        name = self.expect("name", "the argument's name")
        default = self.default(type) if self.take("=") else None
        return Argument(name.text, type, default, keyword_only, alias), name

    def returns(self) -> list[tuple[Return, Token]]:
        if not self.take("("):
            return [self.result([])]
        returns: list[tuple[Return, Token]] = []
        while not self.take(")"):
            if returns:
                self.expect(",", "',' or ')'")
            returns.append(self.result([r.name for r, _ in returns]))
        return returns

    def result(self, names: list[str]) -> tuple[Return, Token]:
        start = self.token
        type, alias = self.type()
        if alias == "":
            raise self.error("Name the argument that is the result, as in (Tensor(a!) x) -> Tensor(a!).", start)
        if type.base in ("ScalarType", "Layout", "MemoryFormat"):
            raise self.error(f"A result of type {type.base} reaches Python as an integer; return int.", start)
        if type.base == "bool" and type.is_list and not type.optional:
            raise self.error("PyTorch's stable ABI cannot return a list of bool; return int[] or a Tensor.", start)
        if type.is_tensor and type.is_list and type.optional:
            raise self.error(
                "torch.compile takes no list that holds None from an operator; return Tensor[], and an int[] that says "
                "which there are.",
                start,
            )
        name = self.take("name")
        if name:
            self.check_name(name, names, "results")
        return Return(type, name.text if name else "", alias), start

    def type(self) -> tuple[Type, str | None]:
        """A type and its alias set: None without one, "" for the unnamed set of `Tensor!`."""
        base = self.base()
        alias = self.alias(base)
        type = Type(base.text, optional=self.question_marks())
        if self.token.kind == "[":
            opening = self.token
            type = replace(type, is_list=True, size=self.size())
            list_alias = self.alias(base)
            if alias is not None and list_alias is not None:
                raise self.error("An alias is written once, as in Tensor(a!)[].", opening)
            alias = list_alias if alias is None else alias
            type = replace(type, optional_list=self.question_marks())
        if self.token.kind == "[":
            raise self.error("PyTorch's stable ABI carries no list of lists; pass a flat list and its sizes.")
        return type, alias

    def base(self) -> Token:
        if self.token.kind == "(":
            raise self.error("A tuple is not a type; use a list such as int[2], or several arguments.")
        if self.token.kind == "...":
            raise self.error("An operator takes and returns a fixed number of values; write them out instead of '...'.")
        token = self.expect("name", "a type")
        if token.text not in BASES:
            raise self.error(refusal(token.text), token)
        return token

    def question_marks(self) -> bool:
        optional = False
        while self.take("?"):  # PyTorch reads int?? as int?
            optional = True
        return optional

    def size(self) -> int | None:
        self.expect("[", "'['")
        token = self.take("number")
        if token and not (token.text.isdigit() and 1 <= float(token.text) <= _MAX_LIST_SIZE):
            raise self.error(f"A list's size is a whole number from 1 to {_MAX_LIST_SIZE}.", token)
        self.expect("]", "']' or a size")
        return int(token.text) if token else None

    def alias(self, base: Token) -> str | None:
        opening = self.take("(", "!")
        if opening is None:
            return None
        if base.text != "Tensor":
            raise self.error(f"Only a Tensor can be mutated or aliased, not {base.text}.", opening)
        if opening.kind == "!":
            return ""
        name = self.expect("name", "the alias set's name") if self.token.kind not in ("*", "|") else None
        if name is None or not self.take("!") or not self.take(")"):
            raise self.error(
                "The only alias taken is Tensor(a!), for an argument that the operator writes to.", opening
            )
        return name.text

    def default(self, type: Type) -> Default:
        start = self.token
        if type.takes_none and start.kind == "name" and start.text == "None":
            self.position += 1
            return defaults.NONE
        if type.is_tensor:
            raise self.error("PyTorch takes no default but None for tensors, and only for optional ones.")
        if not type.is_list:
            return self.constant(type)
        if type.optional_list:
            raise self.error(f"PyTorch takes no default but None for {type.text()}.")
        if not defaults.takes_list(type):
            raise self.error(f"PyTorch takes no default for {type.text()}.")
        if self.take("["):
            return self.list_default(type, start)
        if type.size is None:
            raise self.error(f"A default of {type.text()} is a list, such as [].")
        item = self.constant(type)
        items = defaults.listing([item] * type.size)
        # PyTorch repeats a single number or bool for all of the list, but not a name such as float32.
        return items if item.text.isidentifier() and type.base != "bool" else Default(item.text, items.python)

    def list_default(self, type: Type, start: Token) -> Default:
        items: list[Default] = []
        while not self.take("]"):
            if items:
                self.expect(",", "',' or ']'")
            items.append(self.constant(type))
        if items and type.size not in (None, len(items)):
            raise self.error(f"{type.text()} takes {type.size} values by default, not {len(items)}.", start)
        return defaults.listing(items)

    def constant(self, type: Type) -> Default:
        start = self.token
        negative = bool(self.take("-"))
        token = self.take("name", "number", "string")
        if token is None:
            raise self.error(f"Expected a default of type {type.text()}.")
        try:
            return defaults.constant(type, token.kind, token.text, negative)
        except ValueError as error:
            raise self.error(str(error), start) from None

    def check_name(self, name: Token, others: list[str], what: str) -> None:
        if name.text in LEXER_WORDS:
            raise self.error(f"{name.text} is a word of PyTorch's schema language, not a name.", name)
        if "__" in name.text or (name.text[0] == "_" and name.text[1:2].isupper()):
            raise self.error(f"C++ reserves the name {name.text}; rename it.", name)
        if name.text in others:
            raise self.error(f"Two {what} are named {name.text}.", name)

    def check_mutation(self, arguments: list[tuple[Argument, Token]], returns: list[tuple[Return, Token]]) -> None:
        seen: set[str] = set()
        for argument, start in arguments:
            if argument.alias and argument.alias in seen:
                raise self.error(f"Two mutated arguments share the alias {argument.alias}; give each its own.", start)
            seen.add(argument.alias or "")
            if argument.mutated and argument.type.is_list and argument.type.optional:
                raise self.error(
                    "torch.compile cannot follow writes to a list that holds None; take Tensor(a!)[] instead.", start
                )
        for result, start in returns:
            if result.type != Type("Tensor") and any(a.mutated for a, _ in arguments):
                raise self.error("An operator that mutates an argument returns plain Tensors or ().", start)


def _name_aliases(arguments: list[Argument]) -> tuple[Argument, ...]:
    """The arguments, with an unused letter for each alias set that `Tensor!` left unnamed."""
    taken = {a.alias for a in arguments}
    letters = iter([*"abcdefghijklmnopqrstuvwxyz", *(f"a{i}" for i in range(len(arguments)))])
    free = (letter for letter in letters if letter not in taken)
    return tuple(replace(a, alias=next(free)) if a.alias == "" else a for a in arguments)
