"""The search space of an op's tunables: every combination of the values that its lab.py lists."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernelgen.errors import LabError
from kernelgen.protocol import part

# A configuration: the value of each tunable, by name.
Values = dict[str, Any]
PART = r"(cpu|cuda( \d+\.\d)?)( backward)?"


@dataclass(frozen=True)
class Space:
    """Tunables by name, each with the values that it may take, in the order of the lab.py."""

    tunables: Mapping[str, tuple[Any, ...]]

    @property
    def size(self) -> int:
        """How many points the space has."""
        return math.prod(len(values) for values in self.tunables.values())

    @cached_property
    def version(self) -> str:
        """A hash of the tunables and their values."""
        return hashlib.sha256(json.dumps(self.tunables).encode()).hexdigest()[:12]

    def points(self) -> Iterator[Values]:
        for values in itertools.product(*self.tunables.values()):
            yield dict(zip(self.tunables, values, strict=True))

    def values(self, indices: Mapping[str, int]) -> Values:
        """The point whose values have these indices in the lists of their tunables."""
        return {name: values[indices[name]] for name, values in self.tunables.items()}

    def indices(self, values: Values) -> dict[str, int] | None:
        """The index of each value in the list of its tunable; None if the point is not in the space."""
        try:
            return {name: listed.index(values[name]) for name, listed in self.tunables.items()}
        except (KeyError, ValueError):
            return None


def key(values: Values) -> str:
    """A configuration as text, the same for equal ones."""
    return json.dumps(values, sort_keys=True)


def read(op: str, tunables: Any, kind: str, capability: str | None = None, backward: bool = False) -> Space:
    """The space that a lab.py's TUNABLES has for a kind of device, cpu or cuda, and for a compute capability and the
    gradient where these have kernels of their own.

    Raises:
        LabError: it has none, or TUNABLES has another form; the message shows the right one.
    """
    example = f'TUNABLES = {{"{kind}": {{"threads": (128, 256)}}}}'
    if not tunables:
        raise LabError(f"{op} has no tunables; list them in its lab.py, such as {example}.")
    if not isinstance(tunables, dict) or not all(isinstance(key, str) and re.fullmatch(PART, key) for key in tunables):
        raise LabError(f"{op}/lab.py: TUNABLES should hold the tunables of cpu and of cuda, such as {example}.")
    kind = part(tunables, kind, capability, backward)
    if tunables.get(kind) == {}:
        raise LabError(f"{op} has nothing to tune for {kind}: its lab.py lists no tunables there, on purpose.")
    if not tunables.get(kind):
        raise LabError(f"{op} has no tunables for {kind}, only for {', '.join(tunables)}; add them to its lab.py.")
    for name, values in tunables[kind].items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise LabError(f"{op}/lab.py: a tunable is a member of a C++ struct, and {name!r} cannot name one.")
        if not isinstance(values, (tuple, list)) or not values or len(set(values)) < len(values):
            raise LabError(f"{op}/lab.py: TUNABLES[{kind!r}][{name!r}] should list different values.")
        if not all(type(value) in (int, bool) for value in values):
            raise LabError(f"{op}/lab.py: TUNABLES[{kind!r}][{name!r}] should hold whole numbers or bools.")
    return Space({name: tuple(values) for name, values in tunables[kind].items()})
