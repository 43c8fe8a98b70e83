"""From which point a Gaussian process expects the largest improvement.

Optuna's GPSampler does less well on tables of kernels' times (benchmarks/tune_samplers.py), and needs torch.

Sources: the process is scikit-learn's (Rasmussen & Williams, 2006), the expected improvement Jones, Schonlau & Welch's
(1998). A point in flight is taken to have the time that is predicted for it, so that the next point is another: the
kriging believer of Ginsbourger, Le Riche & Carraro (2010).
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from threadpoolctl import threadpool_limits

Points = NDArray[np.float64]


@threadpool_limits.wrap(limits=1)  # The other cores compile, and measure.
def most_promising(tried: Points, losses: NDArray[np.float64], pending: Points, left: Points) -> int:
    """The index in `left` of the point from which the largest improvement is expected.

    Args:
        tried: (n, d), n at least 2, coordinates from 0 to 1; `losses`: (n,), above 0, whose ratios alone matter.
        pending: (p, d), the points in flight; `left`: (m, d), the points to choose from, m at least 1.
    """
    logs = np.log(losses)
    scaled = (logs - logs.mean()) / (logs.std() or 1.0)
    process = _fitted(tried, scaled)
    if len(pending):
        believed = np.concatenate([scaled, process.predict(pending)])
        process = GaussianProcessRegressor(process.kernel_, optimizer=None)
        process.fit(np.concatenate([tried, pending]), believed)
    mean, spread = process.predict(left, return_std=True)
    gain, spread = scaled.min() - mean, np.maximum(spread, 1e-9)
    return int(np.argmax(gain * norm.cdf(gain / spread) + spread * norm.pdf(gain / spread)))


def _fitted(tried: Points, scaled: NDArray[np.float64]) -> GaussianProcessRegressor:
    """A process with the length scales, one a coordinate, under which the losses are most likely."""
    lengths = Matern(np.full(tried.shape[1], 0.5), (0.05, 20.0), nu=2.5)
    kernel = ConstantKernel(1.0, (0.05, 20.0)) * lengths + WhiteKernel(1e-3, (1e-5, 0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # A tunable that does not matter has no length scale.
        return GaussianProcessRegressor(kernel, random_state=0).fit(tried, scaled)
