"""The tape: what a request will accept, fixed before any engine runs (DESIGN section 6).

A tape belongs to one request and is keyed by ``(seed, request_id)``. It is indexed by *text
position*: entry ``t`` describes drafting output token ``t`` of the answer. A round that starts
at position ``t`` drafts positions ``t, t+1, …``; the round's first rejected position is
replaced by the target's token and a fully accepted round is followed by the target's bonus
token, so the next round starts at ``t + accepted + 1``. The same text therefore offers the
same easy and hard stretches under every K, tau, scheduler, batch size and GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Tape:
    """Draft confidences and acceptances of one request.

    It reaches beyond the request's last token, so that a round that starts there is drafted like
    any other. A model without confidences leaves NaN in both of them.

    Attributes
    ----------
    confidence : array (n,), 0..1
        Top-1 draft probability at text position ``t`` while everything before it in the
        round was accepted.
    off_track_confidence : array (n,), 0..1
        The same after an earlier token of the round was wrong.
    accept : array (depth, n), bool
        Whether text position ``t`` is accepted when it is the ``i``-th draft (row ``i - 1``)
        of its round and all drafts before it were accepted. Drafts deeper than ``depth`` use
        the last row.
    rank : array (depth, n), int, or None
        Place of the text's token among the drafter's candidates (0 = most probable), for drafters
        that propose several; the number of candidates or more where it is not among them. Rows
        are depths as for ``accept``, which is ``rank == 0``.
    rank_rates : array (depth, ranks), 0..1, or None
        How often each candidate is the text's token, which a calibrated drafter knows and builds
        its tree by; there whenever ``rank`` is.
    matched : array (n,), bool, or None
        Whether there is anything to draft from at text position ``t`` (prompt lookup finds its
        n-gram); None: always.
    """

    confidence: npt.NDArray[np.float64]
    off_track_confidence: npt.NDArray[np.float64]
    accept: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.int64] | None = None
    matched: npt.NDArray[np.bool_] | None = None
    rank_rates: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Drafted and accepted tokens of the round that starts at each text position.

    Attributes
    ----------
    drafted : array (n,), int
        m: tokens drafted, 1 <= m <= K (0 when the method does not speculate or has nothing to
        draft from); of a tree all its nodes.
    accepted : array (n,), int
        a: tokens accepted, 0 <= a <= m; the round yields a + 1 tokens.
    """

    drafted: npt.NDArray[np.int64]
    accepted: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """Closed form of one sequence's round in steady state.

    Attributes
    ----------
    drafted_pmf : array (K + 1,)
        P(m = j), j = 0..K.
    accepted_pmf : array (K + 1,)
        P(a = j), j = 0..K; of a tree j = 0..depth.
    all_accepted : float
        P(m >= 1 and a = m): a chain's drafter has not read its own last token.
    """

    drafted_pmf: npt.NDArray[np.float64]
    accepted_pmf: npt.NDArray[np.float64]
    all_accepted: float = 0.0

    def __post_init__(self) -> None:
        for law in (self.drafted_pmf, self.accepted_pmf):
            assert abs(float(law.sum()) - 1.0) < 1e-6, f"not a probability law: {law}"

    @property
    def drafted_per_round(self) -> float:
        """E[m]."""
        return float(np.arange(self.drafted_pmf.size) @ self.drafted_pmf)

    @property
    def accepted_per_round(self) -> float:
        """E[a]."""
        return float(np.arange(self.accepted_pmf.size) @ self.accepted_pmf)

    @property
    def tokens_per_round(self) -> float:
        """E[a] + 1: the last token of a round comes from the target."""
        return self.accepted_per_round + 1.0

    @property
    def step_probability(self) -> npt.NDArray[np.float64]:
        """P(m >= j) for j = 1..K: the chance that one sequence takes draft step j."""
        return np.cumsum(self.drafted_pmf[::-1])[::-1][1:]
