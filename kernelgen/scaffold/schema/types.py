"""The types an operator may take and return, and what each is called in C++ and in Python.

They are the types that `TORCH_BOX` passes through correctly since torch 2.10. Every other type of PyTorch's
schema language is refused by name, with what to use instead.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Base:
    """A type without `?` and `[]`: its C++ name, its Python annotation, and Python source of two sample values."""

    cpp: str
    annotation: str
    sample: str | None
    another_sample: str | None
    by_value: bool = True


BASES = {
    "Tensor": Base("Tensor", "Tensor", None, None, by_value=False),
    "int": Base("int64_t", "int", "2", "3"),
    "SymInt": Base("int64_t", "int", "2", "3"),
    "float": Base("double", "float", "0.5", "1.5"),
    "bool": Base("bool", "bool", "True", "False"),
    "str": Base("std::string", "str", '"x"', '"y"', by_value=False),
    "ScalarType": Base("torch::headeronly::ScalarType", "torch.dtype", "torch.float32", "torch.float64"),
    "Layout": Base("torch::headeronly::Layout", "torch.layout", "torch.strided", "torch.sparse_coo"),
    "MemoryFormat": Base(
        "torch::headeronly::MemoryFormat", "torch.memory_format", "torch.contiguous_format", "torch.channels_last"
    ),
    "Device": Base("torch::stable::Device", "torch.device", 'torch.device("cpu")', 'torch.device("meta")'),
}

# Other types of PyTorch's schema language, and what to use instead.
_NOT_CARRIED = {
    "Scalar": "use float (or int), or two operators",
    "number": "use float (or int), or two operators",
    "complex": "pass the real and the imaginary part as two floats",
    "Generator": "pass an int seed, and an int offset if needed",
    "Storage": "pass a Tensor",
    "Stream": "leave it out, for the glue asks PyTorch for the current stream",
    "QScheme": "pass an int or a str that names the scheme",
    "Quantizer": "pass scales and zero points as Tensors",
    "ConstQuantizerPtr": "pass scales and zero points as Tensors",
    "Dimname": "use str",
    "DeviceIndex": "use int or Device",
    "SymFloat": "use float",
    "SymBool": "use bool",
    "Any": "give it a type",
    "AnyClassType": "give it a type",
    "AnyEnumType": "use int or str",
    "Capsule": "pass an int that holds the address",
    "Dict": "pass each entry as an argument of its own, or two lists",
    "Future": "pass the value itself",
    "RRef": "pass the value itself",
    "Await": "pass the value itself",
    "__torch__": "pass what the object holds as arguments of their own",
}

# Spellings carried over from Python and C++, and the schema's own.
_MISSPELT = {
    "Tuple": "use a list such as int[2], or several arguments",
    "Union": "use one of the types, or two operators",
    "List": "write T[], such as int[]",
    "Optional": "write T?, such as int?",
    "None": "write () for an operator that returns nothing",
    "NoneType": "write () for an operator that returns nothing",
    "tensor": "write Tensor",
    "double": "write float, which is a C++ double",
    "long": "write int, which is a C++ int64_t",
    "int32_t": "write int, which is a C++ int64_t",
    "int64_t": "write int, which is a C++ int64_t",
    "size_t": "write int, which is a C++ int64_t",
    "string": "write str",
    "dtype": "write ScalarType",
    "device": "write Device",
    "layout": "write Layout",
    "memory_format": "write MemoryFormat",
}


def refusal(name: str) -> str:
    """One sentence: why `name` is no type here, and what to use instead."""
    if name in _NOT_CARRIED:
        return f"The type {name} is not carried by PyTorch's stable ABI; {_NOT_CARRIED[name]}."
    close = difflib.get_close_matches(name, BASES, n=1)
    if name in _MISSPELT:
        hint = f"{_MISSPELT[name]}."
    else:
        hint = f"did you mean {close[0]}?" if close else f"the types are {', '.join(BASES)}."
    return f"There is no type {name}; {hint}"


@dataclass(frozen=True)
class Type:
    """A base type, optional or in a list: `T?`, `T[]`, `T?[]`, `T[]?`, `T?[]?`, and with a size `T[2]`.

    `optional`: the value, or in a list each item, may be None. `optional_list`: the list itself may be None.
    """

    base: str
    optional: bool = False
    is_list: bool = False
    size: int | None = None
    optional_list: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.base == "Tensor"

    @property
    def takes_none(self) -> bool:
        """Whether the value as a whole may be None."""
        return self.optional_list if self.is_list else self.optional

    @property
    def broadcasts(self) -> bool:
        """Whether a call may pass a single number for the list: PyTorch allows it for int[N] and float[N] only."""
        return self.size is not None and not self.optional and self.base in ("int", "float")

    def text(self, alias: str = "") -> str:
        """The type as a schema spells it; `alias` is what goes between the parentheses, such as `a!`."""
        item = self.base + (f"({alias})" if alias else "") + "?" * self.optional
        size = "" if self.size is None else self.size
        return item + (f"[{size}]" if self.is_list else "") + "?" * self.optional_list

    @property
    def cpp(self) -> str:
        """The C++ type of a value: what an operator returns, and what TORCH_BOX passes to it."""
        item = BASES[self.base].cpp
        if self.optional:
            item = f"std::optional<{item}>"
        if self.is_list:
            item = f"std::vector<{item}>"
        return f"std::optional<{item}>" if self.optional_list else item

    def cpp_parameter(self, mutated: bool = False) -> str:
        """The C++ type of a parameter: by value where that costs nothing, else by (const) reference.

        A mutated tensor could be a `const Tensor&` too, since only the data behind the handle changes; `Tensor&`
        tells the reader that it is written to.
        """
        if BASES[self.base].by_value and not self.is_list:
            return self.cpp
        return f"{self.cpp}&" if mutated else f"const {self.cpp}&"

    @property
    def annotation(self) -> str:
        """The Python annotation of a parameter."""
        return self._annotation("Sequence")

    @property
    def return_annotation(self) -> str:
        """The Python annotation of a result: a list where a parameter may be any sequence."""
        return self._annotation("list")

    def _annotation(self, sequence: str) -> str:
        item = BASES[self.base].annotation + " | None" * self.optional
        if self.is_list:
            number = f"{item} | " if self.broadcasts and sequence == "Sequence" else ""
            item = f"{number}{sequence}[{item}]"
        return item + " | None" * self.optional_list

    @property
    def kind(self) -> str:
        """The group of types that templates treat alike; `Schema.entry` lists them."""
        if not self.is_tensor:
            return "other"
        kind = "optional_tensor" if self.optional else "tensor"
        return kind + "_list" * self.is_list + "_or_none" * self.optional_list

    @property
    def sample(self) -> str | None:
        """Python source of a plausible value, or None where a tensor has to be made."""
        return self._sampled(BASES[self.base].sample)

    @property
    def another_sample(self) -> str | None:
        """The same of another value."""
        return self._sampled(BASES[self.base].another_sample)

    def _sampled(self, item: str | None) -> str | None:
        if item is None or not self.is_list:
            return item
        return "[" + ", ".join([item] * (2 if self.size is None else self.size)) + "]"
