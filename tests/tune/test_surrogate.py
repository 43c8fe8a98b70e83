"""Which point a Gaussian process expects to be fastest."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from kernelgen.tune.surrogate import most_promising

LINE = np.linspace(0, 1, 21).reshape(-1, 1)
NONE_IN_FLIGHT = np.empty((0, 1))


def of(*places: float) -> np.ndarray:
    return np.array(places).reshape(-1, 1)


def bowl(points: np.ndarray) -> np.ndarray:
    """The least is 1, at 0.6."""
    return 1 + 4 * (points[:, 0] - 0.6) ** 2


def test_the_choice_is_near_the_least():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    assert LINE[most_promising(tried, bowl(tried), NONE_IN_FLIGHT, LINE), 0] == pytest.approx(0.6, abs=0.11)


def test_while_a_point_is_in_flight_another_is_chosen():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    first = most_promising(tried, bowl(tried), NONE_IN_FLIGHT, LINE)
    left = np.delete(LINE, first, axis=0)
    second = left[most_promising(tried, bowl(tried), LINE[[first]], left), 0]
    assert abs(second - LINE[first, 0]) > 0.04


def test_the_unit_of_times_does_not_matter():
    tried = of(0, 0.2, 0.4, 0.8, 1)
    chosen = [most_promising(tried, unit * bowl(tried), NONE_IN_FLIGHT, LINE) for unit in (1e-6, 1, 1e6)]
    assert chosen == chosen[:1] * 3


def test_where_all_times_are_equal_the_choice_is_far_from_the_points_tried():
    tried = of(0, 0.1, 0.2, 0.3)
    assert LINE[most_promising(tried, np.ones(4), NONE_IN_FLIGHT, LINE), 0] >= 0.6


def test_a_coordinate_that_does_not_matter_does_not_mislead():
    random = np.random.default_rng(0)
    tried, left = random.random((30, 3)), random.random((400, 3))
    chosen = left[most_promising(tried, bowl(tried), np.empty((0, 3)), left)]
    assert chosen[0] == pytest.approx(0.6, abs=0.1)
