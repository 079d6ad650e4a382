"""What rounds have shown of a method's acceptance, for draft lengths that were not tried.

Kept as hazards, which hold for every draft length that reaches them: how often drafting went on
from m = j to j + 1, and how often draft j was accepted when all before it were. From them follow
the laws of m and a under any length K,

    P(m >= j) = prod_{i<j} g_i        P(a >= j) = prod_{i<=j} s_i        j <= K

without a parametric acceptance. Counts are halved whenever as many rounds as the memory holds have
been added, so that the estimate follows a text that changes. A depth that no round reached takes
the last hazard that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simspec.decoding.tape import RoundStatistics


class RoundEstimate:
    """Hazards of the rounds of one threshold.

    Parameters
    ----------
    max_depth : int
        K of the longest mode.
    memory_rounds : int
        Rounds after which a count has lost half of its weight.
    """

    def __init__(self, max_depth: int, memory_rounds: int) -> None:
        self._memory = memory_rounds
        self._added = 0
        self.num_rounds = 0
        """Seen so far."""
        width = max_depth + 1
        self._could_go_on, self._went_on = [0.0] * width, [0.0] * width
        self._tried, self._accepted = [0.0] * width, [0.0] * width
        self._could_end, self._ended_full = [0.0] * width, [0.0] * width

    def add(self, depth: int, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """Count the rounds of one step.

        Parameters
        ----------
        depth : int
            K of the mode they were drafted in.
        drafted, accepted : sequences (B,), tokens
            m and a of each; of a tree, m does not matter.
        """
        could, went, tried, kept = (
            self._could_go_on, self._went_on, self._tried, self._accepted,
        )  # fmt: skip
        full = self._ended_full
        for m, a in zip(drafted, accepted, strict=True):
            for j in range(min(m, depth)):
                went[j] += 1.0
            for j in range(min(m + 1, depth)):
                could[j] += 1.0
            for j in range(1, a + 1):
                kept[j] += 1.0
            for j in range(1, min(a + 1, depth) + 1):
                tried[j] += 1.0
            if m == a < depth:
                full[m] += 1.0
        for j in range(depth):
            self._could_end[j] += len(drafted)
        self.num_rounds += len(drafted)
        self._added += len(drafted)
        if self._added >= self._memory:
            self._added //= 2
            for counts in (could, went, tried, kept, full, self._could_end):
                counts[:] = [count / 2.0 for count in counts]

    def tokens(self, depth: int) -> float:
        """Return E[a] + 1 with at most ``depth`` drafts."""
        return 1.0 + sum(self._accepted_survival(depth))

    def drafted_survival(self, depth: int) -> list[float]:
        """Return P(m >= j) for j = 1..depth."""
        return _products(self._could_go_on, self._went_on, range(depth))

    def statistics(self, depth: int, max_draft: int) -> RoundStatistics:
        """Return the laws of m and a of a mode, for the closed form.

        Parameters
        ----------
        depth, max_draft : int
            Deepest draft and most of them; they differ for a tree, which is always drafted whole.
        """
        accepted = self._accepted_survival(depth)
        drafted = self.drafted_survival(depth) if depth == max_draft else [1.0] * max_draft
        ended = sum(
            self._ended_full[j] / self._could_end[j] for j in range(1, depth) if self._could_end[j]
        )
        return RoundStatistics(
            drafted_pmf=_pmf(drafted),
            accepted_pmf=_pmf(accepted),
            all_accepted=min(1.0, accepted[-1] + ended),
        )

    def _accepted_survival(self, depth: int) -> list[float]:
        return _products(self._tried, self._accepted, range(1, depth + 1))


def _products(tried: list[float], passed: list[float], positions: range) -> list[float]:
    product, hazard = 1.0, 0.0
    result = []
    for j in positions:
        if tried[j] > 0.0:
            hazard = passed[j] / tried[j]
        product *= hazard
        result.append(product)
    return result


def _pmf(survival: Sequence[float]) -> np.ndarray:
    return -np.diff(np.array([1.0, *survival, 0.0]))
