"""Confidence intervals over replications, and the warm-up cut of one run.

A replication gives one number per metric; replications are independent, so Student's t
applies to their mean. Numbers within one run are correlated and never get an interval here.

Source: A. M. Law, *Simulation Modeling and Analysis*, 5th ed., ch. 9 (replication/deletion,
paired-t for common random numbers, ratio estimators).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over ``n`` replications and its confidence interval.

    ``low`` and ``high`` are None when no interval exists: one replication says nothing about
    its own spread, and a metric that is undefined (NaN) in some replication has no mean.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """Half of ``high - low``; None when there is no interval."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2.0


def mean_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Return the mean of independent values and its Student-t interval.

    Parameters
    ----------
    values : sequence (n,)
        One number per replication, n >= 1.
    confidence : float
        Coverage, 0..1.
    """
    sample = _sample(values)
    mean = float(sample.mean())
    if sample.size < 2:
        return Interval(mean, None, None, sample.size)
    return _around(mean, float(sample.std(ddof=1)), sample.size, confidence)


def paired_difference(a: Values, b: Values, confidence: float = 0.95) -> Interval:
    """Return the interval of mean(a - b) for values paired by common random numbers."""
    first, second = _paired(a, b)
    return mean_interval(first - second, confidence)


def ratio_interval(numerator: Values, denominator: Values, confidence: float = 0.95) -> Interval:
    """Return the ratio of two means over paired replications, with its interval.

    The ratio of means, not the mean of ratios: long replications weigh more. Delta method:
    with r = mean(x) / mean(y), the variance of r is that of ``x - r y`` over
    ``n mean(y)**2``.

    Parameters
    ----------
    numerator, denominator : sequence (n,)
        One pair per replication, n >= 1; the mean of the denominator is not zero, else the
        ratio is undefined (NaN, no interval).
    """
    x, y = _paired(numerator, denominator)
    scale = float(y.mean())
    if scale == 0.0:
        return Interval(math.nan, None, None, x.size)
    ratio = float(x.mean()) / scale
    if x.size < 2:
        return Interval(ratio, None, None, x.size)
    spread = float((x - ratio * y).std(ddof=1)) / abs(scale)
    return _around(ratio, spread, x.size, confidence)


def mser5(series: Values) -> int:
    """Return how many leading observations of a run to drop as warm-up.

    MSER-5: over means of five consecutive observations, cut where the standard error of
    what remains is smallest. The cut is never beyond the first half, where too little remains
    to judge; a result at the limit means the run is too short or has no steady state.

    Source: K. P. White, *Simulation* 69(6), 1997; S. Robinson and K. P. White, WSC 2010.

    Parameters
    ----------
    series : sequence (n,)
        Observations in order of time.
    """
    observed = np.asarray(series, dtype=np.float64)
    num_batches = observed.size // 5
    if num_batches < 2:
        return 0
    batches = observed[: 5 * num_batches].reshape(num_batches, 5).mean(axis=1)
    # Centred first, so that the difference of sums below does not cancel.
    batches = batches - batches.mean()
    remaining = np.arange(num_batches, 0, -1, dtype=np.float64)
    total = np.cumsum(batches[::-1])[::-1]
    squares = np.cumsum((batches**2)[::-1])[::-1]
    score = np.maximum(squares - total**2 / remaining, 0.0) / remaining**2
    return 5 * int(np.argmin(score[: num_batches // 2 + 1]))


def _around(mean: float, spread: float, n: int, confidence: float) -> Interval:
    # scipy.special alone: scipy.stats takes several times longer to import.
    from scipy.special import stdtrit

    half_width = float(stdtrit(n - 1, 0.5 + confidence / 2.0)) * spread / math.sqrt(n)
    if not math.isfinite(half_width):
        return Interval(mean, None, None, n)
    return Interval(mean, mean - half_width, mean + half_width, n)


def _sample(values: Values) -> npt.NDArray[np.float64]:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"expected a non-empty one-dimensional sample, got shape {sample.shape}")
    return sample


def _paired(a: Values, b: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    first, second = _sample(a), _sample(b)
    if first.size != second.size:
        raise ValueError(f"paired samples differ in length: {first.size} and {second.size}")
    return first, second
