"""Default values of an operator's arguments: what a literal means, in a schema and in Python.

PyTorch's parser checks few of them: it accepts `int n=1.5`, `float? p=1` and `str s=None`, and a call without
that argument then fails an internal assertion. Here a default has to fit its type.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass

from kernelgen.scaffold.schema.tokens import quote, unquote
from kernelgen.scaffold.schema.types import Type


@dataclass(frozen=True)
class Default:
    """A default: `text` as a schema spells it, `python` as Python source."""

    text: str
    python: str


NONE = Default("None", "None")

# The dtypes the stable ABI of torch 2.10 knows, by the number that PyTorch prints in a schema.
DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
_DTYPE_ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "chalf": "complex32",
}
LAYOUTS = dict(
    enumerate(("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"))
)
MEMORY_FORMATS = dict(enumerate(("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")))
_ENUMS = {
    "ScalarType": ("dtype", DTYPES, _DTYPE_ALIASES),
    "Layout": ("layout", LAYOUTS, {}),
    "MemoryFormat": ("memory format", MEMORY_FORMATS, {}),
}
# PyTorch's parser knows these by name, and every other layout and memory format by its number alone.
_NAMED = {*DTYPES.values(), "strided", "contiguous_format"}

_DEVICE = re.compile(r"(?:cpu|cuda|meta|xpu|mps|privateuseone)(?::(0|[1-9]\d{0,2}))?")


def takes_list(type: Type) -> bool:
    """Whether a default `[…]` can be written for a list of this type."""
    return not type.optional and not type.optional_list and type.base not in ("Tensor", "str", "Device")


def constant(type: Type, kind: str, word: str, negative: bool = False) -> Default:
    """The default that a literal stands for, as an argument or a list's item of `type.base`.

    `kind` is the token's: name, number or string. Raises ValueError with one sentence: the literal does not fit.
    """
    optional = type.optional and not type.is_list
    if type.base in ("int", "SymInt"):
        return _integer(type, kind, word, negative)
    if type.base == "float":
        return _floating(kind, word, negative, optional)
    if negative:
        raise _misfit(type, "-" + word)
    if type.base == "bool" and word in ("True", "False") and kind == "name":
        return Default(word, word)
    if type.base == "str" and kind == "string":
        value = unquote(word)
        is_plain = repr(value) == f"'{value}'" and '"' not in value
        return Default(quote(value), f'"{value}"' if is_plain else repr(value))
    if type.base == "Device" and kind == "string":
        return _device(unquote(word), optional)
    if type.base in _ENUMS and kind != "string":
        return _enumerator(*_ENUMS[type.base], word)
    raise _misfit(type, word)


def listing(items: list[Default]) -> Default:
    """The default that a list literal of `items` stands for; in Python a tuple, which no call can change."""
    comma = "," if len(items) == 1 else ""
    return Default(f"[{', '.join(i.text for i in items)}]", f"({', '.join(i.python for i in items)}{comma})")


def _integer(type: Type, kind: str, word: str, negative: bool) -> Default:
    if kind == "name" and word == "Mean" and not negative:
        word, kind = "1", "number"  # at::Reduction::Mean, the only constant that PyTorch's parser knows by name
    if kind != "number" or not word.isdigit():
        raise _misfit(type, "-" * negative + word)
    value = -int(word) if negative else int(word)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"The default {value} does not fit in 64 bits.")
    return Default(str(value), str(value))


def _floating(kind: str, word: str, negative: bool, optional: bool) -> Default:
    if kind == "name" and word in ("inf", "nan", "infinity"):
        raise ValueError(f"PyTorch's schema parser cannot write {word}; take float? with default None instead.")
    if kind != "number":
        raise _misfit(Type("float"), "-" * negative + word)
    value, is_zero = float(word), not re.search("[1-9]", re.split("[eE]", word)[0])
    if not is_zero and not sys.float_info.min <= value <= sys.float_info.max:
        raise ValueError(f"The default {word} is out of the range of a double.")
    sign = "-" * negative
    if not word.isdigit():
        return Default(sign + word, sign + word)
    whole = f"{sign}{int(word)}"
    # PyTorch keeps the default 1 of a `float?` as an integer, and its use fails an internal assertion.
    return Default(f"{whole}.0" if optional else whole, f"{whole}.0")


def _device(value: str, optional: bool) -> Default:
    match = _DEVICE.fullmatch(value)
    if match is None or int(match.group(1) or 0) > 127:
        raise ValueError(f"{value!r} is no device the stable ABI knows; write one such as cpu, cuda or cuda:1.")
    if optional:
        raise ValueError('PyTorch keeps the default of a Device? as a string and fails; write None, or Device="…".')
    return Default(quote(value), f'torch.device("{value}")')


def _enumerator(what: str, names: dict[int, str], aliases: dict[str, str], word: str) -> Default:
    name = names.get(int(word)) if word.isdigit() else aliases.get(word, word)
    if name not in names.values():
        close = difflib.get_close_matches(word, names.values(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"write one such as {names[min(names)]}."
        raise ValueError(f"{word} is no {what} the stable ABI knows; {hint}")
    number = next(k for k, v in names.items() if v == name)
    return Default(name if name in _NAMED else str(number), f"torch.{name}")


def _misfit(type: Type, word: str) -> ValueError:
    if word == "None":
        return ValueError(f"{type.text()} cannot be None; make it optional to give it the default None.")
    return ValueError(f"The default {word} does not fit the type {type.text()}.")
