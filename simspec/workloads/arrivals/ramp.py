"""A rate that rises or falls evenly from one value to another, and then stays.

``rate(t) = from + (to - from) · t / T`` up to T, ``to`` after it: how a service meets a growing
load, and at which rate it gives way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from simspec.workloads._base import RatePerS
from simspec.workloads.arrivals._clock import FloatArray, VaryingRate


class Config(VaryingRate):
    """Linear ramp of the rate."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"from_rate_per_s": 1.0, "to_rate_per_s": 20.0, "duration_s": 600.0},
        {"from_rate_per_s": 9.0, "to_rate_per_s": 2.0, "duration_s": 60.0, "cv": 2.0},
    )

    from_rate_per_s: RatePerS
    """Rate at the start, requests per second."""

    to_rate_per_s: RatePerS
    """Rate at the end of the ramp and after it, requests per second."""

    duration_s: float = Field(gt=0, le=1e8)
    """How long the ramp takes, seconds."""

    def expected_by(self, times_s: FloatArray) -> FloatArray:
        """Return the integral of the rate, a parabola and then a line."""
        start, end, duration_s = self.from_rate_per_s, self.to_rate_per_s, self.duration_s
        within = np.minimum(times_s, duration_s)
        rising = within * (start + (end - start) * within / (2 * duration_s))
        return np.asarray(rising + end * np.maximum(times_s - duration_s, 0.0))

    def time_of(self, expected: FloatArray) -> FloatArray:
        """Return the root of the parabola, in the form that does not cancel."""
        start, end, duration_s = self.from_rate_per_s, self.to_rate_per_s, self.duration_s
        total = (start + end) * duration_s / 2
        within = np.minimum(expected, total)
        square = start**2 + 2 * (end - start) * within / duration_s
        times_s = 2 * within / (start + np.sqrt(np.maximum(square, 0.0)))
        return np.asarray(times_s + np.maximum(expected - total, 0.0) / end)

    def describe(self) -> str:
        """Return one clause."""
        return (
            f"{self.law()} arrivals from {self.from_rate_per_s:g} to {self.to_rate_per_s:g} "
            f"requests/s over {self.duration_s:g} s"
        )
