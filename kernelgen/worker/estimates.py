"""What a lab.py says that configurations take of a GPU, each answer computed once.

Most refusals look at two or three tunables of a dozen. So what an estimate reads of a configuration is noted, and one
that has the same values there gets the same answer: a space of 155,520 points takes 9,000 calls for each case.
"""

import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernelgen.errors import LabError

# What a configuration takes in each case, as numbers in `Estimates.distinct`.
Row = tuple[int, ...]


class Estimates:
    """Of one op, for the same cases."""

    def __init__(self, op: str, estimate: Callable[..., Any], cases: Sequence[tuple[Any, dict[str, int]]]) -> None:
        """The cases are pairs of a dtype and sizes; `estimate(values, dtype, **sizes)` depends on nothing else."""
        self._op, self._estimate, self._cases = op, estimate, cases
        self.distinct: list[Any] = []  # Equal estimates stand once.
        self._numbers: dict[Any, int] = {}
        # By the tunables that were read, the rows by the values of those.
        self._rows: dict[tuple[str, ...], dict[tuple[Any, ...], Row]] = {}

    def row(self, values: Mapping[str, Any]) -> Row:
        """What a configuration takes.

        Raises:
            LabError: the estimate raises.
        """
        for names, rows in self._rows.items():
            row = rows.get(tuple([values[name] for name in names]))
            if row is not None:
                return row
        read: dict[str, Any] = {}
        try:
            row = self._row([self._estimate(_Values(values, read), dtype, **sizes) for dtype, sizes in self._cases])
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            point = json.dumps(dict(values), sort_keys=True)
            raise LabError(f"{self._op}/lab.py: the estimate of {point} raises {problem}") from error
        names = tuple(sorted(read))
        self._rows.setdefault(names, {})[tuple([values[name] for name in names])] = row
        return row

    def _row(self, estimates: Iterable[Any]) -> Row:
        # Cases of one class follow each other and mostly take the same: comparing is quicker than spelling.
        last, number, row = None, -1, []
        for estimate in estimates:
            if estimate != last or number < 0:
                last, number = estimate, self._number(estimate)
            row.append(number)
        return tuple(row)

    def _number(self, estimate: Any) -> int:
        # Most are sentences, which need no spelling; no sentence equals the tuple of another kind.
        spelt = estimate if isinstance(estimate, str) else (_spelt(estimate),)
        if spelt not in self._numbers:
            self._numbers[spelt] = len(self.distinct)
            self.distinct.append(estimate)
        return self._numbers[spelt]


def _spelt(estimate: Any) -> bytes | str:
    """An estimate as something that can be looked up. JSON, which takes five times as long, spells numbers of other
    classes than Python's, too."""
    try:
        return marshal.dumps(estimate, 2)  # From version 3 on, what is one object is spelt otherwise than equal ones.
    except ValueError:
        return json.dumps(estimate)


class _Values(dict[str, Any]):
    """A configuration that notes in `read` which of its tunables are read; the estimate's own to change."""

    __slots__ = ("_read", "_unread")

    def __init__(self, values: Mapping[str, Any], read: dict[str, Any]) -> None:
        super().__init__(read)  # What another case has read needs no note.
        self._unread: Mapping[str, Any] | None = values
        self._read = read

    def __missing__(self, name: str) -> Any:
        if self._unread is None:
            raise KeyError(name)
        value = self[name] = self._read[name] = self._unread[name]
        return value

    def _read_all(self) -> None:
        if self._unread is None:
            return
        whole, self._unread = self._unread, None
        self._read.update(whole)
        changed = dict.copy(self)
        dict.clear(self)  # The order is that of the tunables.
        dict.update(self, {**whole, **changed})

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return super().__iter__()


def _reading_all(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def read(self: _Values, *arguments: Any, **named: Any) -> Any:
        self._read_all()
        return method(self, *arguments, **named)

    return read


# Whatever looks at more than an element reads everything.
for _name in (
    *("__contains__", "__delitem__", "__eq__", "__len__", "__ne__", "__or__", "__repr__", "__reversed__", "__ror__"),
    *("clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "values"),
):
    setattr(_Values, _name, _reading_all(_name))
