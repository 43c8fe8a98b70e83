"""What an op may be called: its name becomes a folder, a Python function and a C++ identifier."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from kernelgen.errors import UsageError
from kernelgen.scaffold.schema.identifiers import CPP_WORDS, PYTHON_WORDS

# `torch.ops.<package>` answers these itself; the package uses the names; C++ has but one `main`.
_OWN = {"default", "main", "name", "ops", "testing", "torch"}


def check(name: str) -> None:
    """Refuse a name that an op cannot have anywhere.

    Raises:
        UsageError: the name cannot be used.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "__" in name or name.endswith("_"):
        raise UsageError(
            f"{name!r} cannot name an op: a name is lower-case letters, digits and single underscores, "
            "begins with a letter and does not end in an underscore (such as fused_add)."
        )
    if name in PYTHON_WORDS or name in CPP_WORDS:
        raise UsageError(f"{name!r} cannot name an op: Python or C++ keeps that word. Try {name}_op.")
    if name in _OWN:
        raise UsageError(f"{name!r} cannot name an op: the package uses that name itself. Try {name}_op.")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """The words to choose from, the closest first if one is close."""
    known = sorted(words)
    close = get_close_matches(word, known, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There is {', '.join(known)}." if known else "There is none."
