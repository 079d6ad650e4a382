"""Intervals from one long run: means of batches of consecutive observations.

Consecutive observations of a run are correlated, means of long enough batches of them nearly not;
then Student's t applies to the batch means. The number of batches is fixed, so their size grows
with the run: 10 to 30 batches lose little against more (B. Schmeiser, "Batch size effects in the
analysis of simulation output", Operations Research 30(3), 1982). Whether the batches are long
enough is tested afterwards: :func:`serial_correlation`.
"""

from __future__ import annotations

import math

import numpy as np

from simspec.core.stats import Interval, Values, mean_interval

NUM_BATCHES = 20
_REJECT_ABOVE = 1.645
"""One-sided 5 % of a standard normal."""


def batch_means(series: Values, num_batches: int = NUM_BATCHES) -> list[float]:
    """Return the means of ``num_batches`` equal batches; what does not divide is cut at the start.

    Parameters
    ----------
    series : sequence (n,)
        Observations in order of time, n >= num_batches.
    """
    observed = np.asarray(series, dtype=np.float64)
    size = observed.size // num_batches
    if size < 1:
        raise ValueError(f"{observed.size} observations make no {num_batches} batches")
    kept = observed[observed.size - size * num_batches :]
    means: list[float] = kept.reshape(num_batches, size).mean(axis=1).tolist()
    return means


def batch_interval(
    series: Values, num_batches: int = NUM_BATCHES, confidence: float = 0.95
) -> Interval:
    """Return the mean of a correlated series with the interval of its batch means."""
    return mean_interval(batch_means(series, num_batches), confidence)


def serial_correlation(means: Values) -> tuple[float, bool]:
    """Return the lag-1 correlation of batch means, and whether it is more than chance.

    Von Neumann's ratio as a correlation, ``1 - sum(d²) / (2 sum((x - mean)²))`` with ``d`` the
    differences of neighbours: under independence its mean is 0 and its variance
    ``(b - 2) / (b² - 1)``. Tested one-sided at 5 %: batches that are too short correlate
    positively, and make intervals too narrow.

    Source: J. von Neumann, Annals of Mathematical Statistics 12(4), 1941; G. S. Fishman,
    *Discrete-Event Simulation*, 2001, section 6.6.
    """
    values = np.asarray(means, dtype=np.float64)
    spread = float(((values - values.mean()) ** 2).sum())
    if values.size < 3 or spread == 0.0:
        return 0.0, False
    correlation = 1.0 - float((np.diff(values) ** 2).sum()) / (2.0 * spread)
    deviation = math.sqrt((values.size - 2.0) / (values.size**2 - 1.0))
    return correlation, correlation > _REJECT_ABOVE * deviation
