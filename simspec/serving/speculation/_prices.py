"""What rounds cost in the engine, for policies that weigh modes against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simspec.cost.work import Quantity, Rows
from simspec.decoding._base import WeightedPass
from simspec.decoding.tape import RoundStatistics
from simspec.serving.plan import StepPrice, StepPricer
from simspec.serving.speculation._base import Mode
from simspec.serving.speculation._modes import drafter_passes


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

    def drafter_prompt_s(self, mode: Mode, num_tokens: int) -> float:
        """Return the seconds that reading a prompt of ``num_tokens`` takes the drafter."""
        pairs = num_tokens * (num_tokens + 1) / 2
        rows = Rows("prefill", 1, num_tokens, num_tokens, pairs, 0)
        passes = drafter_passes(mode.method, rows)
        if not passes:
            return 0.0
        price = self._cost.step(passes, 1)
        return float(price.total_s) - float(price.host_s)
