"""Prompt lookup: drafts are copied from an earlier occurrence of the text's last tokens.

Saxena, "Prompt Lookup Decoding", 2023 (github.com/apoorvumang/prompt-lookup-decoding), vLLM's
``ngram`` and Hugging Face's ``prompt_lookup_num_tokens``. One round costs

    one search on the host for each sequence
    F(0, L, m + 1) + H(m + 1)                     verify

with m = K where the search found an occurrence and m = 0 where it did not: nothing is drafted then
and nothing verified, the sequence adds its one token to the pass in which others verify K + 1.

* Whether there is a match (``Tape.matched``) and what is accepted given one are two things; the
  acceptance model ``lookup`` has both. A model without matches drafts in every round.
* There is no draft model: no weights, no KV, no draft step. The search takes host time
  (``host.per_lookup_us`` of the engine profile), whether or not it finds anything, and happens
  before the pass. Its time is taken as independent of the length of the text.
* No confidences, so no threshold.

Left out: matches near the end of the text, which offer fewer than K tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import (
    MAX_DRAFT,
    ChainRound,
    WeightedRows,
    chain_outcomes,
    expected_round,
    observed_round,
    plain_pass,
    plain_rows,
    required,
)
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape


class Config(MethodConfig):
    """Fields of ``method: {name: prompt_lookup, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "prompt_lookup"},
                {"name": "prompt_lookup", "num_speculative_tokens": 3},
            ]
        }
    )

    searches: ClassVar[bool] = True

    name: Literal["prompt_lookup"] = "prompt_lookup"
    num_speculative_tokens: int = Field(default=10, ge=1, le=MAX_DRAFT)
    """K: tokens copied after a match; 10 in the published code."""

    def acceptance_sentence(self, acceptance: AcceptanceProcess) -> str:
        """Return the acceptance's sentence, and what it means without matches."""
        said = acceptance.describe()
        if acceptance.tape(0, 0, 1).matched is None:
            said += "; every search is taken to find something to copy"
        return said

    def build(self, target: Stack) -> PromptLookup:
        """Bind to ``target``."""
        return PromptLookup(target, self.num_speculative_tokens)


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Prompt lookup bound to a target."""

    target: Stack
    max_draft: int
    name: str = "prompt_lookup"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target alone."""
        return {"target": self.target}

    def footprint(self) -> Footprint:
        """Return nothing extra, and K + 1 slots."""
        return Footprint(0.0, 0.0, self.max_draft + 1)

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position; 0 without a match."""
        return chain_outcomes(tape, self.max_draft, 0.0)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        return required(acceptance, self.name).statistics(self.max_draft, 0.0)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return one pass over every layer; that of plain decoding if nothing was found."""
        if not context_lens:
            return [plain_pass(self.target, None, prefill)]
        searches = len(context_lens)
        if not any(drafted):
            rows = plain_rows(searches, sum(context_lens))
            return [replace(plain_pass(self.target, rows, prefill), host_lookups=searches)]
        chain = observed_round(context_lens, drafted)
        return [work for _, work in self.chain_passes(chain, [], prefill)]

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return one pass over every layer, with alternatives for the tokens in it."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            plain = plain_pass(self.target, rows, None)
            return [WeightedPass(1.0, replace(plain, host_lookups=batch_size))]
        chain = expected_round(batch_size, context_len, statistics)
        return [WeightedPass(weight, work) for weight, work in self.chain_passes(chain, [], None)]

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield one pass over every layer: copying needs no draft step, searching does."""
        riding = () if prefill is None else (prefill,)
        for weight, rows in chain.verification:
            seen = (rows, *riding)
            num_layers, searches = len(self.target.blocks), rows.num_sequences
            yield weight, Pass("target", 0, num_layers, "verify", seen, True, searches)
