"""Faults, warnings and other remarks on measured cases, in few lines: the same remark on many cases is one line."""

import re
from collections.abc import Iterable
from typing import Any

from kernelgen.lab import results

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def remarks(cases: Iterable[dict[str, Any]]) -> list[str]:
    """Every fault; then the warnings, and the peers that were left out. Of remarks that differ in their numbers alone,
    the remark with the largest number stands for all, with the count of the others."""
    faults: list[str] = []
    alike: dict[str, list[tuple[float, str, str]]] = {}
    for case in cases:
        name = results.key(case)
        faults += [f"{name}: WRONG: {fault}" for fault in case["faults"]]
        left_out = [f"{peer} was left out: {why}" for peer, why in case["left_out"].items()]
        for text in [*case["warnings"], *left_out]:
            number = _NUMBER.search(text)
            alike.setdefault(_NUMBER.sub("#", text), []).append((float(number[0]) if number else 0.0, name, text))
    return faults + [_line(remarks) for remarks in alike.values()]


def _line(alike: list[tuple[float, str, str]]) -> str:
    _, name, text = max(alike, key=lambda remark: remark[0])
    more = len(alike) - 1
    return f"{name}{f' and {more} case' + 's' * (more > 1) + ' more' if more else ''}: {text}"
