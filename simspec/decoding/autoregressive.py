"""Plain decoding: one token per sequence and step, nothing drafted.

A step is F(0, L, 1) + H(1) for every sequence; prompt chunks of the same engine step ride along.
The speedup of every other method is measured against this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import ConfigDict

from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import ChainRound, WeightedRows, plain_pass, plain_rows
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape


class Config(MethodConfig):
    """``method: autoregressive``; it has no fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "autoregressive"}]})

    name: Literal["autoregressive"] = "autoregressive"

    def build(self, target: Stack) -> Autoregressive:
        """Bind to ``target``."""
        return Autoregressive(target)


@dataclass(frozen=True, slots=True)
class Autoregressive:
    """Plain decoding of a target."""

    target: Stack
    name: str = "autoregressive"
    max_draft: int = 0

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target alone."""
        return {"target": self.target}

    def footprint(self) -> Footprint:
        """Return nothing extra, and the one slot of the next token."""
        return Footprint(extra_weights_bytes=0.0, extra_kv_bytes_per_token=0.0, reserved_slots=1)

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m = a = 0 everywhere."""
        nothing = np.zeros(tape.confidence.size, dtype=np.int64)
        return Outcomes(drafted=nothing, accepted=nothing)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return P(m = 0) = P(a = 0) = 1."""
        return RoundStatistics(drafted_pmf=np.ones(1), accepted_pmf=np.ones(1))

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return one pass over every layer, with the prompt chunks in it."""
        rows = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        return [plain_pass(self.target, rows, prefill)]

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return one pass over every layer."""
        rows = plain_rows(batch_size, batch_size * context_len)
        return [WeightedPass(1.0, plain_pass(self.target, rows, None))]

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield one pass over every layer: a chain without drafts."""
        for weight, rows in chain.verification:
            yield weight, plain_pass(self.target, rows, prefill)
