"""Confidence and acceptance as one process: Beta confidence, logistic curve, clustered text.

The confidence at a text position is Beta(a, b), neighbours are correlated through a latent
Gaussian with lag-1 autocorrelation rho, and a draft is accepted with probability
``expit(slope * logit(c) + offset_i)``. The offsets are given (``offsets``), or solved for:

* ``alpha``: one offset for all positions, so that the share of text positions at which the
  drafter agrees is alpha. With rho > 0 rounds start in hard stretches more often, so the rate
  per draft comes out lower: that is the clustering, not an error.
* ``rates``: one offset per position, so that with K = the length of the list and no threshold a
  round accepts its first ``i`` drafts with probability ``rates[i - 1]`` in steady state.

``curve: independent`` lets acceptance ignore the confidence (slope 0).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from simspec.decoding.acceptance._common import (
    BetaConfidence,
    ChainAcceptanceConfig,
    Rates,
)
from simspec.decoding.acceptance._latent import Confidence, latent_grid
from simspec.decoding.acceptance._process import TAPE_DEPTH, LatentProcess, solve_offset
from simspec.decoding.acceptance._solve import offsets_on_grid, to_depth

Offset = Annotated[float, Field(ge=-50, le=50)]


class Config(ChainAcceptanceConfig):
    """Beta confidence with a calibrated acceptance curve."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "beta_curve",
                    "confidence": {"a": 4.5, "b": 1.8},
                    "off_track_confidence": {"a": 2.0, "b": 2.0},
                    "autocorrelation": 0.6,
                    "alpha": 0.7,
                },
                {
                    "name": "beta_curve",
                    "confidence": {"a": 1.5, "b": 1.0},
                    "autocorrelation": 0.4,
                    "rates": [0.505, 0.225, 0.10, 0.045, 0.02, 0.007],
                    "reference_exit_layer": 2,
                    "log_odds_per_layer": 0.2,
                },
                {
                    "name": "beta_curve",
                    "confidence": {"a": 4.5, "b": 1.8},
                    "curve": "independent",
                    "alpha": 0.82,
                },
            ]
        }
    )

    name: Literal["beta_curve"] = "beta_curve"
    confidence: BetaConfidence
    autocorrelation: float = Field(default=0.0, ge=0, le=0.99)
    """rho, lag-1 correlation of the latents along the text."""
    curve: Literal["logistic", "independent"] = "logistic"
    """Whether acceptance follows the confidence or ignores it."""
    slope: float | None = Field(default=None, gt=0, le=20)
    """Change of the log-odds of acceptance with those of the confidence; 1 when not given."""
    alpha: float | None = Field(default=None, ge=0, le=1)
    """Share of text positions at which the drafter agrees; or give rates, or offsets."""
    rates: Rates | None = None
    """Unconditional rates of positions 1, 2, … at threshold 0; or give alpha, or offsets."""
    offsets: Annotated[tuple[Offset, ...], Field(min_length=1, max_length=TAPE_DEPTH)] | None = None
    """Log-odds added at positions 1, 2, …, the last one reused; or give alpha, or rates."""

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        given = [f for f in ("alpha", "rates", "offsets") if getattr(self, f) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of alpha, rates and offsets; given: {', '.join(given) or 'none'}"
            )
        if self.curve == "independent" and self.slope is not None:
            raise ValueError("slope has no effect with curve: independent; remove one of them")
        return self

    def at(self, exit_layer: int | None) -> LatentProcess:
        """Return the process for drafts made at ``exit_layer``.

        The offsets are solved at the reference exit layer and then moved.

        Raises
        ------
        ConfigError
            No offsets reproduce ``rates`` under this autocorrelation.
        """
        on_track, off_track = self.confidences(exit_layer)
        at_reference = Confidence(self.confidence.a, self.confidence.b)
        slope = 0.0 if self.curve == "independent" else self.slope or 1.0
        if self.offsets is not None:
            offsets = to_depth(self.offsets)
        elif self.rates is not None:
            offsets = offsets_for_rates(at_reference, self.autocorrelation, slope, self.rates)
        else:
            offsets = offsets_for_share(at_reference, slope, self.alpha or 0.0)
        shift = self.log_odds_per_layer * self.layers_from_reference(exit_layer)
        return LatentProcess(
            sentence=self.sentence(self._law(slope, offsets), exit_layer),
            log_odds=tuple(offset + shift for offset in offsets),
            slope=slope,
            confidence=on_track,
            off_track=off_track,
            autocorrelation=self.autocorrelation,
        )

    def _law(self, slope: float, offsets: tuple[float, ...]) -> str:
        if self.alpha is not None:
            anchor = f"solved for agreement at {self.alpha:g} of the text positions"
            offsets = offsets[:1]
        elif self.rates is not None:
            listed = ", ".join(f"{rate:g}" for rate in self.rates)
            anchor = f"solved for rates [{listed}] at threshold 0"
            offsets = offsets[: len(self.rates)]
        else:
            anchor = "as given"
            offsets = self.offsets or ()
        shown = ", ".join(f"{offset:.4g}" for offset in offsets)
        curve = "independent of confidence" if slope == 0 else f"{slope:g} logit(c)"
        return (
            f"acceptance log-odds {curve} plus [{shown}] by position ({anchor}), "
            f"lag-1 autocorrelation {self.autocorrelation:g} along the text"
        )


@lru_cache(maxsize=256)
def offsets_for_share(confidence: Confidence, slope: float, share: float) -> tuple[float, ...]:
    """Return equal offsets with which the drafter agrees at ``share`` of the text positions."""
    grid = latent_grid(0.0)
    offset = solve_offset(slope * confidence.logit(grid.z), grid.stationary, share)
    return (offset,) * TAPE_DEPTH


@lru_cache(maxsize=256)
def offsets_for_rates(
    confidence: Confidence, autocorrelation: float, slope: float, rates: tuple[float, ...]
) -> tuple[float, ...]:
    """Return offsets with which P(first i accepted) is ``rates[i-1]``, at threshold 0."""
    grid = latent_grid(autocorrelation)
    return offsets_on_grid(grid, slope * confidence.logit(grid.z), rates)
