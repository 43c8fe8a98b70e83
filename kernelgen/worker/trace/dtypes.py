"""The dtypes that tensors of a function may have where nobody says so: of integers, if their names or what the function
does with them tell that."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernelgen.worker.trace.graph import INTEGERS

# What is never called so but of integers; codes that are packed are of 8 bits.
_COUNTED = re.compile(r"(^|_)(ids?|idx|indices|tokens?)$")
_PACKED = re.compile(r"(^|_)packed(_|$)")
# In the order in which they are tried, behind those that stand in the source.
_LIKELY = ("int64", "uint8", "int32", "int8")


def by_name(arguments: list[dict[str, Any]], said: Mapping[str, str]) -> dict[str, str]:
    """The dtypes of tensors that have such names, where nobody says another one."""
    dtypes = {}
    for name in _unsaid(arguments, said):
        if _PACKED.search(name):
            dtypes[name] = "uint8"
        elif _COUNTED.search(name):
            dtypes[name] = "int64"
    return dtypes


def of_integers(arguments: list[dict[str, Any]], said: Mapping[str, str], source: str) -> Iterator[dict[str, str]]:
    """Dtypes of a function that takes no floating-point numbers: of all tensors, then of each."""
    words = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    named = [dtype for dtype in INTEGERS.values() if dtype in words]
    unsaid = _unsaid(arguments, said)
    for names in dict.fromkeys((tuple(unsaid), *((name,) for name in unsaid))):
        yield from (dict.fromkeys(names, dtype) for dtype in dict.fromkeys((*named, *_LIKELY)))


def _unsaid(arguments: list[dict[str, Any]], said: Mapping[str, str]) -> list[str]:
    return [argument["name"] for argument in arguments if argument["kind"] == "tensor" and argument["name"] not in said]
