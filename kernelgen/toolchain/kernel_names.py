"""The names of kernels in the words of their sources, from what a demangler or a profiler prints."""

import re

# Unnamed namespaces as cu++filt and torch spell them, as nvcc does, and as ncu does, which drops the opening bracket
# where a name starts with it.
_UNNAMED = re.compile(r"(\(anonymous namespace\)|_GLOBAL__N__\w+|_INTERNAL_\w+|<?unnamed>)::")


def name_in_source(demangled: str) -> str:
    """Without the return type, unnamed namespaces and parameters; template arguments stay."""
    name = _UNNAMED.sub("", demangled)
    depth = 0
    for position, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0 and position:
            name = name[:position]
            break
    return name.removeprefix("void ").strip()
