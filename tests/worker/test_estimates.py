"""An estimate is asked once for all configurations that are alike in what it reads of them."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from kernelgen.errors import LabError
from kernelgen.worker.estimates import Estimates

TUNABLES = {"rows": (1, 2, 3, 4), "columns": (1, 2, 3), "band": (4, 8)}
POINTS = [dict(zip(TUNABLES, values, strict=True)) for values in itertools.product(*TUNABLES.values())]
CASES = [("half", {"n": 1}), ("half", {"n": 2}), ("single", {"n": 2})]


def part_alone(values, dtype, n):
    if values["rows"] == 2:
        return "two rows"
    return {"threads": values["columns"] * n} if dtype == "half" else f"{values['rows']} rows"


def later_case(values, dtype, n):
    return {"threads": values["band"] if n == 2 else values["rows"]}


def asked_for_nothing(values, dtype, n):
    return None


def whole(values, dtype, n):
    return {"threads": sum({**values}.values()) * n}


def named(values, dtype, n):
    rows, band = (dict(values)[name] for name in ("rows", "band"))
    return {"threads": rows * band}


def defaulted(values, dtype, n):
    return {"threads": values.get("band", 1) + values.get("absent", 0) + len(values) + ("rows" in values)}


def changing(values, dtype, n):
    values["rows"] += values.pop("band")
    values["more"] = 1
    return {"threads": values["rows"], "name": json.dumps(values)}


EVERY = (part_alone, later_case, asked_for_nothing, whole, named, defaulted, changing)


@pytest.mark.parametrize("estimate", EVERY)
def test_every_configuration_gets_what_the_estimate_says_of_it(estimate: Callable[..., Any]):
    known = Estimates("op", estimate, CASES)
    for values in [*POINTS, *POINTS[::-1]]:
        given = dict(values)
        row = [known.distinct[number] for number in known.row(given)]
        assert row == [estimate(dict(values), dtype, **sizes) for dtype, sizes in CASES]
        assert given == values
    assert all(known.distinct.count(estimate) == 1 for estimate in known.distinct)


@pytest.mark.parametrize(
    "estimate, calls",
    # Two rows are refused by that alone; three numbers of rows by three of columns remain.
    [(part_alone, 1 + 3 * 3), (later_case, 4 * 2), (asked_for_nothing, 1), (whole, 24), (named, 24), (changing, 24)],
)
def test_it_is_asked_once_for_what_it_reads(estimate: Callable[..., Any], calls: int):
    asked = []
    known = Estimates("op", lambda *given, **sizes: asked.append(sizes) or estimate(*given, **sizes), CASES)
    for values in POINTS:
        known.row(values)
    assert len(asked) == calls * len(CASES)


@pytest.mark.parametrize("estimate", [lambda values, *_, **__: 1 // 0, lambda values, *_, **__: values["absent"]])
def test_an_estimate_that_raises_is_named_with_its_configuration(estimate):
    known = Estimates("op", estimate, CASES)
    for _ in "twice":
        with pytest.raises(LabError, match=r'op/lab\.py: the estimate of \{"band": 4, .* raises \w+Error: '):
            known.row(POINTS[0])
