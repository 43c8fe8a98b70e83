"""An operator's schema as data: its arguments, its results, its spelling, and what templates are given of it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.scaffold.schema.defaults import Default
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS, identifiers
from kernelgen.scaffold.schema.types import Type


@dataclass(frozen=True)
class Argument:
    """An argument; `alias` names the alias set of a mutated tensor, such as the `a` of `Tensor(a!)`."""

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
    """A result; `name` is empty where the schema names none."""

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
        """The canonical spelling; `torch.library.Library.define` takes it after the operator's name."""
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
        """Whether an argument tells PyTorch which device's kernel to run: any kind of tensor but `Tensor[]?`."""
        return any(a.type.is_tensor and not a.type.optional_list for a in self.arguments)

    def entry(self) -> dict:
        """The schema as plain data, with everything a template needs to write the operator.

        - `text`: the canonical schema, without a name.
        - `functional`: no argument is mutated.
        - `dispatches`: an argument is a tensor, an optional tensor or a list of tensors, and so selects the
          device. Without one, an operator cannot be registered for CPU and CUDA.
        - `cpp_return`, `python_return`: what the glue function and the Python function return as a whole,
          such as `std::tuple<Tensor, Tensor>` and `tuple[Tensor, Tensor]`; `void` and `None` for nothing.
        - `arguments`, a list in the schema's order, each with
            - `name`: as in the schema. A keyword argument of the operator is passed by this name.
            - `python`, `cpp`: the same name, with an underscore appended where the language or the generated
              code uses it already. For a keyword-only argument `python` is `name`.
            - `type`: the schema type, such as `Tensor(a!)` or `int[2]`.
            - `cpp_type`: the type of the glue function's parameter, such as `const Tensor&` or `int64_t`,
              below a `using torch::stable::Tensor;`.
            - `cpp_value`: the same type without `const` and `&`.
            - `annotation`: the Python annotation; it may use Tensor, Sequence (collections.abc) and torch.
            - `default`: Python source of the default, such as "None" for a default of None; null if the
              argument has none.
            - `keyword_only`, `mutated`: bool.
            - `size`: the N of `int[N]`, else None. PyTorch does not check a list's length; the glue must.
            - `kind`: `tensor`, `optional_tensor`, `tensor_list`, `optional_tensor_list` (`Tensor?[]`), the
              last two with the suffix `_or_none` for `Tensor[]?` and `Tensor?[]?`, and `other` for
              everything else.
            - `sample`: Python source of a sample value, the default if there is one; null for a tensor kind
              without a default.
        - `returns`, a list, each with `name` (the schema's, or `out`, or `out0`, `out1`, …), `python` and
          `cpp` (safe as above, and different from every argument), `type`, `cpp_type`, `annotation` and
          `kind` (as above).
        """
        several = len(self.returns) > 1
        names = [a.name for a in self.arguments]
        names += [r.name or (f"out{i}" if several else "out") for i, r in enumerate(self.returns)]
        spellings = zip(names, identifiers(names, PYTHON_WORDS), identifiers(names, CPP_WORDS), strict=True)
        entries = [{"name": n, "python": p, "cpp": c} for n, p, c in spellings]
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
    """What a function returns as a whole: `none`, a single type, or all types inside `many`."""
    if not types:
        return none
    return types[0] if len(types) == 1 else many.format(", ".join(types))
