"""Constant acceptance: every draft is accepted with probability alpha, whatever its position.

The law of Leviathan, Kalman and Matias (arXiv 2211.17192, equation 1): E[tokens] =
(1 - alpha^(K+1)) / (1 - alpha). An optional confidence decides when drafting stops and is
independent of acceptance; use ``beta_curve`` to tie the two.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from simspec.decoding.acceptance._common import ChainAcceptanceConfig
from simspec.decoding.acceptance._latent import logit
from simspec.decoding.acceptance._process import TAPE_DEPTH, LatentProcess


class Config(ChainAcceptanceConfig):
    """``acceptance: 0.8`` in YAML is short for ``{name: constant, alpha: 0.8}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "constant", "alpha": 0.8},
                {"name": "constant", "alpha": 0.82, "confidence": {"a": 4.5, "b": 1.8}},
            ]
        }
    )

    name: Literal["constant"] = "constant"
    alpha: float = Field(ge=0, le=1)
    """Probability that a draft is accepted when those before it were."""

    def at(self, exit_layer: int | None) -> LatentProcess:
        """Return the process for drafts made at ``exit_layer``."""
        on_track, off_track = self.confidences(exit_layer)
        shift = self.log_odds_per_layer * self.layers_from_reference(exit_layer)
        law = f"constant acceptance {self.alpha:g} at every draft position"
        if on_track is not None:
            law += ", independent of confidence"
        return LatentProcess(
            sentence=self.sentence(law, exit_layer),
            log_odds=(logit(self.alpha) + shift,) * TAPE_DEPTH,
            confidence=on_track,
            off_track=off_track,
        )
