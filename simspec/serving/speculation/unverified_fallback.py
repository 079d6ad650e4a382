"""Under saturation the first layers answer alone; nothing is verified until the load has gone.

An overloaded server of a LayerSkip model (arXiv 2404.16710) can leave verification out: a step is
then F(0, E, 1) + H(1), and its tokens are the exit's own (``simspec.decoding.unverified_exit``).
The fallback is entered when so many requests wait, or run, and left when both have fallen to
``resume_share`` of their thresholds. Not lossless: reports give the share of tokens that were not
verified and how many of those are expected not to be the target's choice.

Before a round is verified again the deep layers have to see every token they missed, F(E, L, n)
over all of them, from the states at the exit, which are kept: the method's extra memory. A request
that ends while it is owed never pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.decoding._base import METHODS, Method, MethodConfig
from simspec.serving.speculation._base import (
    Load,
    Mode,
    RoundPrices,
    SpeculationConfig,
    SpeculationPolicy,
)
from simspec.serving.speculation._modes import given_mode

VERIFIED, UNVERIFIED = 0, 1


class Config(SpeculationConfig):
    """Fields of ``speculation: {name: unverified_fallback, ...}``; at least one threshold."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "unverified_fallback", "num_waiting": 16},
                {"name": "unverified_fallback", "batch_size": 128, "resume_share": 0.75},
            ]
        }
    )

    name: Literal["unverified_fallback"] = "unverified_fallback"
    num_waiting: int | None = Field(default=None, ge=1, le=1_000_000)
    """Waiting requests from which on nothing is verified."""
    batch_size: int | None = Field(default=None, ge=1, le=100_000)
    """Running sequences from which on nothing is verified."""
    resume_share: float = Field(default=0.5, gt=0, le=1)
    """Verification resumes when the load is below this share of every threshold given."""

    @model_validator(mode="after")
    def _has_a_threshold(self) -> Self:
        if self.num_waiting is None and self.batch_size is None:
            raise ValueError(
                "needs to know what saturation is; give num_waiting or batch_size, or both"
            )
        return self

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the method and its exit alone.

        Raises
        ------
        ConfigError
            The method does not draft from an exit of the target with the target's own head.
        """
        given = given_mode(method, target)
        exit_layer = method.acceptance_exit_layer
        if exit_layer is None or set(given.method.stacks()) != {"target"}:
            raise ConfigError(
                "unverified_fallback answers from the exit that drafts, and method "
                f"{given.method.name} has no exit of the target's own layers and head; "
                "use layerskip with its shared KV, or off_above"
            )
        return given, Mode("unverified", _exit(exit_layer, target), 0, 0.0, True, False)

    def extra_kv_bytes_per_token(self, target: Stack) -> float:
        """Return the exit state that is kept for every token until its deep KV is there."""
        return _exit(1, target).footprint().extra_kv_bytes_per_token

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> UnverifiedFallback:
        """Return the policy."""
        return UnverifiedFallback(self)


def _exit(exit_layer: int, target: Stack) -> Method:
    config = METHODS.parse({"name": "unverified_exit", "exit_layer": exit_layer})
    method: Method = config.build(target)
    return method


class UnverifiedFallback(SpeculationPolicy):
    """Compares queue and batch with their thresholds."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def choose(self, in_force: int, load: Load) -> int:
        """Return the mode of the next step."""
        config = self._config
        share = 1.0 if in_force == VERIFIED else config.resume_share
        saturated = (
            config.num_waiting is not None and load.num_waiting >= share * config.num_waiting
        ) or (config.batch_size is not None and load.num_running >= share * config.batch_size)
        return UNVERIFIED if saturated else VERIFIED
