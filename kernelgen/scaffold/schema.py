"""An operator's schema: read as PyTorch reads it, checked more strictly, and spelt out for templates."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelgen.scaffold import schema_defaults as defaults
from kernelgen.scaffold.schema_defaults import Default
from kernelgen.scaffold.schema_names import CPP_WORDS, LEXER_WORDS, PYTHON_WORDS, identifiers
from kernelgen.scaffold.schema_tokens import SchemaError, Token, tokenize
from kernelgen.scaffold.schema_types import BASES, Type, refusal

__all__ = ["Argument", "Default", "Return", "Schema", "SchemaError", "Type", "parse"]

_LARGEST_SIZE = 64
# What the dispatcher has bits for.
_MOST_ARGUMENTS = 64


@dataclass(frozen=True)
class Argument:
    """One argument; `alias` names the set a mutated tensor is in, as `a` does in `Tensor(a!)`."""

    name: str
    type: Type
    default: Default | None = None
    keyword_only: bool = False
    alias: str | None = None

    @property
    def mutated(self) -> bool:
        return self.alias is not None

    @property
    def type_text(self) -> str:
        return self.type.text(f"{self.alias}!" if self.mutated else "")

    def __str__(self) -> str:
        return f"{self.type_text} {self.name}" + (f"={self.default.text}" if self.default else "")


@dataclass(frozen=True)
class Return:
    """One result; `name` is empty where the schema gives none."""

    type: Type
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type.text()} {self.name}".rstrip()


@dataclass(frozen=True)
class Schema:
    """A parsed schema, without the operator's name."""

    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]

    @property
    def text(self) -> str:
        """The one canonical spelling; `torch.library.Library.define` takes it after the operator's name."""
        words = [str(a) for a in self.arguments]
        star = next((i for i, a in enumerate(self.arguments) if a.keyword_only), None)
        if star is not None:
            words.insert(star, "*")
        results = ", ".join(map(str, self.returns))
        return f"({', '.join(words)}) -> {results if len(self.returns) == 1 else f'({results})'}"

    def __str__(self) -> str:
        return self.text

    @property
    def functional(self) -> bool:
        """Whether no argument is mutated."""
        return not any(a.mutated for a in self.arguments)

    @property
    def dispatches(self) -> bool:
        """Whether an argument tells PyTorch which device's kernel to run; a `Tensor[]?` does not."""
        return any(a.type.is_tensor and not a.type.optional_list for a in self.arguments)

    def entry(self) -> dict:
        """The schema as plain data, with everything a template needs to write the operator.

        - `text`: the canonical schema, without a name.
        - `functional`: no argument is mutated.
        - `dispatches`: some argument is a tensor (or an optional one, or a list) that picks the device. An
          operator without one cannot be registered for CPU and CUDA.
        - `cpp_return`, `python_return`: what the glue function and the Python function return as a whole,
          such as `std::tuple<Tensor, Tensor>` and `tuple[Tensor, Tensor]`; `void` and `None` for nothing.
        - `arguments`, a list in the schema's order, each with
            - `name`: as in the schema. A keyword argument of the operator is passed by this name.
            - `python`, `cpp`: the same name, with underscores added where the language or the generated code
              has the name already. For a keyword-only argument `python` is `name`.
            - `type`: the schema type, such as `Tensor(a!)` or `int[2]`.
            - `cpp_type`: the parameter of the glue function, such as `const Tensor&` or `int64_t`; C++
              written for it says `using torch::stable::Tensor;`.
            - `cpp_value`: the same as a value, without `const` and `&`.
            - `annotation`: the Python annotation; it may use Tensor, Sequence (collections.abc) and torch.
            - `default`: Python source of the default, or None (null) if there is none: a default of None is
              "None".
            - `keyword_only`, `mutated`: bool.
            - `size`: the N of `int[N]`, else None. PyTorch does not check that a list has that length, the
              glue must.
            - `kind`: `tensor`, `optional_tensor`, `tensor_list`, `optional_tensor_list` (`Tensor?[]`), the
              last two with `_or_none` behind them for `Tensor[]?` and `Tensor?[]?`, and `other` for
              everything else.
            - `sample`: Python source of a plausible value, the default where there is one; None for a tensor
              kind that has no default.
        - `returns`, a list, each with `name` (the schema's, or `out`, or `out0`, `out1`, …), `python` and
          `cpp` (safe as above, and different from every argument), `type`, `cpp_type`, `annotation` and
          `kind` (as above).
        """
        several = len(self.returns) > 1
        names = [a.name for a in self.arguments]
        names += [r.name or (f"out{i}" if several else "out") for i, r in enumerate(self.returns)]
        spelt = zip(names, identifiers(names, PYTHON_WORDS), identifiers(names, CPP_WORDS), strict=True)
        entries = [{"name": n, "python": p, "cpp": c} for n, p, c in spelt]
        split = len(self.arguments)
        return {
            "text": self.text,
            "functional": self.functional,
            "dispatches": self.dispatches,
            "cpp_return": _several([r.type.cpp for r in self.returns], "void", "std::tuple<{}>"),
            "python_return": _several([r.type.return_annotation for r in self.returns], "None", "tuple[{}]"),
            "arguments": [e | _argument_entry(a) for e, a in zip(entries, self.arguments, strict=False)],
            "returns": [e | _return_entry(r) for e, r in zip(entries[split:], self.returns, strict=True)],
        }


def parse(text: str) -> Schema:
    """Read a schema without the operator's name, such as `(Tensor x, float eps=1e-6) -> Tensor`.

    Every spelling that PyTorch's parser takes is taken, for the types that the stable ABI carries. Refused
    are spellings that PyTorch takes and that then fail, or answer wrong, when the operator is used:

    - a default that does not fit its type (`int n=1.5`, `int n=0x10`, `bool b=1`, `str s=None`, `int[2]?
      n=1`);
    - two arguments, or two results, of one name; a name that C++ keeps for itself (`__x`, `_X`); a
      keyword-only argument that Python cannot pass, such as `lambda`;
    - every alias except `Tensor(a!)` on an argument (and `Tensor!`, `Tensor(a!)?`, `Tensor(a!)[]`): a result
      that is, or is a view of, an argument cannot be functionalized, so `torch.compile` and opcheck refuse
      such an operator. For the same reason an operator that mutates an argument returns plain Tensors or
      nothing;
    - results of type ScalarType, Layout and MemoryFormat, which reach Python as integers, and bool lists.

    Raises SchemaError, one sentence and then the line with a caret under the place.
    """
    return _Parser(text).schema()


class _Parser:
    """Recursive descent: one method a rule, each leaving `self.at` behind what it read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def fail(self, sentence: str, token: Token | None = None) -> SchemaError:
        return SchemaError(sentence, self.text, (token or self.now).at)

    def take(self, *kinds: str) -> Token | None:
        token = self.now
        if token.kind not in kinds:
            return None
        self.at += 1
        return token

    def expect(self, kind: str, what: str) -> Token:
        token = self.take(kind)
        if token is None:
            found = "the end" if self.now.kind == "end" else self.now.text
            raise self.fail(f"Here should be {what}, not {found}.")
        return token

    def schema(self) -> Schema:
        if self.now.kind == "name":
            raise self.fail("A schema is written without the operator's name, starting with its '('.")
        arguments = self.arguments()
        self.expect("->", "'->' and what the operator returns")
        returns = self.returns()
        self.expect("end", "the end of the schema")
        self.check_mutation(arguments, returns)
        return Schema(_name_aliases([a for a, _ in arguments]), tuple(r for r, _ in returns))

    def arguments(self) -> list[tuple[Argument, Token]]:
        self.expect("(", "'(' and the arguments")
        found: list[tuple[Argument, Token]] = []
        keyword_only = False
        while not self.take(")"):
            if found or keyword_only:
                self.expect(",", "',' or ')'")
            if self.take("*"):
                keyword_only = True
                continue
            start = self.now
            if len(found) == _MOST_ARGUMENTS:
                raise self.fail(f"PyTorch gives an operator at most {_MOST_ARGUMENTS} arguments; pass lists instead.")
            argument, name = self.argument(keyword_only)
            self.check_name(name, [a.name for a, _ in found], "arguments")
            if not keyword_only and argument.default is None and any(a.default for a, _ in found):
                raise self.fail(f"{name.text} needs a default, since an argument before it has one.", name)
            if keyword_only and name.text in PYTHON_WORDS:
                raise self.fail(f"Python keeps {name.text} from a keyword-only argument; rename it.", name)
            found.append((argument, start))
        return found

    def argument(self, keyword_only: bool) -> tuple[Argument, Token]:
        type, alias = self.type()
        name = self.expect("name", "the argument's name")
        default = self.default(type) if self.take("=") else None
        return Argument(name.text, type, default, keyword_only, alias), name

    def returns(self) -> list[tuple[Return, Token]]:
        if not self.take("("):
            return [self.result([])]
        found: list[tuple[Return, Token]] = []
        while not self.take(")"):
            if found:
                self.expect(",", "',' or ')'")
            found.append(self.result([r.name for r, _ in found]))
        return found

    def result(self, names: list[str]) -> tuple[Return, Token]:
        start = self.now
        type, alias = self.type()
        if alias is not None:
            raise self.fail("A result cannot be an argument or a view of one; return () or a new Tensor.", start)
        if type.base in ("ScalarType", "Layout", "MemoryFormat"):
            raise self.fail(f"A result of type {type.base} reaches Python as an integer; return int.", start)
        if type.base == "bool" and type.is_list and not type.optional:
            raise self.fail("PyTorch's stable ABI cannot return a list of bool; return int[] or a Tensor.", start)
        name = self.take("name")
        if name:
            self.check_name(name, names, "results")
        return Return(type, name.text if name else ""), start

    def type(self) -> tuple[Type, str | None]:
        """A type and its alias set: None if there is none, "" for the fresh set that `Tensor!` stands for."""
        base = self.base()
        alias = self.alias(base)
        type = Type(base.text, optional=self.question_marks())
        if self.now.kind == "[":
            opening = self.now
            type = replace(type, is_list=True, size=self.size())
            of_list = self.alias(base)
            if alias is not None and of_list is not None:
                raise self.fail("An alias is written once, as in Tensor(a!)[].", opening)
            alias = of_list if alias is None else alias
            type = replace(type, optional_list=self.question_marks())
        if self.now.kind == "[":
            raise self.fail("A list of lists is not carried here; pass one flat list and its sizes.")
        return type, alias

    def base(self) -> Token:
        if self.now.kind == "(":
            raise self.fail("A tuple is no type here; use a list such as int[2], or several arguments.")
        if self.now.kind == "...":
            raise self.fail("An operator here takes and returns a fixed number of values; '...' is not one.")
        token = self.expect("name", "a type")
        if token.text not in BASES:
            raise self.fail(refusal(token.text), token)
        return token

    def question_marks(self) -> bool:
        found = False
        while self.take("?"):  # PyTorch reads int?? as int?
            found = True
        return found

    def size(self) -> int | None:
        self.expect("[", "'['")
        token = self.take("number")
        if token and not (token.text.isdigit() and 1 <= float(token.text) <= _LARGEST_SIZE):
            raise self.fail(f"A list's size is a whole number from 1 to {_LARGEST_SIZE}.", token)
        self.expect("]", "']' or a size")
        return int(token.text) if token else None

    def alias(self, base: Token) -> str | None:
        opening = self.take("(", "!")
        if opening is None:
            return None
        if base.text != "Tensor":
            raise self.fail(f"Only a Tensor can be mutated or aliased, not {base.text}.", opening)
        if opening.kind == "!":
            return ""
        name = self.expect("name", "the alias set's name") if self.now.kind not in ("*", "|") else None
        if name is None or not self.take("!") or not self.take(")"):
            raise self.fail("The one alias here is Tensor(a!), an argument that the operator writes to.", opening)
        return name.text

    def default(self, type: Type) -> Default:
        start = self.now
        if type.takes_none and start.kind == "name" and start.text == "None":
            self.at += 1
            return defaults.NONE
        if type.is_tensor:
            raise self.fail("PyTorch takes no default but None for tensors, and only for optional ones.")
        if not type.is_list:
            return self.constant(type)
        if type.optional_list:
            raise self.fail(f"PyTorch takes no default but None for {type.text()}.")
        if not defaults.takes_list(type):
            raise self.fail(f"PyTorch takes no default for {type.text()}.")
        if self.take("["):
            return self.list_default(type, start)
        if type.size is None:
            raise self.fail(f"A default of {type.text()} is a list, such as [].")
        one = self.constant(type)
        many = defaults.listing([one] * type.size)
        # A single name, such as float32, is the one thing PyTorch does not spread over a list.
        return many if one.text.isidentifier() and type.base != "bool" else Default(one.text, many.python)

    def list_default(self, type: Type, start: Token) -> Default:
        items: list[Default] = []
        while not self.take("]"):
            if items:
                self.expect(",", "',' or ']'")
            items.append(self.constant(type))
        if items and type.size not in (None, len(items)):
            raise self.fail(f"{type.text()} takes {type.size} values by default, not {len(items)}.", start)
        return defaults.listing(items)

    def constant(self, type: Type) -> Default:
        start = self.now
        negative = bool(self.take("-"))
        token = self.take("name", "number", "string")
        if token is None:
            raise self.fail(f"Here should be a default of type {type.text()}.")
        try:
            return defaults.constant(type, token.kind, token.text, negative)
        except ValueError as error:
            raise self.fail(str(error), start) from None

    def check_name(self, name: Token, others: list[str], what: str) -> None:
        if name.text in LEXER_WORDS:
            raise self.fail(f"{name.text} is a word of PyTorch's schema language, not a name.", name)
        if "__" in name.text or (name.text[0] == "_" and name.text[1:2].isupper()):
            raise self.fail(f"C++ keeps the name {name.text} for itself; rename it.", name)
        if name.text in others:
            raise self.fail(f"Two {what} are named {name.text}.", name)

    def check_mutation(self, arguments: list[tuple[Argument, Token]], returns: list[tuple[Return, Token]]) -> None:
        seen: set[str] = set()
        for argument, start in arguments:
            if argument.alias and argument.alias in seen:
                raise self.fail(f"Two mutated arguments share the alias {argument.alias}; give each its own.", start)
            seen.add(argument.alias or "")
        for result, start in returns:
            if result.type != Type("Tensor") and any(a.mutated for a, _ in arguments):
                raise self.fail("An operator that mutates an argument returns plain Tensors or ().", start)


def _name_aliases(arguments: list[Argument]) -> tuple[Argument, ...]:
    """The arguments, with a free letter for each alias set that `Tensor!` left unnamed."""
    taken = {a.alias for a in arguments}
    letters = iter([*"abcdefghijklmnopqrstuvwxyz", *(f"a{i}" for i in range(len(arguments)))])
    free = (letter for letter in letters if letter not in taken)
    return tuple(replace(a, alias=next(free)) if a.alias == "" else a for a in arguments)


def _argument_entry(argument: Argument) -> dict:
    type, default = argument.type, argument.default
    return {
        "type": argument.type_text,
        "cpp_type": type.cpp_parameter(argument.mutated),
        "cpp_value": type.cpp,
        "annotation": type.annotation,
        "default": default.python if default else None,
        "keyword_only": argument.keyword_only,
        "mutated": argument.mutated,
        "size": type.size,
        "kind": type.kind,
        "sample": default.python if default else type.sample,
    }


def _return_entry(result: Return) -> dict:
    return {
        "type": result.type.text(),
        "cpp_type": result.type.cpp,
        "annotation": result.type.return_annotation,
        "kind": result.type.kind,
    }


def _several(types: list[str], none: str, many: str) -> str:
    """One type for what a function returns: `none`, the only one, or all of them inside `many`."""
    if not types:
        return none
    return types[0] if len(types) == 1 else many.format(", ".join(types))
