"""The numbers that a function takes where it refuses others: probabilities, variances, scalars.

Samples are drawn from a normal distribution. Where the function raises of them, each tensor is drawn from the widest of
a few intervals that it takes. Kernels do not look: what the function refuses, they compute.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kernelgen.worker.trace.function import Function

Interval = tuple[float, float]
Domains = dict[str, Interval]

_UNIT = (0.1, 0.9)
# What tensors are drawn from until the function takes them: all alike, then each of its own.
_NARROW: tuple[Interval, ...] = (_UNIT, (1.1, 2.9), (-0.9, -0.1))
# What each is drawn from instead if the function takes that, too; None: normal numbers.
_WIDER: tuple[Interval | None, ...] = (None, (-0.9, 0.9), (0.1, 2.9), (-2.9, -0.1))
_MOST_OF_THEIR_OWN = 3
# Of numbers that functions like to refuse, whatever others they take; and what is drawn from where one does.
_RARE = (float("nan"), float("inf"), float("-inf"), 0.0, 6e4, -6e4)
_USUAL = (-2.9, 2.9)
# A function that raises of shapes raises of the same shapes in any interval.
_MOST_VAIN = 4
_DIGITS = re.compile(r"\d+")


class DomainSearch:
    """The intervals that a function's tensors are drawn from, under one assumption after another."""

    def __init__(self) -> None:
        self._vain: Counter[str] = Counter()

    def bounded(self, function: Function, assumption: Any, error: Exception) -> Any | None:
        """The assumption with the intervals in which the function does not raise this error, nor another one; None
        where there are none, or the function did not raise it."""
        text = _DIGITS.sub("", f"{type(error).__name__} {error}")
        if self._vain[text] >= _MOST_VAIN or _takes(function, assumption):
            return None
        names = [name for name, dtype in assumption.dtypes.items() if dtype == "float"]
        for domains in _narrow(names):
            if _takes(function, replace(assumption, domains=domains)):
                return replace(assumption, domains=_widened(function, assumption, domains))
        self._vain[text] += 1
        return None


def refused_numbers(function: Function, assumption: Any) -> Domains:
    """The intervals of tensors of which the function takes normal numbers, but refuses NaN, infinity, zero or large
    ones."""
    values = assumption.sample(0).values

    def refuses(name: str, number: float) -> bool:
        changed = values[name].clone()
        changed.view(-1)[0] = number
        try:
            function.call(*{**values, name: changed}.values())
        except (AssertionError, RuntimeError, ValueError):
            return True
        return False

    names = [n for n, dtype in assumption.dtypes.items() if dtype == "float" and n not in assumption.domains]
    return {name: _USUAL for name in names if any(refuses(name, number) for number in _RARE)}


def samples(function: Function, assumption: Any) -> dict[str, str]:
    """Scalars that tests and the lab pass, as Python writes them, where the function raises of those that stand for
    their types: a quotient of differences of two that are one number."""
    kinds = {"float": float, "int": int, "SymInt": int}
    required = {a["name"]: a for a in assumption.arguments if a["type"] in kinds and not a["default"]}
    usual = {name: kinds[a["type"]](a["sample"]) for name, a in required.items() if name != assumption.dim}
    first, *others = (assumption.sample(k).values for k in range(4))
    for values in ({**first, **usual}, first, *others) if usual else ():
        try:
            function.call(*values.values())
        except Exception:  # It does not take these.
            continue
        return {name: repr(values[name]) for name in usual if values[name] != usual[name]}
    return {}


def _narrow(names: list[str]) -> Iterator[Domains]:
    yield from (dict.fromkeys(names, interval) for interval in _NARROW)
    if 1 < len(names) <= _MOST_OF_THEIR_OWN:
        every = itertools.product(_NARROW, repeat=len(names))
        yield from (dict(zip(names, own, strict=True)) for own in every if len(set(own)) > 1)


def _widened(function: Function, assumption: Any, domains: Domains) -> Domains:
    """The same with each interval as wide as the function takes it."""
    for name in list(domains):
        for interval in _WIDER:
            wider = {n: own for n, own in domains.items() if n != name} | ({name: interval} if interval else {})
            if _takes(function, replace(assumption, domains=wider)):
                domains = wider
                break
    return domains


def _takes(function: Function, assumption: Any) -> bool:
    """Whether the function takes samples that are drawn so."""
    try:
        for sample in (*map(assumption.sample, range(4)), assumption.large_sample()):
            function.call(*sample.values.values())
    except Exception:  # Of whatever else it raises, the next call tells.
        return False
    return True
