"""The rule by which a candidate is given up."""

import math

import numpy as np
import pytest

from kernelgen.lab.tune.lane import lowest


@pytest.mark.parametrize("count", [5, 8, 12, 40])
def test_the_lower_end_is_above_the_median_in_less_than_one_of_twenty(count):
    random = np.random.default_rng(count)
    above = [lowest(list(random.normal(0, 1, count))) > 0 for _ in range(4000)]
    assert sum(above) / len(above) < 0.06
    exact = sum(math.comb(count, k) for k in range(count + 1) if _rank(count) > k) / 2**count
    assert exact < 0.05


def _rank(count: int) -> int:
    """Which of the ordered values it is, counted from one."""
    return int(lowest([float(i) for i in range(1, count + 1)]))


def test_it_moves_up_with_more_values():
    assert [_rank(count) for count in (5, 8, 12, 40)] == [1, 2, 3, 15]
    assert lowest([3.0, 1.0, 2.0]) == 1.0
