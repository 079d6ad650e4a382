"""Unverified exit: the first layers and the target's head decode alone. Not lossless.

What an overloaded server can fall back to (the early exit of LayerSkip, arXiv 2404.16710, without
its verification; tables of that paper list its quality beside the self-speculative one). One step
costs

    F(0, E, 1) + H(1)                             decode, nothing is verified

and yields one token, the exit's own choice. Two things are owed for it.

* Quality: a token differs from what the target would have chosen there with probability
  1 - agreement, and agreement at exit E is what an acceptance model gives: the share of text
  positions at which the exit's choice is the target's. Every report says the expected share. What
  a wrong token does to the text after it is not in that number.
* Deep KV: layers E..L have not seen the tokens. Before verified decoding resumes they have to be
  run over all n of them, F(E, L, n), from the states at the exit (:meth:`repayment`). Those states,
  d values per token, are kept until then and are the method's extra memory.

Prompts are prefilled through all layers, so that decoding can become verified at any time.

Left out: decoding that attends deep layers to the owed tokens' shallow states instead of paying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import (
    ChainRound,
    WeightedRows,
    plain_pass,
    plain_rows,
    without_logits,
)
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape
from simspec.models.dtypes import bytes_per_value

_TEXT_TOKENS = 1 << 16
"""Positions of the text that the agreement is read from: a standard error of 0.2 % at most."""


class Config(MethodConfig):
    """Fields of ``method: {name: unverified_exit, ...}``."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "unverified_exit"}]})
    lossless: ClassVar[bool] = False

    name: Literal["unverified_exit"] = "unverified_exit"
    exit_layer: int = Field(default=8, ge=1)
    """E: layers that decode; 8 of 32 are LayerSkip's for a 7B."""

    @property
    def acceptance_exit_layer(self) -> int:
        """E: deeper exits agree with the target more often."""
        return self.exit_layer

    def acceptance_sentence(self, acceptance: AcceptanceProcess) -> str:
        """Return what the acceptance says of tokens that nobody verifies."""
        share = expected_disagreement(acceptance)
        return (
            f"not lossless, {share:.1%} of the tokens are expected not to be the target's choice; "
            f"agreement: {acceptance.describe()}"
        )

    def build(self, target: Stack) -> UnverifiedExit:
        """Bind to ``target``; E must leave out at least one layer."""
        num_layers = len(target.blocks)
        if self.exit_layer >= num_layers:
            raise ConfigError(
                f"exit_layer: {self.exit_layer} leaves out no layer, the target has {num_layers}; "
                f"the deepest exit is {num_layers - 1}",
                field="exit_layer",
            )
        return UnverifiedExit(target, self.exit_layer)


def expected_disagreement(acceptance: AcceptanceProcess) -> float:
    """Return the expected share of tokens at which the exit's choice is not the target's.

    One minus the share of text positions whose first draft is accepted, read from one long tape
    of the process: positions, not rounds, because every token here is the exit's.
    """
    agrees = acceptance.tape(0, 0, _TEXT_TOKENS).accept[0]
    return 1.0 - float(np.mean(agrees))


@dataclass(frozen=True, slots=True)
class UnverifiedExit:
    """Early exit bound to a target."""

    target: Stack
    exit_layer: int
    name: str = "unverified_exit"
    max_draft: int = 0

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target alone."""
        return {"target": self.target}

    def footprint(self) -> Footprint:
        """Return the exit states that are kept until the deep KV is paid, and one slot."""
        state = self.target.hidden_size * bytes_per_value(self.target.activation_dtype)
        return Footprint(extra_weights_bytes=0.0, extra_kv_bytes_per_token=state, reserved_slots=1)

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m = a = 0 everywhere."""
        nothing = np.zeros(tape.confidence.size, dtype=np.int64)
        return Outcomes(drafted=nothing, accepted=nothing)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return P(m = 0) = P(a = 0) = 1: every step yields one token."""
        return RoundStatistics(drafted_pmf=np.ones(1), accepted_pmf=np.ones(1))

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the shallow pass with its logits, and the deep layers for prompts alone."""
        if not context_lens:
            return [plain_pass(self.target, None, prefill)]
        return list(self._passes(plain_rows(len(context_lens), sum(context_lens)), prefill))

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the shallow pass: nothing is random."""
        rows = plain_rows(batch_size, batch_size * context_len)
        return [WeightedPass(1.0, self._shallow(rows))]

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield the passes of a step: a chain without drafts, and nothing verifies it."""
        for weight, rows in chain.verification:
            for work in self._passes(rows, prefill):
                yield weight, work

    def repayment(self, context_lens: Sequence[int], owed: Sequence[int]) -> Pass:
        """Return the pass that gives the deep layers the tokens they have not seen.

        Parameters
        ----------
        context_lens : sequence (B,), tokens
            Tokens of each sequence, the owed ones included.
        owed : sequence (B,), tokens
            How many of its last tokens were decoded without the deep layers, at least 1 in all.
        """
        pairs = sum(n * (c - n + (n + 1) / 2) for c, n in zip(context_lens, owed, strict=True))
        visible = sum(c for c, n in zip(context_lens, owed, strict=True) if n)
        num_sequences = sum(1 for n in owed if n)
        rows = Rows("prefill", num_sequences, sum(owed), visible, pairs, 0)
        return Pass("target", self.exit_layer, len(self.target.blocks), "catch_up", (rows,))

    def _passes(self, decode: Rows, prefill: Rows | None) -> Iterator[Pass]:
        riding = () if prefill is None else (without_logits(prefill),)
        yield self._shallow(decode, *riding)
        if prefill is not None:
            deep = (self.exit_layer, len(self.target.blocks))
            yield Pass("target", *deep, "prefill", (prefill,))

    def _shallow(self, *rows: Rows) -> Pass:
        return Pass("target", 0, self.exit_layer, "decode", rows, True)
