"""Which point a Gaussian process expects most of, by what is known of others.

Sources: Gaussian processes are scikit-learn's (Rasmussen & Williams, 2006). What is expected is Jones, Schonlau &
Welch's improvement over the best (1998). What is in flight is believed to become what is predicted, so that the next
point is another one: Ginsbourger, Le Riche & Carraro's kriging believer (2010).
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
    """The number of the point in `left` from which the largest improvement is expected.

    Args:
        tried: (n, d), each of d coordinates from 0 to 1, with n of 2 or more; `losses`: (n,), each above 0, of which
            what matters is by how many times they differ.
        pending: (p, d), those in flight; `left`: (m, d), those to choose from, m of 1 or more.
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
    """With the length scales, one for each coordinate, under which what is known is most likely."""
    lengths = Matern(np.full(tried.shape[1], 0.5), (0.05, 20.0), nu=2.5)
    kernel = ConstantKernel(1.0, (0.05, 20.0)) * lengths + WhiteKernel(1e-3, (1e-5, 0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # A tunable that does not matter has no length scale.
        return GaussianProcessRegressor(kernel, random_state=0).fit(tried, scaled)
