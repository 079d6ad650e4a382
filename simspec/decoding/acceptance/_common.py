"""Fields that the chain acceptance models share: confidence, exit layer, rates, source.

Deeper exits agree with the target more often. How much is an explicit input: the log-odds of
every conditional acceptance move by ``log_odds_per_layer`` for each layer away from
``reference_exit_layer``, where the numbers were measured. Published points give its size: on
LayerSkip's 24-layer Llama (arXiv 2404.16710, TOPv2, 8 drafts) acceptance rises from 76.0 % at
E = 6 to 97.6 % at 12 and 98.9 % at 18, which is +0.43 log-odds a layer, then +0.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding.acceptance._latent import Confidence
from simspec.decoding.acceptance._process import TAPE_DEPTH


class BetaConfidence(BaseModel):
    """Beta distribution of the draft confidence (top-1 draft probability)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    a: float = Field(ge=0.01, le=10_000)
    """First shape parameter; the mean is a / (a + b)."""
    b: float = Field(ge=0.01, le=10_000)
    """Second shape parameter."""


class ChainAcceptanceConfig(AcceptanceConfig):
    """Base of the models for chains of drafts."""

    confidence: BetaConfidence | None = None
    """Confidence while the draft is on track; needed by every threshold above 0."""
    off_track_confidence: BetaConfidence | None = None
    """Confidence after the first wrong token of a round; the on-track one when not given."""
    reference_exit_layer: int | None = Field(default=None, ge=1)
    """Exit layer at which the numbers were measured."""
    log_odds_per_layer: float = Field(default=0.0, ge=-10, le=10)
    """Added to the log-odds of acceptance for each layer deeper than the reference."""
    confidence_log_odds_per_layer: float = Field(default=0.0, ge=-10, le=10)
    """Added to the log-odds of both confidences for each layer deeper than the reference."""
    source: str = ""
    """Where the numbers come from; printed in every report."""

    @model_validator(mode="after")
    def _fields_have_effect(self) -> Self:
        for field in ("log_odds_per_layer", "confidence_log_odds_per_layer"):
            if getattr(self, field) and self.reference_exit_layer is None:
                raise ValueError(
                    f"{field} counts layers from reference_exit_layer, which is not given; "
                    "add reference_exit_layer"
                )
        for field in ("off_track_confidence", "confidence_log_odds_per_layer"):
            if getattr(self, field) and self.confidence is None:
                raise ValueError(f"{field} has no effect without confidence; add confidence")
        return self

    def layers_from_reference(self, exit_layer: int | None) -> int:
        """Return E minus the reference; 0 when either is unknown.

        Raises
        ------
        ConfigError
            The numbers depend on the exit layer and the method has none.
        """
        if exit_layer is None:
            for field in ("log_odds_per_layer", "confidence_log_odds_per_layer"):
                if getattr(self, field):
                    raise ConfigError(
                        f"{field}: counts exit layers and the method has none; remove it",
                        field=field,
                    )
        if exit_layer is None or self.reference_exit_layer is None:
            return 0
        return exit_layer - self.reference_exit_layer

    def confidences(self, exit_layer: int | None) -> tuple[Confidence | None, Confidence | None]:
        """Return the on-track and off-track confidence at ``exit_layer``."""
        if self.confidence is None:
            return None, None
        shift = self.confidence_log_odds_per_layer * self.layers_from_reference(exit_layer)
        off_track = self.off_track_confidence or self.confidence
        return (
            Confidence(self.confidence.a, self.confidence.b, shift),
            Confidence(off_track.a, off_track.b, shift),
        )

    def sentence(self, law: str, exit_layer: int | None) -> str:
        """Return ``law`` completed by confidence, exit layer and source."""
        parts = [law, self._confidence_text(exit_layer), self._exit_text(exit_layer)]
        parts.append(f"source: {self.source}" if self.source else "no source given")
        return "; ".join(parts)

    def _confidence_text(self, exit_layer: int | None) -> str:
        on_track, off_track = self.confidences(exit_layer)
        if on_track is None or off_track is None:
            return "no confidence distribution"
        same = " (assumed equal)" if self.off_track_confidence is None else ""
        return f"confidence {on_track.describe()} on track, {off_track.describe()} off track{same}"

    def _exit_text(self, exit_layer: int | None) -> str:
        if exit_layer is None and self.reference_exit_layer is not None:
            return f"measured at exit layer {self.reference_exit_layer}, the method has none"
        if exit_layer is None:
            return "no exit layer"
        layers = self.layers_from_reference(exit_layer)
        shift = self.log_odds_per_layer * layers
        if self.reference_exit_layer is None:
            return f"acceptance taken as the same at exit layer {exit_layer} as at any other"
        if not self.log_odds_per_layer:
            return (
                f"measured at exit layer {self.reference_exit_layer}, "
                f"acceptance taken as the same at {exit_layer}"
            )
        return (
            f"at exit layer {exit_layer} the log-odds of acceptance move by {shift:+g} "
            f"({self.log_odds_per_layer:+g} per layer from layer {self.reference_exit_layer})"
        )


def never_rising(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Return ``rates``, or refuse those that cannot be out of all rounds."""
    for i, (before, here) in enumerate(pairwise(rates), start=2):
        if here > before:
            raise ValueError(
                f"position {i} has rate {here:g}, above position {i - 1} with {before:g}; the "
                "rates are out of all rounds and never rise (multiply conditional rates up)"
            )
    return rates


Rate = Annotated[float, Field(ge=0, le=1)]
Rates = Annotated[
    tuple[Rate, ...], Field(min_length=1, max_length=TAPE_DEPTH), AfterValidator(never_rising)
]
"""Unconditional rates of positions 1, 2, …, never rising."""


def conditional_rates(rates: Sequence[float]) -> tuple[float, ...]:
    """Return P(draft i accepted | all before it accepted) for every row of a tape.

    A position behind one that is never accepted has no conditional rate; it is given 0.

    Returns
    -------
    tuple (TAPE_DEPTH,)
        The last rate of the list repeats.
    """
    conditional = [rates[0]]
    for before, here in pairwise(rates):
        conditional.append(here / before if before > 0 else 0.0)
    return (*conditional, *[conditional[-1]] * (TAPE_DEPTH - len(conditional)))
