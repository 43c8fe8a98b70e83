"""Words that PyTorch's schema language, Python and C++ reserve, and identifiers that avoid them."""

from __future__ import annotations

import keyword
from itertools import chain, count

# Reserved by PyTorch's lexer: no argument can have such a name.
_LEXER = """
    def if else elif while return is True False None and or not global for in raise assert break continue del
    pass class import with as Ellipsis NoneType
"""
# The keywords of C++20, with `and`, `or` and its other spellings of operators.
_CPP_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq
"""
# Macros of the C library and of GNU C++, CUDA's built-in variables, and names that the generated code uses.
_CPP_NAMES = """
    NULL EOF INFINITY NAN errno assert stdin stdout stderr linux unix
    blockIdx blockDim threadIdx gridDim warpSize
    std torch at c10 Tensor int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
"""

LEXER_WORDS = frozenset(_LEXER.split())
PYTHON_WORDS = frozenset([*keyword.kwlist, "torch", "Tensor", "Sequence"])
CPP_WORDS = frozenset(_CPP_KEYWORDS.split()) | frozenset(_CPP_NAMES.split())


def identifiers(names: list[str], words: frozenset[str]) -> list[str]:
    """An identifier for each of `names`, all different and none in `words`.

    A name changes only where it is in `words` or occurred before, so keyword arguments keep theirs. No change
    makes a double underscore, which C++ reserves.
    """
    result: list[str] = []
    taken = {*names, *words}
    for i, name in enumerate(names):
        if name in words or name in names[:i]:
            stem = name.rstrip("_") or "value"
            name = next(n for n in chain([f"{stem}_"], (f"{stem}_{k}" for k in count(2))) if n not in taken)
            taken.add(name)
        result.append(name)
    return result
