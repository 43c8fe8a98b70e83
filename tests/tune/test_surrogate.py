"""Which point a Gaussian process expects most of."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from kernelgen.tune.surrogate import most_promising

LINE = np.linspace(0, 1, 21).reshape(-1, 1)
NOBODY = np.empty((0, 1))


def of(*places: float) -> np.ndarray:
    return np.array(places).reshape(-1, 1)


def bowl(points: np.ndarray) -> np.ndarray:
    """The least is 1, at 0.6."""
    return 1 + 4 * (points[:, 0] - 0.6) ** 2


def test_it_is_near_the_least():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    assert LINE[most_promising(tried, bowl(tried), NOBODY, LINE), 0] == pytest.approx(0.6, abs=0.11)


def test_the_next_is_another_while_that_is_in_flight():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    first = most_promising(tried, bowl(tried), NOBODY, LINE)
    left = np.delete(LINE, first, axis=0)
    second = left[most_promising(tried, bowl(tried), LINE[[first]], left), 0]
    assert abs(second - LINE[first, 0]) > 0.04


def test_only_by_how_many_times_they_differ_matters():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    found = [most_promising(tried, unit * bowl(tried), NOBODY, LINE) for unit in (1e-6, 1, 1e6)]
    assert found == found[:1] * 3


def test_where_all_are_equal_it_goes_where_nobody_was():
    tried = of(0, 0.1, 0.2, 0.3)
    assert LINE[most_promising(tried, np.ones(4), NOBODY, LINE), 0] >= 0.6


def test_a_coordinate_that_does_not_matter_does_not_mislead():
    random = np.random.default_rng(0)
    tried, left = random.random((30, 3)), random.random((400, 3))
    found = left[most_promising(tried, bowl(tried), np.empty((0, 3)), left)]
    assert found[0] == pytest.approx(0.6, abs=0.1)
