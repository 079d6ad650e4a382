"""Arrivals at exactly equal gaps: the smoothest open loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from simspec.workloads._base import Arrivals, ArrivalsConfig, Moments, RatePerS


class Config(ArrivalsConfig):
    """Constant rate."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = ({"rate_per_s": 5.5},)

    rate_per_s: RatePerS
    """Offered load, requests per second."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return ``1/rate, 2/rate, …``: the first request comes after one gap, as elsewhere."""
        # One division per request: cumulated gaps would drift.
        times_s = np.arange(1, num_requests + 1) / self.rate_per_s
        return Arrivals(times_s=times_s, rate_per_s=self.rate_per_s)

    def gap_moments(self) -> Moments:
        """Return ``(1/rate, 0)``."""
        return Moments(1 / self.rate_per_s, 0.0)

    def describe(self) -> str:
        """Return one clause."""
        return f"arrivals at constant gaps, {self.rate_per_s:g} requests/s"
