"""What rounds cost in the engine, for policies that weigh modes against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simspec.cost.work import Quantity, Rows
from simspec.decoding._base import WeightedPass
from simspec.decoding.tape import RoundStatistics
from simspec.serving.plan import StepPrice, StepPricer
from simspec.serving.speculation._base import Mode


class ExpectedPricer(Protocol):
    """Prices passes in expectation; ``CostModel`` does."""

    def expected_step(self, weighted: Sequence[WeightedPass], num_sequences: Quantity) -> StepPrice:
        """Return the expected price of a step."""
        ...


class EnginePrices:
    """Asks the cost model that also prices the steps.

    Parameters
    ----------
    cost : StepPricer
        Of the replica; for expected rounds an :class:`ExpectedPricer`.
    """

    def __init__(self, cost: StepPricer) -> None:
        self._cost = cost

    def round_s(
        self, mode: Mode, batch_size: int, context_len: int, statistics: RoundStatistics
    ) -> float:
        """Return the expected seconds of a round: the closed form of ``simspec estimate``."""
        weighted = mode.method.expected_passes(batch_size, context_len, statistics)
        expected: ExpectedPricer = self._cost  # type: ignore[assignment]
        return float(expected.expected_step(weighted, batch_size).total_s)

    def chunk_s(
        self, mode: Mode, context_len: int, rounds: Sequence[tuple[int, int]], chunk_tokens: int
    ) -> float:
        """Return the seconds that prompt chunks add to a step with rounds of given m and a."""
        contexts = [context_len] * len(rounds)
        drafted, accepted = [m for m, _ in rounds], [a for _, a in rounds]
        pairs = chunk_tokens * (chunk_tokens + 1) / 2
        chunk = Rows("prefill", 1, chunk_tokens, chunk_tokens, pairs, 1)
        with_chunk = mode.method.round_passes(contexts, drafted, accepted, chunk)
        alone = mode.method.round_passes(contexts, drafted, accepted, None)
        longer = self._cost.step(with_chunk, len(rounds) + 1).total_s
        return float(longer) - float(self._cost.step(alone, len(rounds)).total_s)
