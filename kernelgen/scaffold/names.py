"""Names of ops: each becomes a folder, a Python function and a C++ identifier."""

import re
import symtable
from collections.abc import Iterable
from difflib import get_close_matches

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS

# Attributes of `torch.ops.<package>`, modules of the package, and C++'s `main`.
_TAKEN = {"default", "main", "name", "ops", "testing", "torch"}

# A file system takes 255 bytes, and an op's name is a part of the names of files.
_LONGEST = 100


def check(name: str) -> None:
    """Refuse a name that no op can have, in any project.

    Raises:
        UsageError: the name cannot be used.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*(_|\.\w+)", name) and "__" not in name:
        # PyTorch's names of an in-place operator, and of an overload.
        base, dot, overload = name.partition(".")
        variant = f"{base}_{overload.lower()}" if dot else f"{base}in_place"
        raise UsageError(
            f"{name!r} names an operator, and no folder: call the op {variant}, and give the operator's name in its "
            f'schema, as in --schema "{name}(Tensor x) -> Tensor".'
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "__" in name or name.endswith("_"):
        raise UsageError(
            f"{name!r} cannot name an op: a name is lower-case letters, digits and single underscores, "
            "begins with a letter and does not end in an underscore (such as fused_add)."
        )
    if len(name) > _LONGEST:
        raise UsageError(f"An op's name has at most {_LONGEST} characters, and {name[:20]}… has {len(name)}.")
    if name in PYTHON_WORDS or name in CPP_WORDS:
        raise UsageError(f"{name!r} cannot name an op: it is reserved in Python or C++. Try {name}_op.")
    if name in _TAKEN:
        raise UsageError(f"{name!r} cannot name an op: the package uses that name itself. Try {name}_op.")
    if name.startswith("test"):
        raise UsageError(f"{name!r} cannot name an op: pytest would take its function for a test. Try op_{name}.")


def global_names(source: str) -> set[str]:
    """What a Python module binds, and what its functions look up outside of themselves, such as `list`: an op of such a
    name would take its place.

    Raises:
        SyntaxError: it is no Python.
    """
    tables, names = [symtable.symtable(source, "module", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        names |= {symbol.get_name() for symbol in table.get_symbols() if is_module or symbol.is_global()}
    return names


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """A sentence that names the closest of `words`, or all of them where none is close."""
    known = sorted(words)
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"The choices are {', '.join(known)}." if known else "There are none."
