"""Speculation is off while the batch is large, as vLLM's ``disable_by_batch_size`` has it.

Off from ``batch_size`` running sequences on, back below ``resume_below``. vLLM (v0,
``spec_decode_worker.py``) compares the running requests with one number; a gap between the two
keeps a load near it from switching in every step. There a request that decoded while drafts were
off never drafts again; here it catches up (docs/decisions/0006-speculation-debts.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from simspec.cost.work import Stack
from simspec.decoding._base import MethodConfig
from simspec.serving.speculation._base import (
    Load,
    Mode,
    RoundPrices,
    SpeculationConfig,
    SpeculationPolicy,
)
from simspec.serving.speculation._modes import given_mode, off_mode

ON, OFF = 0, 1


class Config(SpeculationConfig):
    """Fields of ``speculation: {name: off_above, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "off_above", "batch_size": 32}]}
    )

    name: Literal["off_above"] = "off_above"
    batch_size: int = Field(ge=1, le=100_000)
    """Running sequences from which on nothing is drafted."""
    resume_below: int | None = Field(default=None, ge=1, le=100_000)
    """Drafting resumes below so many; ``batch_size`` when not given."""

    @model_validator(mode="after")
    def _resumes(self) -> Self:
        if self.resume_below is not None and self.resume_below > self.batch_size:
            raise ValueError(
                f"resume_below {self.resume_below} is above batch_size {self.batch_size}, where "
                f"speculation is off; give at most {self.batch_size}"
            )
        return self

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the method and autoregression."""
        return given_mode(method, target), off_mode(method, target)

    def build(self, modes: Sequence[Mode], prices: RoundPrices) -> OffAbove:
        """Return the policy."""
        return OffAbove(self.batch_size, self.resume_below or self.batch_size)


class OffAbove(SpeculationPolicy):
    """Compares the running sequences with two thresholds."""

    def __init__(self, batch_size: int, resume_below: int) -> None:
        self._batch_size = batch_size
        self._resume_below = resume_below

    def choose(self, in_force: int, load: Load) -> int:
        """Return the mode of the next step."""
        if in_force == ON:
            return OFF if load.num_running >= self._batch_size else ON
        return ON if load.num_running < self._resume_below else OFF
