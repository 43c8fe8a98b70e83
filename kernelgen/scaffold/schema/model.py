"""An operator's schema as data: its arguments, its results, its spelling, and what templates are given of it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.scaffold.schema.defaults import Default
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS, identifiers
from kernelgen.scaffold.schema.types import Type

# Results that torch.compile takes beside others and not alone. It takes SymInt alone.
_NUMBERS_ALONE = ("int", "int?", "SymInt?", "bool", "bool?", "float", "float?")


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
    """A result; `name` is empty where the schema names none, and `alias` is of the argument that the result is."""

    type: Type
    name: str = ""
    alias: str | None = None

    def __str__(self) -> str:
        return f"{self.type.text()} {self.name}".rstrip()


@dataclass(frozen=True)
class Container:
    """The class that the Python function returns its results in: a dataclass, or else a NamedTuple."""

    name: str
    fields: tuple[str, ...]
    is_dataclass: bool


@dataclass(frozen=True)
class Schema:
    """A parsed schema. `operator` is the operator's name with its overload's, `scale.out`, where the schema gives it.

    `returned` says what the Python function returns where that includes arguments that the operator writes to: an
    argument's name, or the index of one of `returns`. None: it returns what the operator does.
    """

    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    returned: tuple[str | int, ...] | None = None
    operator: str | None = None
    container: Container | None = None

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

    @property
    def takes_tensors(self) -> bool:
        return any(a.type.is_tensor for a in self.arguments)

    @property
    def device(self) -> Argument | None:
        """The argument that picks the device where the operator takes no tensor."""
        devices = [a for a in self.arguments if a.type.base == "Device" and not a.type.is_list]
        return devices[0] if devices and not self.takes_tensors else None

    @property
    def on_cuda(self) -> bool:
        """Whether the operator can have a CUDA kernel: without tensors and a device it runs on the CPU."""
        return self.takes_tensors or self.device is not None

    @property
    def differentiable(self) -> bool:
        """Whether there is something to differentiate, which the operator does not write to."""
        return self.functional and self.takes_tensors and any(r.type.is_tensor for r in self.returns)

    @property
    def breaks_graph(self) -> bool:
        """Whether torch.compile ends a graph at a call: a graph holds no str or device, and no number alone."""
        types = [r.type for r in self.returns]
        is_number_alone = len(types) == 1 and types[0].text() in _NUMBERS_ALONE
        return not self.is_constant and (is_number_alone or any(t.base in ("str", "Device") for t in types))

    @property
    def is_constant(self) -> bool:
        """Whether the operator is a query: it takes and returns no tensor, and a compiled graph holds its result."""
        return not self.takes_tensors and not any(r.type.is_tensor for r in self.returns)

    def entry(self) -> dict:
        """The schema as plain data, with all that templates need to write the operator: docs/ops-entry.md lists it."""
        several = len(self.returns) > 1
        names = [a.name for a in self.arguments]
        names += [r.name or (f"out{i}" if several else "out") for i, r in enumerate(self.returns)]
        spellings = zip(names, identifiers(names, PYTHON_WORDS), identifiers(names, CPP_WORDS), strict=True)
        entries = [{"name": n, "python": p, "cpp": c} for n, p, c in spellings]
        split = len(self.arguments)
        by_name = {entry["name"]: entry for entry in entries[:split]}
        device = self.device and by_name[self.device.name]
        return {
            "text": self.text,
            "operator": self.operator,
            "functional": self.functional,
            "dispatches": self.dispatches,
            "takes_tensors": self.takes_tensors,
            "device": device
            and {key: device[key] for key in ("python", "cpp")} | {"optional": self.device.type.optional},
            "on_cuda": self.on_cuda,
            "is_constant": self.is_constant,
            "cpp_return": _several([r.type.cpp for r in self.returns], "void", "std::tuple<{}>"),
            "python_return": self.container.name
            if self.container
            else _several(self._annotations(), "None", "tuple[{}]"),
            "differentiable": self.differentiable,
            "breaks_graph": self.breaks_graph,
            "container": self.container and {**vars(self.container), "fields": list(self.container.fields)},
            "returned": self._returned(by_name, entries[split:]),
            "arguments": [e | _argument_entry(a) for e, a in zip(entries, self.arguments, strict=False)],
            "returns": [e | _return_entry(r) for e, r in zip(entries[split:], self.returns, strict=True)],
        }

    def _returned(self, arguments: dict[str, dict], returns: list[dict]) -> dict | None:
        if self.returned is None:
            return None
        names = [arguments[r]["python"] if isinstance(r, str) else returns[r]["python"] for r in self.returned]
        return {"names": names, "results": [i for i, r in enumerate(self.returned) if isinstance(r, int)]}

    def _annotations(self) -> list[str]:
        """The annotations of what the Python function returns."""
        types = {a.name: a.type for a in self.arguments}
        results = range(len(self.returns)) if self.returned is None else self.returned
        return [(types[r] if isinstance(r, str) else self.returns[r].type).return_annotation for r in results]


def _argument_entry(argument: Argument) -> dict:
    type, default = argument.type, argument.default
    return {
        "type": argument.type_text,
        "cpp_type": type.cpp_parameter(argument.mutated),
        "annotation": type.annotation,
        "default": default.python if default else None,
        "keyword_only": argument.keyword_only,
        "mutated": argument.mutated,
        "size": type.size,
        "kind": type.kind,
        "sample": default.python if default else type.sample,
        "another_sample": default.python if default else type.another_sample,
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
