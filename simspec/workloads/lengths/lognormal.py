"""Lognormal lengths: a first guess when only a typical length and its spread are known.

``length = min(max(round(median · exp(sigma · Z)), 1), max)`` with Z standard normal. Prompt and
output are independent. What exceeds ``max`` is set to it, as an engine's length limit does, so
the mean of what is drawn lies below ``median · exp(sigma²/2)``; :meth:`Config.moments` gives the
exact value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from simspec.workloads._base import Lengths, LengthsConfig, Moments, NumTokens


class LognormalSide(BaseModel):
    """One side, prompt or output: give the median or the mean, not both."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    median: float | None = Field(default=None, gt=0, le=10_000_000)
    """Median length in tokens, before rounding and the cut at ``max``."""

    mean: float | None = Field(default=None, gt=0, le=10_000_000)
    """Mean length in tokens, before rounding and the cut at ``max``."""

    sigma: float = Field(gt=0, le=5)
    """Standard deviation of the logarithm."""

    max: NumTokens
    """Longest length in tokens."""

    @model_validator(mode="after")
    def _one_centre(self) -> Self:
        if (self.median is None) == (self.mean is None):
            raise PydanticCustomError("lognormal_centre", "give either median or mean")
        return self

    @property
    def log_median(self) -> float:
        """mu of the lognormal: ``ln median = ln mean - sigma²/2``."""
        if self.median is not None:
            return math.log(self.median)
        assert self.mean is not None
        return math.log(self.mean) - self.sigma**2 / 2

    def lengths(self, normal: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the lengths (n,) in tokens of standard normal numbers (n,)."""
        # The cut comes first: exp of five sigmas exceeds what an integer holds.
        log_lens = np.minimum(self.log_median + self.sigma * normal, math.log(self.max))
        return np.clip(np.rint(np.exp(log_lens)), 1, self.max).astype(np.int64)

    def moments(self) -> Moments:
        """Return mean and standard deviation of the rounded and cut length, in tokens.

        Tail sums of a variable on 1..max: E[X] = Σ_{k≥1} P(X ≥ k) and
        E[X²] = Σ_{k≥1} (2k - 1) P(X ≥ k), with P(X ≥ k) = Φ((mu - ln(k - 1/2)) / sigma) for
        2 ≤ k ≤ max and P(X ≥ 1) = 1.
        """
        from scipy.special import ndtr

        k = np.arange(1, self.max + 1, dtype=np.float64)
        tail = ndtr((self.log_median - np.log(k - 0.5)) / self.sigma)
        tail[0] = 1.0
        mean = float(tail.sum())
        second = float(((2 * k - 1) * tail).sum())
        return Moments(mean, math.sqrt(max(second - mean**2, 0.0)))

    def describe(self) -> str:
        """Return the parameters as text."""
        centre = f"median {self.median:g}" if self.median is not None else f"mean {self.mean:g}"
        return f"{centre}, sigma {self.sigma:g}, at most {self.max}"


class Config(LengthsConfig):
    """Independent lognormal prompt and output lengths."""

    examples: ClassVar[tuple[Mapping[str, object], ...]] = (
        {
            "prompt": {"median": 1020, "sigma": 1.0, "max": 4096},
            "output": {"mean": 211, "sigma": 0.8, "max": 1000},
        },
        {
            "prompt": {"median": 2, "sigma": 0.7, "max": 10},
            "output": {"median": 0.2, "sigma": 2.0, "max": 3},
        },
    )

    prompt: LognormalSide
    """Prompt lengths."""

    output: LognormalSide
    """Output lengths."""

    def draw(
        self, rng: np.random.Generator, num_requests: int, *, base: Path | None = None
    ) -> Lengths:
        """Return lengths of two normal numbers per request."""
        normal = rng.standard_normal((num_requests, 2))
        return Lengths(self.prompt.lengths(normal[:, 0]), self.output.lengths(normal[:, 1]))

    def moments(self, *, base: Path | None = None) -> tuple[Moments, Moments]:
        """Return the exact moments after rounding and cutting."""
        return self.prompt.moments(), self.output.moments()

    def describe(self, *, base: Path | None = None) -> str:
        """Return one clause."""
        return (
            f"independent lognormal lengths in tokens (prompt: {self.prompt.describe()}; "
            f"output: {self.output.describe()})"
        )
