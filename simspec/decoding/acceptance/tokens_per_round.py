"""Acceptance from a published mean: tokens per round, or accepted over drafted, at one K.

Papers and engine logs often give one number for a draft length K: the mean tokens per round ``E``
(accepted drafts and the target's own token), or the acceptance rate ``R = accepted / drafted``,
with which ``E = 1 + R K`` when every round drafts K. One number fixes one parameter, so the same
alpha is taken at every position and solved from the truncated geometric sum

    E = (1 - alpha^(K+1)) / (1 - alpha)

(Leviathan, Kalman and Matias, arXiv 2211.17192, equation 1). At the K it was measured with, the
mean comes out as published; at another K this is an extrapolation, too high for longer drafts of
texts in which difficulty clusters (EAGLE-3 on GSM8K: 3.26 instead of 2.80 at K = 10).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding.acceptance._common import ChainAcceptanceConfig
from simspec.decoding.acceptance._latent import logit
from simspec.decoding.acceptance._process import TAPE_DEPTH, LatentProcess


class Config(ChainAcceptanceConfig):
    """A mean at one draft length; give ``tokens_per_round`` or ``acceptance_rate``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "tokens_per_round", "tokens_per_round": 2.29, "num_speculative_tokens": 3},
                {"name": "tokens_per_round", "acceptance_rate": 0.76, "num_speculative_tokens": 8},
            ]
        }
    )

    name: Literal["tokens_per_round"] = "tokens_per_round"
    num_speculative_tokens: int = Field(ge=1, le=MAX_DRAFT)
    """K of the measurement; the method may draft another number."""
    tokens_per_round: float | None = Field(default=None, ge=1)
    """Mean tokens per round, the target's own token included: 1 to K + 1."""
    acceptance_rate: float | None = Field(default=None, ge=0, le=1)
    """Accepted over drafted tokens, the target's own token left out (vLLM's meaning)."""

    @model_validator(mode="after")
    def _one_mean(self) -> Self:
        if (self.tokens_per_round is None) == (self.acceptance_rate is None):
            raise ValueError("give either tokens_per_round or acceptance_rate")
        most = self.num_speculative_tokens + 1
        if self.tokens_per_round is not None and self.tokens_per_round > most:
            raise ValueError(
                f"tokens_per_round {self.tokens_per_round:g} is more than the {most} that "
                f"{most - 1} drafts and the target's token make"
            )
        return self

    @property
    def mean(self) -> float:
        """Tokens per round at the K of the measurement."""
        if self.tokens_per_round is not None:
            return self.tokens_per_round
        return 1.0 + (self.acceptance_rate or 0.0) * self.num_speculative_tokens

    def at(self, exit_layer: int | None) -> LatentProcess:
        """Return the process for drafts made at ``exit_layer``."""
        alpha = alpha_of_mean(self.mean, self.num_speculative_tokens)
        on_track, off_track = self.confidences(exit_layer)
        shift = self.log_odds_per_layer * self.layers_from_reference(exit_layer)
        given = (
            f"{self.acceptance_rate:g} of the drafts accepted"
            if self.tokens_per_round is None
            else f"{self.tokens_per_round:g} tokens per round"
        )
        law = (
            f"constant acceptance {alpha:.4g} at every draft position, solved from {given} at "
            f"{self.num_speculative_tokens} drafts"
        )
        if on_track is not None:
            law += ", independent of confidence"
        return LatentProcess(
            sentence=self.sentence(law, exit_layer),
            log_odds=(logit(alpha) + shift,) * TAPE_DEPTH,
            confidence=on_track,
            off_track=off_track,
        )


@lru_cache(maxsize=256)
def alpha_of_mean(tokens_per_round: float, num_drafts: int) -> float:
    """Return the alpha with ``1 + alpha + ... + alpha^K = tokens_per_round``, by bisection.

    Parameters
    ----------
    tokens_per_round : float
        1 to ``num_drafts + 1``.
    num_drafts : int
        K.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = 1.0
        for _ in range(num_drafts):
            total = 1.0 + middle * total
        low, high = (middle, high) if total < tokens_per_round else (low, middle)
    return (low + high) / 2
