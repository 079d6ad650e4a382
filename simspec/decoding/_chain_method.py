"""What all methods that draft a chain have in common.

Such a method says the passes of a round that drafts (``chain_passes``, from rows that are known or
expected) and the passes that fill its own KV with a prompt; everything else follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, WeightedPass
from simspec.decoding._chain import (
    ChainRound,
    WeightedRows,
    chain_outcomes,
    expected_catch_up,
    expected_round,
    observed_catch_up,
    observed_round,
    plain_pass,
    plain_rows,
    required,
)
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape


class ChainDrafter(ABC):
    """A method whose rounds are chains that stop on low confidence."""

    __slots__ = ()

    name: str
    target: Stack
    max_draft: int
    threshold: float

    @abstractmethod
    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterable[tuple[Quantity, Pass]]:
        """Yield the passes of a round that drafts, and their weights."""

    @property
    def catches_up(self) -> bool:
        """Whether the last draft of a fully accepted round is missing in a KV of its own."""
        return False

    def prompt_passes(self, prefill: Rows) -> list[Pass]:
        """Return the passes beside the target's that prompt chunks take."""
        return []

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        return chain_outcomes(tape, self.max_draft, self.threshold)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        return required(acceptance, self.name).statistics(self.max_draft, self.threshold)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round; plain decoding if nothing is drafted."""
        if any(drafted):
            chain = observed_round(context_lens, drafted)
            gaps = observed_catch_up(context_lens, drafted, accepted) if self.catches_up else []
            return [work for _, work in self.chain_passes(chain, gaps, prefill)]
        rows = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        passes = [plain_pass(self.target, rows, prefill)]
        if prefill is not None:
            passes += self.prompt_passes(prefill)
        return passes

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation over independent sequences."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            return [WeightedPass(1.0, plain_pass(self.target, rows, None))]
        chain = expected_round(batch_size, context_len, statistics)
        gaps = expected_catch_up(batch_size, context_len, statistics) if self.catches_up else []
        return [WeightedPass(weight, work) for weight, work in self.chain_passes(chain, gaps, None)]
