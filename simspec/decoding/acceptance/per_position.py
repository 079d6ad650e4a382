"""Per-position acceptance: the rates that vLLM logs and that papers call CTAR.

``rates[i - 1]`` is the share of rounds whose first ``i`` drafts were all accepted, out of all
rounds (unconditional, so it never rises). The conditional rate of draft ``i`` is
``rates[i-1] / rates[i-2]`` and E[tokens] = 1 + sum of the rates; drafts beyond the list keep the
last conditional rate. Source of the definition: ``vllm/v1/spec_decode/metrics.py``
(``num_accepted_tokens_per_pos / num_drafts``) and Kangaroo (arXiv 2404.18911, CTAR).
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from simspec.decoding.acceptance._common import (
    ChainAcceptanceConfig,
    Rates,
    conditional_rates,
)
from simspec.decoding.acceptance._latent import logit
from simspec.decoding.acceptance._process import LatentProcess


class Config(ChainAcceptanceConfig):
    """``acceptance: [0.5, 0.2]`` in YAML is short for ``{name: per_position, rates: [...]}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "per_position", "rates": [0.505, 0.225, 0.10, 0.045, 0.02, 0.007]},
                {"name": "per_position", "rates": [0.6, 0.3], "confidence": {"a": 3.0, "b": 1.0}},
            ]
        }
    )

    name: Literal["per_position"] = "per_position"
    rates: Rates

    def at(self, exit_layer: int | None) -> LatentProcess:
        """Return the process for drafts made at ``exit_layer``."""
        on_track, off_track = self.confidences(exit_layer)
        shift = self.log_odds_per_layer * self.layers_from_reference(exit_layer)
        listed = ", ".join(f"{rate:g}" for rate in self.rates)
        law = f"per-position acceptance [{listed}] out of all rounds, last conditional rate reused"
        if on_track is not None:
            law += ", independent of confidence"
        return LatentProcess(
            sentence=self.sentence(law, exit_layer),
            log_odds=tuple(logit(rate) + shift for rate in conditional_rates(self.rates)),
            confidence=on_track,
            off_track=off_track,
        )
