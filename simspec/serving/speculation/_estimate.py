"""What rounds have shown of a method's acceptance, for draft lengths that were not tried.

Kept as hazards, which hold for every draft length that reaches them: g_j, how often drafting went
on from m = j to j + 1, and s_j, how often draft j was accepted when all before it were. From them
follow the laws of m and a under any length K,

    P(m >= j) = prod_{i<j} g_i        P(a >= j) = prod_{i<=j} s_i        j <= K

without a parametric acceptance, and how sure the tokens of a round E = 1 + sum_j P(a >= j) are,

    Var E = sum_i (sum_{j>=i} P(a >= j) / s_i)^2 s_i (1 - s_i) / n_i

by the delta method, n_i the rounds that tried draft i. The counts of a draft position are halved
when they weigh as much as the memory holds, so that the estimate follows a text that changes. A
position that no round reached takes the last hazard that was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt

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
        self.num_rounds = 0
        """Seen so far."""
        self._new: dict[int, Counter[tuple[int, int]]] = {}
        self._counts = [[[0.0] * (max_depth + 1) for _ in range(2)] for _ in range(3)]
        (self._could_go_on, self._went_on), (self._tried, self._accepted), last = self._counts
        self._could_end, self._ended_full = last

    def add(self, depth: int, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """Count the rounds of one step.

        Parameters
        ----------
        depth : int
            K of the mode they were drafted in.
        drafted, accepted : sequences (B,), tokens
            m and a of each; of a tree, m does not matter.
        """
        if depth not in self._new:
            self._new[depth] = Counter()
        self._new[depth].update(zip(drafted, accepted, strict=True))
        self.num_rounds += len(drafted)

    def refresh(self) -> None:
        """Take in the rounds that were added; the laws below are those of the last refresh."""
        for depth, pairs in self._new.items():
            for (m, a), count in pairs.items():
                self._take_in(depth, m, a, float(count))
        self._new.clear()
        for tried, *passed in self._counts:
            for j, weight in enumerate(tried):
                if weight >= self._memory:
                    for counts in (tried, *passed):
                        counts[j] /= 2.0

    def _take_in(self, depth: int, m: int, a: int, count: float) -> None:
        for j in range(min(m, depth)):
            self._went_on[j] += count
        for j in range(min(m + 1, depth)):
            self._could_go_on[j] += count
        for j in range(1, a + 1):
            self._accepted[j] += count
        for j in range(1, min(a + 1, depth) + 1):
            self._tried[j] += count
        for j in range(depth):
            self._could_end[j] += count
        if m == a < depth:
            self._ended_full[m] += count

    def tokens(self, depth: int) -> float:
        """Return E[a] + 1 with at most ``depth`` drafts."""
        return 1.0 + sum(self._accepted_survival(depth))

    def tokens_sigma(self, depth: int) -> float:
        """Return the standard error of :meth:`tokens`."""
        survival = self._accepted_survival(depth)
        variance = 0.0
        for i in range(1, depth + 1):
            # Two rounds more, one of them a success: no share is certain after a few.
            number, passed = self._tried[i] + 2.0, self._accepted[i] + 1.0
            share = passed / number
            slope = sum(survival[i - 1 :]) / share
            variance += slope**2 * share * (1.0 - share) / number
        return sqrt(variance)

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

    def typical_rounds(self, depth: int, max_draft: int, size: int) -> list[tuple[int, int]]:
        """Return m and a of as many rounds of a mode, each at its quantiles (i + 1/2) / size."""
        accepted = _quantiles(self._accepted_survival(depth), size)
        drafted = [max_draft] * size
        if depth == max_draft:
            drafted = _quantiles(self.drafted_survival(depth), size)
        return [(m, min(a, m)) for m, a in zip(drafted, accepted, strict=True)]

    def _accepted_survival(self, depth: int) -> list[float]:
        return _products(self._tried, self._accepted, range(1, depth + 1))


def _quantiles(survival: Sequence[float], size: int) -> list[int]:
    """Return the quantiles of X from P(X >= j), j = 1, 2, …, in ascending order."""
    levels = [1.0 - (i + 0.5) / size for i in range(size)]
    return [sum(1 for share in survival if share > level) for level in levels]


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
