"""The draft length follows what is accepted, as SGLang's adaptive speculation has it.

With e the exponentially weighted mean over steps of the batch's accepted drafts per round and
c_1 < c_2 < … the draft lengths to choose from, the length falls from c_i to c_(i-1) when
e <= c_(i-1) - 0.5 + ``down_hysteresis`` and rises from c_i to c_(i+1) when
e > c_i - 0.5 + ``up_hysteresis``: it drafts about one token more than was accepted. Rule, initial
value (one less than the first length) and defaults are those of SGLang's
``adaptive_spec_params.py``; it never looks at the load and never stops drafting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.decoding._base import MethodConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.serving.speculation._base import (
    Load,
    Mode,
    ObservedRounds,
    RoundPrices,
    SpeculationConfig,
    SpeculationPolicy,
)
from simspec.serving.speculation._modes import given_mode, shorter_modes


class Config(SpeculationConfig):
    """Fields of ``speculation: {name: tracking, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "tracking"}, {"name": "tracking", "draft_lengths": [1, 3, 7]}]
        }
    )

    name: Literal["tracking"] = "tracking"
    draft_lengths: tuple[Annotated[int, Field(ge=1, le=MAX_DRAFT)], ...] | None = Field(
        default=None, min_length=1
    )
    """Lengths to choose from beside the method's own, all shorter; every one when not given."""
    smoothing: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest step in the mean."""
    interval_rounds: int = Field(default=5, ge=1, le=1_000_000)
    """Steps with drafts between two decisions."""
    warmup_rounds: int = Field(default=10, ge=0, le=1_000_000)
    """Steps with drafts before the first one counts."""
    down_hysteresis: float = Field(default=0.0, ge=-1, le=1)
    """Added to the threshold at which the length falls."""
    up_hysteresis: float = Field(default=-0.25, ge=-1, le=1)
    """Added to the threshold at which the length rises."""

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the method and its shorter drafts, longest first.

        Raises
        ------
        ConfigError
            There is but one length, or one is not shorter than the method's.
        """
        given = given_mode(method, target)
        for length in self.draft_lengths or ():
            if length >= given.depth:
                raise ConfigError(
                    f"draft_lengths: {length} is not shorter than the method's own draft of "
                    f"{given.depth}; give lengths below it",
                    field="draft_lengths",
                )
        modes = (given, *shorter_modes(method, target, self.draft_lengths))
        if len(modes) == 1:
            raise ConfigError(
                f"tracking changes the draft length and method {given.method.name} has but one "
                "here; give the method a larger num_speculative_tokens, or use off_above"
            )
        return modes

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> Tracking:
        """Return the policy."""
        return Tracking(self, [mode.depth for mode in modes])


class Tracking(SpeculationPolicy):
    """Follows the mean number of accepted drafts."""

    observes: ClassVar[bool] = True

    def __init__(self, config: Config, depths: Sequence[int]) -> None:
        self._config = config
        self._depths = depths
        self._mean = float(depths[0] - 1)
        self._num_steps = 0
        self._choice = 0

    def choose(self, in_force: int, load: Load) -> int:
        """Return the mode of the next step."""
        return self._choice

    def see_rounds(self, rounds: ObservedRounds) -> None:
        """Follow the accepted drafts, and now and then decide."""
        _, accepted = rounds.of(rounds.in_force)
        weight = self._config.smoothing
        self._mean += weight * (sum(accepted) / len(accepted) - self._mean)
        self._num_steps += 1
        over = self._num_steps - self._config.warmup_rounds
        if over > 0 and over % self._config.interval_rounds == 0:
            self._choice = self._target(rounds.in_force)

    def _target(self, mode: int) -> int:
        depths, down, up = self._depths, self._config.down_hysteresis, self._config.up_hysteresis
        while mode + 1 < len(depths) and self._mean <= depths[mode + 1] - 0.5 + down:
            mode += 1
        while mode > 0 and self._mean > depths[mode] - 0.5 + up:
            mode -= 1
        return mode
