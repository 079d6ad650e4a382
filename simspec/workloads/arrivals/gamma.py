"""Gamma renewal arrivals: bursts (cv > 1) or pacing (cv < 1) at a given mean rate.

Gaps are gamma distributed with shape ``1/cv²`` and mean ``1/rate``; ``cv = 1`` is the Poisson
process in law. The first request arrives after one full gap, as in the load generators of
vLLM and its peers (not after the shorter residual gap of a stationary process).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from simspec.workloads._base import Arrivals, ArrivalsConfig, Moments, RatePerS


class Config(ArrivalsConfig):
    """Gamma renewal process."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"rate_per_s": 5.5, "cv": 2.0},
        {"rate_per_s": 5.5, "cv": 0.5},
    )

    rate_per_s: RatePerS
    """Offered load, requests per second."""

    cv: float = Field(ge=0.01, le=100)
    """Coefficient of variation of the gaps: standard deviation over mean."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Arrivals:
        """Return cumulated gamma gaps."""
        shape = 1 / self.cv**2
        unit_times = np.cumsum(rng.standard_gamma(shape, num_requests)) / shape
        return Arrivals(times_s=unit_times / self.rate_per_s, rate_per_s=self.rate_per_s)

    def gap_moments(self) -> Moments:
        """Return ``(1/rate, cv/rate)``."""
        return Moments(1 / self.rate_per_s, self.cv / self.rate_per_s)

    def describe(self) -> str:
        """Return one clause."""
        return f"gamma arrivals at {self.rate_per_s:g} requests/s with gap CV {self.cv:g}"
