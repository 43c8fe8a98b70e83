"""The statistics against their definitions, and the gate's rule on samples whose truth is known."""

import math

import numpy as np
import pytest

from kernelgen.lab import statistics
from kernelgen.lab.compare import IMPROVEMENT, INCONCLUSIVE, NO_DIFFERENCE, REGRESSION, Thresholds, judge


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch):
    """A tenth of what a comparison takes: enough for what is asked here, and these ask it a thousand times."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)


def normal(mean: float, spread: float, count: int = 100, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(mean, spread * mean, count))


def test_the_interval_of_a_median_holds_it():
    held = 0
    for seed in range(100):
        interval = statistics.median(normal(5.0, 0.1, seed=seed), seed=seed)
        assert interval.low <= interval.value <= interval.high
        held += interval.low <= 5.0 <= interval.high
    assert held >= 88


def test_the_interval_is_the_same_for_the_same_seed():
    samples = normal(1.0, 0.1)
    assert statistics.median(samples, seed=3) == statistics.median(samples, seed=3)


def test_one_sample_and_constant_samples_have_an_interval_without_width():
    assert statistics.median([2.0]).as_list() == [2.0, 2.0, 2.0]
    assert statistics.median([2.0] * 50).as_list() == [2.0, 2.0, 2.0]
    assert statistics.paired_difference([1.0] * 20).p == 1.0


def test_cliffs_delta_by_its_definition():
    before, after = [1.0, 2.0, 3.0, 3.0], [2.0, 3.0, 4.0]
    pairs = [(a, b) for a in before for b in after]
    expected = sum(np.sign(b - a) for a, b in pairs) / len(pairs)
    assert statistics.cliffs_delta(before, after) == pytest.approx(expected)
    assert statistics.cliffs_delta([1, 2], [3, 4]) == 1
    assert statistics.cliffs_delta([3, 4], [1, 2]) == -1


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_paired_delta_is_that_of_the_times_over_their_rounds_level():
    before, after = np.array(normal(1.0, 0.1, 30)), np.array(normal(1.02, 0.1, 30, seed=1))
    level = np.sqrt(before * after)
    difference = statistics.paired_difference(list(after / before))
    assert difference.delta == pytest.approx(statistics.cliffs_delta(before / level, after / level))
    assert difference.ratio.value == pytest.approx(float(np.median(after / before)))


def test_pairs_see_through_a_drift_that_hides_the_difference_from_independent_samples():
    drift = np.linspace(1.0, 1.5, 40)
    before = drift * normal(1.0, 0.005, 40)
    after = drift * normal(1.04, 0.005, 40, seed=1)
    assert not statistics.difference(before, after).apart
    assert statistics.paired_difference(after / before).apart


def verdict(difference: statistics.Difference, **thresholds: float) -> str:
    return judge({"case": difference}, Thresholds(**thresholds))["case"][0]


@pytest.mark.parametrize(
    "ratio, expected",
    [(1.0, NO_DIFFERENCE), (1.01, NO_DIFFERENCE), (1.06, REGRESSION), (0.95, NO_DIFFERENCE), (0.8, IMPROVEMENT)],
)
def test_the_verdict_on_clear_samples(ratio, expected):
    before, after = normal(1.0, 0.005), normal(ratio, 0.005, seed=1)
    assert verdict(statistics.difference(before, after)) == expected
    assert verdict(statistics.paired_difference(list(np.divide(after, before)))) == expected


def test_a_slowdown_at_the_threshold_is_found_though_half_the_estimates_fall_short_of_it():
    """True for any noise that lets the interval leave out 1: the gate asks whether 3% can be ruled out."""
    differences = [statistics.paired_difference(normal(1.03, 0.03, 40, seed), seed) for seed in range(200)]
    short = sum(difference.ratio.value < 1.03 for difference in differences)
    assert 60 < short < 140
    assert sum(verdict(difference) == REGRESSION for difference in differences) >= 190


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.3])
def test_false_alarms_over_200_comparisons_of_the_same(spread):
    """The seeds are fixed, so this is the same draw in every run: at most 1%, however noisy the machine."""
    ratios = (np.exp(np.random.default_rng(seed).normal(0, spread, 40)) for seed in range(200))
    alarms = sum(verdict(statistics.paired_difference(list(pairs))) == REGRESSION for pairs in ratios)
    assert alarms <= 2


def test_too_few_samples_show_nothing():
    assert verdict(statistics.paired_difference([1.5] * 9)) == INCONCLUSIVE


def test_thresholds_can_be_set():
    difference = statistics.difference(normal(1.0, 0.001), normal(1.02, 0.001, seed=1))
    assert verdict(difference) == NO_DIFFERENCE
    assert verdict(difference, slower=0.01) == REGRESSION
    assert verdict(difference, slower=0.01, p=0.0) == INCONCLUSIVE
    assert math.isclose(difference.ratio.value, 1.02, rel_tol=0.01)


def test_many_cases_take_stronger_evidence_each():
    p = 0.02
    difference = statistics.Difference(statistics.Interval(1.05, 1.01, 1.1), True, 0.5, p, 40)
    assert judge({"one": difference}, Thresholds())["one"][0] == REGRESSION
    many = judge({str(i): difference for i in range(5)}, Thresholds())
    assert {verdict for verdict, _ in many.values()} == {INCONCLUSIVE}
