"""Medians and their intervals, by order statistics: no assumption about how timings are distributed."""

import math


def median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(values: list[float]) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that holds the true median with 95% confidence."""
    ordered, n = sorted(values), len(values)
    tail, k = 0.0, 0
    while (tail := tail + math.comb(n, k) / 2**n) <= 0.025:
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]
