"""Easy and hard stretches of text: acceptance with two states and rates by position.

Difficulty clusters, so one constant fitted at K = 1 over-predicts long drafts (by 16 % at K = 10
on GSM8K, docs/theory/acceptance.md). Here a text position is hard with probability ``hard_share``,
keeps its predecessor's state with probability ``autocorrelation`` and draws a new one otherwise
(lag-1 correlation of the states = ``autocorrelation``), and

    P(accept | state, i) = expit(offset_i + log_odds_gap if easy else offset_i)

for the i-th draft of a round. The offsets are solved so that rounds of K = the list's length
accept their first i drafts with probability ``rates[i - 1]`` in steady state.

It is ``beta_curve`` without a confidence: for traces that record what was accepted and not how
sure the drafter was. ``simspec calibrate acceptance`` fits it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding.acceptance._common import Rates
from simspec.decoding.acceptance._latent import Grid, expit_array
from simspec.decoding.acceptance._process import DiscreteText, round_start, round_statistics
from simspec.decoding.acceptance._solve import offsets_on_grid
from simspec.decoding.tape import RoundStatistics, Tape


class Config(AcceptanceConfig):
    """Rates by position, and how they cluster along the text."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "two_state",
                    "rates": [0.66, 0.43, 0.27, 0.17],
                    "hard_share": 0.3,
                    "log_odds_gap": 1.7,
                    "autocorrelation": 0.7,
                }
            ]
        }
    )

    name: Literal["two_state"] = "two_state"
    rates: Rates
    """Unconditional rates of positions 1, 2, …: the share of all rounds that accept so many."""
    hard_share: float = Field(gt=0, lt=1)
    """Share of the text positions that are hard."""
    log_odds_gap: float = Field(ge=0, le=20)
    """Log-odds of acceptance at an easy position minus those at a hard one."""
    autocorrelation: float = Field(ge=0, le=0.99)
    """Lag-1 correlation of the states along the text."""
    source: str = ""
    """Where the numbers come from; printed in every report."""

    def at(self, exit_layer: int | None) -> TwoStateProcess:
        """Return the process; the exit layer makes no difference.

        Raises
        ------
        ConfigError
            No offsets reproduce ``rates`` under this clustering.
        """
        listed = ", ".join(f"{rate:g}" for rate in self.rates)
        where = "" if exit_layer is None else f", taken as the same at exit layer {exit_layer}"
        origin = f"source: {self.source}" if self.source else "no source given"
        return TwoStateProcess(
            sentence=(
                f"per-position acceptance [{listed}] out of all rounds in easy and hard stretches "
                f"of text{where}: {self.hard_share:.0%} hard, {self.log_odds_gap:g} log-odds "
                f"below easy, lag-1 autocorrelation {self.autocorrelation:g}; no confidence "
                f"distribution; {origin}"
            ),
            log_odds=offsets(self.hard_share, self.log_odds_gap, self.autocorrelation, self.rates),
            hard_share=self.hard_share,
            log_odds_gap=self.log_odds_gap,
            autocorrelation=self.autocorrelation,
        )


def two_state_grid(hard_share: float, autocorrelation: float) -> Grid:
    """Return the two states as a grid: node 0 is hard, node 1 easy."""
    stationary = np.array([hard_share, 1.0 - hard_share])
    transition = autocorrelation * np.eye(2) + (1.0 - autocorrelation) * stationary
    return Grid(np.array([0.0, 1.0]), stationary, autocorrelation, transition)


@lru_cache(maxsize=256)
def offsets(
    hard_share: float, log_odds_gap: float, autocorrelation: float, rates: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the log-odds at hard positions, by draft position, that give ``rates``."""
    grid = two_state_grid(hard_share, autocorrelation)
    return offsets_on_grid(grid, log_odds_gap * grid.z, rates)


@dataclass(frozen=True, slots=True)
class TwoStateProcess:
    """Acceptance along a text of easy and hard stretches.

    Attributes
    ----------
    sentence : str
        What :meth:`describe` returns.
    log_odds : tuple (TAPE_DEPTH,)
        Of acceptance at a hard position, for each draft position.
    hard_share, log_odds_gap, autocorrelation : float
        As in ``Config``.
    """

    sentence: str
    log_odds: tuple[float, ...]
    hard_share: float
    log_odds_gap: float
    autocorrelation: float

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request, with the look-ahead the longest draft needs.

        Row ``t`` of one table of uniforms makes everything at position ``t``: whether the state
        is drawn anew, what it then is, and the coin.
        """
        num_positions = num_tokens + MAX_DRAFT
        uniform = stream(seed, "acceptance", request_id).random((num_positions, 3)) + 2.0**-54
        is_drawn = uniform[:, 0] >= self.autocorrelation
        is_drawn[0] = True
        drawn_at = np.maximum.accumulate(np.where(is_drawn, np.arange(num_positions), 0))
        is_easy = uniform[drawn_at, 1] >= self.hard_share
        coin = np.log(uniform[:, 2]) - np.log1p(-uniform[:, 2])
        unknown = np.full(num_positions, np.nan)
        accept = coin - self.log_odds_gap * is_easy < np.array(self.log_odds)[:, None]
        return Tape(unknown, unknown, accept)

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the distributions of m and a in steady state: a transfer matrix of two states.

        Raises
        ------
        ConfigError
            A threshold above 0: there is no confidence to compare with it.
        """
        if threshold > 0.0:
            raise ConfigError(
                f"confidence_threshold {threshold:g} needs a confidence distribution and "
                "two_state has none; use beta_curve, or set confidence_threshold to 0"
            )
        text = self._text()
        every = np.ones(max_draft)
        return round_statistics(text, round_start(text, max_draft), max_draft, every)

    def describe(self) -> str:
        """Return one sentence that states every assumption."""
        return self.sentence

    def _text(self) -> DiscreteText:
        grid = two_state_grid(self.hard_share, self.autocorrelation)
        accept = expit_array(self.log_odds_gap * grid.z + np.array(self.log_odds)[:, None])
        return DiscreteText(grid, accept, np.ones(2))
