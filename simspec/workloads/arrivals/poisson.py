"""Poisson arrivals: independent users, each unlikely to send at any given moment.

Gaps are exponential with mean ``1/rate``. The unit-rate process is drawn once per stream and
divided by the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from simspec.workloads._base import Arrivals, ArrivalsConfig, Moments, RatePerS


class Config(ArrivalsConfig):
    """Poisson process."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"rate_per_s": 5.5},
        {"rate_per_s": 0.01},
    )

    rate_per_s: RatePerS
    """Offered load, requests per second."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return cumulated exponential gaps."""
        unit_times = np.cumsum(rng.standard_exponential(num_requests))
        return Arrivals(times_s=unit_times / self.rate_per_s, rate_per_s=self.rate_per_s)

    def gap_moments(self) -> Moments:
        """Return ``(1/rate, 1/rate)``."""
        return Moments(1 / self.rate_per_s, 1 / self.rate_per_s)

    def describe(self) -> str:
        """Return one clause."""
        return f"Poisson arrivals at {self.rate_per_s:g} requests/s"
