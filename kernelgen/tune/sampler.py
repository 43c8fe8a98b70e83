"""Which points of a space to try: at first some that are spread over it, then those that a Gaussian process favours.

Source: Latin hypercube sampling is McKay, Beckman & Conover's (1979), from scipy; see `surrogate.py` for the process.
"""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from kernelgen.tune import surrogate
from kernelgen.tune.space import Space, Values, key

# The fewest times that a Gaussian process is fitted to, and the most points that it is asked about.
MIN_MEASURED, MAX_POINTS = 4, 20_000


def latin_hypercube(space: Space, points: Sequence[Values], count: int, seed: int) -> list[Values]:
    """Points spread over a space, all different: `count` of them, or all if there are fewer. Where the hypercube has a
    point that is not in `points`, one of the nearest takes its place."""
    sampler, random = qmc.LatinHypercube(len(space.tunables), seed=seed), Random(seed)
    left = {key(values): values for values in points}
    chosen: list[Values] = []
    for shares in sampler.random(min(count, len(left))):
        indices = {
            name: min(int(share * len(listed)), len(listed) - 1)
            for share, (name, listed) in zip(shares, space.tunables.items(), strict=True)
        }
        values = space.values(indices)
        if key(values) not in left:
            values = _nearest(space, indices, list(left.values()), random)
        chosen.append(left.pop(key(values)))
    return chosen


def promising(
    space: Space,
    left: Sequence[Values],
    times: Sequence[tuple[Values, float | None]],
    in_flight: Sequence[Values],
    random: Random,
) -> Values:
    """The point of `left` from which a Gaussian process expects the largest improvement, or one by chance while too few
    are measured.

    Args:
        times: the points that were tried, with their times over the default's; None for a point that failed.
        in_flight: the points that are being tried.
    """
    measured = [time for _, time in times if time is not None]
    if len(measured) < MIN_MEASURED:
        return random.choice(left)
    # A point that failed counts as the slowest, so that points like it are avoided.
    losses = np.array([max(measured) if time is None else time for _, time in times])
    sample = random.sample(left, min(len(left), MAX_POINTS))
    tried = _coordinates(space, [values for values, _ in times])
    best = surrogate.most_promising(tried, losses, _coordinates(space, in_flight), _coordinates(space, sample))
    return sample[best]


def _nearest(space: Space, indices: Mapping[str, int], points: Sequence[Values], random: Random) -> Values:
    """The point whose indices differ least in sum; by chance one of these, if several do."""

    def distance(values: Values) -> int:
        other = space.indices(values)
        return sum(abs(other[name] - index) for name, index in indices.items())

    distances = [distance(values) for values in points]
    return random.choice([values for values, steps in zip(points, distances, strict=True) if steps == min(distances)])


def _coordinates(space: Space, points: Sequence[Values]) -> NDArray[np.float64]:
    """The index of each value over that of the last value in its tunable's list, so 0 to 1; (points, tunables)."""
    last = [max(1, len(listed) - 1) for listed in space.tunables.values()]
    indices = [list(space.indices(values).values()) for values in points]
    return np.array(indices, dtype=np.float64).reshape(len(points), len(last)) / last
