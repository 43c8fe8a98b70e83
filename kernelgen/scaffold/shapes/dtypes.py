"""The dtypes that shapes may name, and how C++ spells their elements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Element:
    """A dtype: its ScalarType, its type in kernels and in the glue of cpu.cpp and cuda.cpp, and its bytes."""

    scalar_type: str
    kernel: str
    glue: str
    bytes: int
    is_floating: bool = False


ELEMENTS = {
    "float32": Element("Float", "float32", "float", 4, True),
    "float64": Element("Double", "float64", "double", 8, True),
    "float16": Element("Half", "float16", "dtypes::Half", 2, True),
    "bfloat16": Element("BFloat16", "bfloat16", "dtypes::BFloat16", 2, True),
    "int8": Element("Char", "int8_t", "int8_t", 1),
    "uint8": Element("Byte", "uint8_t", "uint8_t", 1),
    "int16": Element("Short", "int16_t", "int16_t", 2),
    "int32": Element("Int", "int32_t", "int32_t", 4),
    "int64": Element("Long", "int64_t", "int64_t", 8),
    "bool": Element("Bool", "bool", "bool", 1),
}


@dataclass(frozen=True)
class Class:
    """Dtypes of which an op takes any, the same for all tensors of the class: their type parameter in C++, and how the
    glue visits them."""

    dtypes: tuple[str, ...]
    parameter: str
    visit: str


CLASSES = {
    "float": Class(("float32", "float16", "bfloat16", "float64"), "T", "visit_floating"),
    "int": Class(("int32", "int64"), "I", "visit_integers"),
}


def is_floating(dtype: str) -> bool:
    return dtype == "float" or (dtype in ELEMENTS and ELEMENTS[dtype].is_floating)
