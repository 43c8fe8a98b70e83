"""Medians of timings with their intervals, and whether two sets of timings differ.

Sources: the bootstrap is Efron's (1979), its percentile interval Efron & Tibshirani (1993); delta is Cliff's (1993);
the tests are Mann & Whitney's (1947) for independent samples and Wilcoxon's signed-rank test (1945) for pairs; several
tests at once are corrected as Holm (1979) has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000
CONFIDENCE = 0.95
# Two 95% intervals that leave a gap between them are about as rare by chance as one 99% interval of their ratio that
# leaves out 1 (99.4% for normal errors of one size), so pairs, which have but the one interval, are held to that.
RATIO_CONFIDENCE = 0.99
# With fewer samples, the interval of a median does not have its nominal confidence.
FEWEST = 10


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval, all in one unit."""

    value: float
    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high

    def as_list(self) -> list[float]:
        return [self.value, self.low, self.high]


def median(samples: Sequence[float], confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """The median, and its bootstrap interval (percentiles of 10,000 resamples); of one sample, the sample."""
    return _bootstrap((np.asarray(samples, float),), np.median, confidence, seed)


def ratio(
    before: Sequence[float], after: Sequence[float], confidence: float = RATIO_CONFIDENCE, seed: int = 0
) -> Interval:
    """The median of `after` over that of `before`, two independent sets."""

    def statistic(a: Any, b: Any, axis: int) -> Any:
        return np.median(b, axis=axis) / np.median(a, axis=axis)

    return _bootstrap((np.asarray(before, float), np.asarray(after, float)), statistic, confidence, seed)


def _bootstrap(data: tuple[Any, ...], statistic: Any, confidence: float, seed: int) -> Interval:
    value = float(statistic(*data, axis=-1))
    if min(map(len, data)) < 2:
        return Interval(value, value, value)
    interval = stats.bootstrap(
        data,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(value, float(interval.low), float(interval.high))


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """P(after > before) - P(after < before) over all pairs: 1 where every `after` is the larger, -1 the smaller."""
    u = stats.mannwhitneyu(after, before).statistic
    return float(2 * u / (len(before) * len(after)) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values, corrected for the number of tests (Holm's method)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, p_values[i] * (len(order) - rank)))
        corrected[i] = largest
    return corrected


def spread(samples: Sequence[float]) -> float:
    """The coefficient of variation: the standard deviation over the mean."""
    values = np.asarray(samples, float)
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.0


def percentile(samples: Sequence[float], percent: float) -> float:
    return float(np.percentile(samples, percent))


@dataclass(frozen=True)
class Difference:
    """How `after` differs from `before`.

    Attributes:
        ratio: the time after over the time before, with its 99% interval; above 1 is slower.
        apart: whether the intervals leave a gap.
        delta: Cliff's delta, positive where `after` takes longer.
        p: of the test that belongs to the samples, before any correction.
        count: how many samples, or pairs, there are.
    """

    ratio: Interval
    apart: bool
    delta: float
    p: float
    count: int


def difference(before: Sequence[float], after: Sequence[float], seed: int = 0) -> Difference:
    """Two independent sets of seconds, by the medians' 95% intervals and Mann & Whitney's test."""
    apart = not median(before, seed=seed).overlaps(median(after, seed=seed))
    p = float(stats.mannwhitneyu(after, before).pvalue)
    count = min(len(before), len(after))
    return Difference(ratio(before, after, seed=seed), apart, cliffs_delta(before, after), p, count)


def paired_difference(ratios: Sequence[float], seed: int = 0) -> Difference:
    """Pairs that were measured side by side, by the ratio after / before of each: what slows both down cancels.

    Divide both times of a pair by the pair's level, their geometric mean, and the logarithms that are left are ∓d/2,
    d the logarithm of the ratio. The intervals of the two medians then mirror each other: they leave a gap exactly
    where that of d leaves out 0. Cliff's delta of the two is P(d_i + d_j > 0) - P(d_i + d_j < 0), over all i and j.
    Mann & Whitney's test would take the two for independent, which they are not; Wilcoxon's signed-rank test is the
    one that counts the same sums and knows that they come in pairs.
    """
    ratio_of_pairs = median(ratios, RATIO_CONFIDENCE, seed)
    logs = np.log(np.asarray(ratios, float))
    p = float(stats.wilcoxon(logs).pvalue) if logs.any() else 1.0
    apart = not ratio_of_pairs.low <= 1 <= ratio_of_pairs.high
    return Difference(ratio_of_pairs, apart, cliffs_delta(-logs, logs), p, len(logs))
