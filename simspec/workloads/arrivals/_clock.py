"""Arrivals at a rate that changes: a renewal process of unit rate on a clock that runs unevenly.

With Λ(t) the integral of the rate up to t, request i arrives at Λ⁻¹(Γ_i), where Γ_i are the times
of a renewal process with gamma gaps of mean 1. With gaps of CV 1 that is the Poisson process of
that rate, by inversion (Çınlar, *Introduction to Stochastic Processes*, 1975, chapter 4): the
number of arrivals in any span is Poisson with the integral of the rate as mean and variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from simspec.workloads._base import Arrivals, ArrivalsConfig

FloatArray: TypeAlias = npt.NDArray[np.float64]


class VaryingRate(ArrivalsConfig):
    """Base of arrival processes whose rate is a function of time."""

    cv: float = Field(default=1.0, ge=0.01, le=100)
    """Coefficient of variation of the gaps where the rate is steady; 1: a Poisson process."""

    def expected_by(self, times_s: FloatArray) -> FloatArray:
        """Return the integral of the rate from 0 to each time (n,), in requests."""
        raise TypeError(f"{type(self).__module__}.Config must define expected_by()")

    def time_of(self, expected: FloatArray) -> FloatArray:
        """Return the inverse of :meth:`expected_by`, (n,) in seconds."""
        raise TypeError(f"{type(self).__module__}.Config must define time_of()")

    def draw(self, rng: np.random.Generator, num_requests: int, *, base: object = None) -> Arrivals:
        """Return unit-rate renewals on the clock of the rate."""
        shape = 1 / self.cv**2
        unit = np.cumsum(rng.standard_gamma(shape, num_requests)) / shape
        times_s = np.maximum.accumulate(self.time_of(unit))
        span_s = float(self.time_of(np.array([float(num_requests)]))[0])
        return Arrivals(times_s=times_s, rate_per_s=num_requests / span_s)

    def gap_moments(self) -> None:
        """Return None: gaps depend on the time. See :meth:`expected_by`."""
        return

    def law(self) -> str:
        """Return the name of the process for reports."""
        return "Poisson" if self.cv == 1 else f"gamma (gap CV {self.cv:g})"


def bisected(
    function: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray, at: FloatArray
) -> FloatArray:
    """Return where a rising function takes the values ``at`` (n,), between ``low`` and ``high``."""
    for _ in range(80):
        middle = (low + high) / 2
        is_below = function(middle) < at
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2
