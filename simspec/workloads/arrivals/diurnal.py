"""A rate that swings with the time of day.

``rate(t) = mean · (1 + amplitude · cos(2π (t - peak) / period))``, or ``rates_per_s``: one rate
for each equal part of the period (24 of them: one an hour), and again from the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.workloads._base import RatePerS
from simspec.workloads.arrivals._clock import FloatArray, VaryingRate, bisected

_PartRate = Annotated[float, Field(ge=0, le=1e6)]


class Config(VaryingRate):
    """Sinusoidal rate, or rates by part of the day."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {"mean_rate_per_s": 5.0, "amplitude": 0.8, "period_s": 3600.0, "peak_s": 900.0},
        {"rates_per_s": [2.0, 0.0, 8.0, 5.0], "period_s": 400.0},
    )

    mean_rate_per_s: RatePerS | None = None
    """Rate averaged over a period, requests per second."""

    amplitude: float | None = Field(default=None, gt=0, le=1)
    """How far the rate swings, as a share of its mean."""

    peak_s: float | None = Field(default=None, ge=0, le=1e8)
    """When the rate is highest, seconds from the start; None: a quarter of a period."""

    rates_per_s: tuple[_PartRate, ...] | None = Field(default=None, min_length=2, max_length=10_000)
    """Rates of equal parts of the period, requests per second."""

    period_s: float = Field(default=86_400.0, gt=0, le=1e8)
    """Length of a day, seconds."""

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        wave = (self.mean_rate_per_s, self.amplitude)
        if self.rates_per_s is None:
            if None in wave:
                raise PydanticCustomError(
                    "diurnal_curve",
                    "give mean_rate_per_s and amplitude, or rates_per_s by part of the period",
                )
        elif wave != (None, None) or self.peak_s is not None:
            raise PydanticCustomError(
                "diurnal_curve",
                "rates_per_s says the whole curve; remove mean_rate_per_s, amplitude and peak_s",
            )
        elif sum(self.rates_per_s) * self.period_s / len(self.rates_per_s) < 1e-6:
            raise PydanticCustomError("diurnal_curve", "rates_per_s: no part has a rate above 0")
        return self

    @property
    def _mean_rate_per_s(self) -> float:
        if self.rates_per_s is not None:
            return sum(self.rates_per_s) / len(self.rates_per_s)
        assert self.mean_rate_per_s is not None
        return self.mean_rate_per_s

    def expected_by(self, times_s: FloatArray) -> FloatArray:
        """Return the integral of the rate."""
        if self.rates_per_s is None:
            return self._wave(times_s)
        periods, rest_s = np.divmod(times_s, self.period_s)
        edges_s, totals = self._parts()
        per_period = self._mean_rate_per_s * self.period_s
        return np.asarray(periods * per_period + np.interp(rest_s, edges_s, totals))

    def time_of(self, expected: FloatArray) -> FloatArray:
        """Return the inverse: by bisection of the wave, exactly for parts."""
        mean = self._mean_rate_per_s
        if self.rates_per_s is None:
            # The wave is never farther from its mean than twice its amplitude.
            reach_s = self.period_s / math.pi
            middle = expected / mean
            return bisected(self._wave, np.maximum(middle - reach_s, 0), middle + reach_s, expected)
        per_period = mean * self.period_s
        periods, rest = np.divmod(expected, per_period)
        edges_s, totals = self._parts()
        # Parts without a rate hold no arrival: the last part that begins at or below ``rest``.
        part = np.searchsorted(totals, rest, side="right") - 1
        part = np.clip(part, 0, len(self.rates_per_s) - 1)
        rates = np.array(self.rates_per_s)[part]
        inside_s = np.divide(rest - totals[part], rates, out=np.zeros_like(rest), where=rates > 0)
        return np.asarray(periods * self.period_s + edges_s[part] + inside_s)

    def _wave(self, times_s: FloatArray) -> FloatArray:
        assert self.mean_rate_per_s is not None
        assert self.amplitude is not None
        turn = 2 * math.pi / self.period_s
        peak_s = self.period_s / 4 if self.peak_s is None else self.peak_s
        swing = np.sin(turn * (times_s - peak_s)) + math.sin(turn * peak_s)
        return np.asarray(self.mean_rate_per_s * (times_s + self.amplitude / turn * swing))

    def _parts(self) -> tuple[FloatArray, FloatArray]:
        """Return the edges of the parts, and the requests expected up to each."""
        assert self.rates_per_s is not None
        edges_s = np.linspace(0.0, self.period_s, len(self.rates_per_s) + 1)
        totals = np.concatenate([[0.0], np.cumsum(np.array(self.rates_per_s) * np.diff(edges_s))])
        return edges_s, totals

    def describe(self) -> str:
        """Return one clause."""
        if self.rates_per_s is not None:
            low, high = min(self.rates_per_s), max(self.rates_per_s)
            shape = f"{len(self.rates_per_s)} parts between {low:g} and {high:g}"
        else:
            shape = f"a wave of {self.amplitude:.0%} around {self.mean_rate_per_s:g}"
        return f"{self.law()} arrivals at {shape} requests/s, every {self.period_s:g} s"
