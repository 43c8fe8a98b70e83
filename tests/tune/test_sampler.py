"""Which points are tried."""

from random import Random

import pytest

pytest.importorskip("sklearn")

from kernelgen.tune import sampler
from kernelgen.tune.space import Space, key

SPACE = Space({"a": tuple(range(8)), "b": (1, 2, 4, 8)})
POINTS = list(SPACE.points())


def test_the_first_points_are_spread_over_every_tunable():
    points = sampler.latin_hypercube(SPACE, POINTS, 8, seed=1)
    assert sorted(values["a"] for values in points) == list(range(8))
    assert sorted(values["b"] for values in points) == [1, 1, 2, 2, 4, 4, 8, 8]


def test_where_a_point_is_missing_the_nearest_takes_its_place():
    left = [values for values in POINTS if values["a"] != 3]
    before, after = (sampler.latin_hypercube(SPACE, points, 8, seed=1) for points in (POINTS, left))
    (moved,) = (n for n, values in enumerate(before) if values["a"] == 3)
    assert after[moved]["a"] in (2, 4)
    assert after[moved]["b"] == before[moved]["b"]


def test_few_points_are_all_taken_once():
    points = sampler.latin_hypercube(SPACE, POINTS[:5], 8, seed=1)
    assert sorted(map(key, points)) == sorted(map(key, POINTS[:5]))


def test_chance_chooses_while_too_few_are_measured():
    times = [(POINTS[0], 1.0), (POINTS[1], None), (POINTS[2], 2.0), (POINTS[3], 3.0)]
    chosen = {key(sampler.promising(SPACE, POINTS[4:], times, [], Random(seed))) for seed in range(20)}
    assert len(chosen) > 5


def test_points_like_one_that_failed_are_avoided():
    times = [({"a": a, "b": b}, None if a > 3 else 1.0 + a / 10) for a in (0, 2, 5, 7) for b in (1, 8)]
    left = [values for values in POINTS if values["b"] in (2, 4)]
    assert sampler.promising(SPACE, left, times, [], Random(0))["a"] < 3
