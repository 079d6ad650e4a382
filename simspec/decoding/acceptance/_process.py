"""One acceptance process for every chain model: a latent text and a logistic curve.

At text position ``t``, drafted as the ``i``-th token of its round with everything before it
accepted,

    P(accept | c_t, i) = expit(slope * logit(c_t) + log_odds[i])

(Platt, "Probabilistic outputs for support vector machines", 1999, with the log-odds of the
confidence as score). ``slope = 1, log_odds = 0`` is a drafter whose confidence is its acceptance;
``slope = 0`` lets acceptance ignore confidence. Constant and per-position acceptance are the
cases with ``slope = 0``. The tape samples this law; :meth:`LatentProcess.statistics` integrates
it (docs/theory/acceptance.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from simspec.core.errors import ConfigError
from simspec.core.rng import stream
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding.acceptance._latent import (
    Array,
    Confidence,
    Grid,
    autoregressive_path,
    expit_array,
    latent_grid,
    single_point,
)
from simspec.decoding.tape import RoundStatistics, Tape

TAPE_DEPTH = 16
"""Draft positions with acceptances of their own; deeper ones use the last."""


@dataclass(frozen=True, slots=True)
class LatentProcess:
    """Confidence and acceptance along a text.

    Attributes
    ----------
    sentence : str
        What :meth:`describe` returns.
    log_odds : tuple (TAPE_DEPTH,)
        Offset of the acceptance curve for each draft position; infinite for rates 0 and 1.
    slope : float
        Weight of ``logit(c)`` in the log-odds of acceptance; 0 without a confidence.
    confidence, off_track : Confidence or None
        Before and after the first rejection of a round; both or neither.
    autocorrelation : float
        Lag-1 correlation of the latents, one for each confidence.
    """

    sentence: str
    log_odds: tuple[float, ...]
    slope: float = 0.0
    confidence: Confidence | None = None
    off_track: Confidence | None = None
    autocorrelation: float = 0.0

    def tape(self, seed: int, request_id: int, num_tokens: int) -> Tape:
        """Return the tape of a request, with the look-ahead the longest draft needs.

        Row ``t`` of one table of uniforms makes everything at position ``t``, so a longer tape
        begins with the shorter one, and a higher acceptance accepts a superset.
        """
        from scipy.special import ndtri

        num_positions = num_tokens + MAX_DRAFT
        # Half an ulp keeps the uniforms inside (0, 1).
        uniform = stream(seed, "acceptance", request_id).random((num_positions, 3)) + 2.0**-54
        coin = np.log(uniform[:, 2]) - np.log1p(-uniform[:, 2])
        offsets = np.array(self.log_odds)[:, None]
        if self.confidence is None or self.off_track is None:
            unknown = np.full(num_positions, np.nan)
            return Tape(unknown, unknown, coin < offsets)
        latent = autoregressive_path(ndtri(uniform[:, :2]), self.autocorrelation)
        confidence_logit = self.confidence.logit(latent[:, 0])
        return Tape(
            confidence=below_one(expit_array(confidence_logit)),
            off_track_confidence=below_one(expit_array(self.off_track.logit(latent[:, 1]))),
            accept=coin - self.slope * confidence_logit < offsets,
        )

    def statistics(self, max_draft: int, threshold: float) -> RoundStatistics:
        """Return the distributions of m and a in steady state.

        Exact when positions are independent; otherwise a transfer matrix over the latent, with
        the latent's own stationary law at round starts (hard stretches hold more of them).

        Raises
        ------
        ConfigError
            A threshold above 0 and no confidence to compare with it.
        """
        if threshold > 0.0 and self.confidence is None:
            raise ConfigError(
                f"confidence_threshold {threshold:g} needs a confidence distribution and this "
                "acceptance model has none; add 'confidence' with the Beta shape parameters "
                "'a' and 'b', or set confidence_threshold to 0"
            )
        text = self._discretise(threshold)
        start = round_start(text, max_draft)
        survival = self._off_track_survival(max_draft, threshold)
        return round_statistics(text, start, max_draft, survival)

    def counterfactual(
        self, max_draft: int, threshold: float, captured_draft: int
    ) -> RoundStatistics:
        """Return the distributions of m and a of rounds that start where other rounds do.

        What a trace captured at threshold 0 says about a shorter draft or a larger threshold: each
        of its rounds cut short, not the rounds that would have followed.

        Parameters
        ----------
        max_draft : int
            K of the rounds asked about.
        threshold : float
            Their tau.
        captured_draft : int
            K of the rounds, at threshold 0, that decide where rounds start.
        """
        text = self._discretise(threshold)
        captured = replace(text, is_confident=np.ones_like(text.is_confident))
        start = round_start(captured, captured_draft)
        survival = self._off_track_survival(max_draft, threshold)
        return round_statistics(text, start, max_draft, survival)

    def describe(self) -> str:
        """Return one sentence that states every assumption."""
        return self.sentence

    def _discretise(self, threshold: float) -> DiscreteText:
        if self.confidence is None:
            grid, curve, is_confident = single_point(), np.zeros(1), np.ones(1)
        else:
            edge = self.confidence.latent_at(threshold)
            grid = latent_grid(self.autocorrelation, edge)
            curve = self.slope * self.confidence.logit(grid.z)
            is_confident = (grid.z > edge).astype(np.float64)
        accept = expit_array(curve + np.array(self.log_odds)[:, None])
        return DiscreteText(grid, accept, is_confident)

    def _off_track_survival(self, max_draft: int, threshold: float) -> Array:
        """Return P(the first ``j`` off-track tokens are all confident), ``j = 0..max_draft - 1``.

        The off-track latent is independent of the on-track one, hence of where rounds start.
        """
        survival = np.ones(max_draft)
        if self.off_track is None:
            return survival
        edge = self.off_track.latent_at(threshold)
        grid = latent_grid(self.autocorrelation, edge)
        mass = grid.stationary
        for j in range(1, max_draft):
            mass = np.where(grid.z > edge, mass, 0.0)
            survival[j] = mass.sum()
            mass = grid.advance(mass)
        return survival


def below_one(confidence: Array) -> Array:
    """Round a confidence of 1 down, so that a threshold of 1 stops every draft."""
    return np.minimum(confidence, 1.0 - 2.0**-53)


@dataclass(frozen=True, slots=True)
class DiscreteText:
    """A latent text on a grid.

    Attributes
    ----------
    grid : Grid
        Nodes and transition of the latent.
    accept : array (depth, N)
        P(accept) per draft position and node; deeper positions use the last row.
    is_confident : array (N,), 0 or 1
        Whether the confidence reaches the threshold.
    """

    grid: Grid
    accept: Array
    is_confident: Array

    def accept_at(self, index: int) -> Array:
        """Return P(accept) of draft ``index`` (from 0) per node."""
        return np.asarray(self.accept[min(index, self.accept.shape[0] - 1)])


def round_start(text: DiscreteText, max_draft: int) -> Array:
    """Return the steady-state law of the latent at a round's first draft position.

    A round that rejects draft ``i`` starts the next one a position later; one that accepts its
    last draft skips the position of the bonus token. The map from one start to the next is a
    stochastic matrix over the nodes; its stationary vector is returned, shape (N,).
    """
    grid = text.grid
    if grid.transition is None:
        return grid.stationary
    size = grid.z.size
    alive = np.eye(size)
    one_step = np.zeros((size, size))
    two_steps = np.zeros((size, size))
    for i in range(max_draft):
        accepted = alive * text.accept_at(i)
        one_step += alive - accepted
        if i + 1 == max_draft:
            two_steps += accepted
        else:
            two_steps += accepted * (1.0 - text.is_confident)
            alive = grid.advance(accepted * text.is_confident)
    next_start = grid.advance(one_step + grid.advance(two_steps))
    # Solve start (M - I) = 0 with one redundant equation replaced by sum(start) = 1.
    equations = next_start.T - np.eye(size)
    equations[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    start = np.linalg.solve(equations, right)
    return np.asarray(np.clip(start, 0.0, None) / np.clip(start, 0.0, None).sum())


def round_statistics(
    text: DiscreteText, start: Array, max_draft: int, off_track_survival: Array
) -> RoundStatistics:
    """Follow one round from ``start`` and collect P(m = j) and P(a = j)."""
    drafted = np.zeros(max_draft + 1)
    accepted = np.zeros(max_draft + 1)
    all_accepted = 0.0
    alive = start
    for i in range(max_draft):
        is_last = i + 1 == max_draft
        agree = alive * text.accept_at(i)
        go_on = np.zeros_like(alive) if is_last else text.is_confident
        accepted[i] += float((alive - agree).sum())
        stopped = float((agree * (1.0 - go_on)).sum())
        accepted[i + 1] += stopped
        all_accepted += stopped
        drafted[i + 1] += float((alive * (1.0 - go_on)).sum())
        # Rejected but confident: drafting continues off track for 1..left more tokens.
        lost, left = float(((alive - agree) * go_on).sum()), max_draft - i - 1
        if left:
            reach = off_track_survival[:left]
            drafted[i + 2 : max_draft + 1] += lost * (reach - np.append(reach[1:], 0.0))
        alive = text.grid.advance(agree * go_on)
    return RoundStatistics(drafted, accepted, all_accepted)


def survival_of_first(text: DiscreteText, start: Array, num_drafts: int) -> Array:
    """Return P(the first ``i`` drafts are all accepted), ``i = 1..num_drafts``, at threshold 0."""
    rates = np.zeros(num_drafts)
    alive = start
    for i in range(num_drafts):
        agree = alive * text.accept_at(i)
        rates[i] = agree.sum()
        alive = text.grid.advance(agree)
    return rates


def solve_offset(curve: Array, mass: Array, rate: float) -> float:
    """Return ``o`` with ``sum(mass * expit(curve + o)) = rate * sum(mass)``, by bisection.

    Parameters
    ----------
    curve : array (N,)
        ``slope * logit(c)`` at the nodes.
    mass : array (N,)
        Weight of each node.
    rate : float
        Wanted acceptance, 0..1; 0 and 1 give infinite offsets.
    """
    if rate <= 0.0:
        return -inf
    if rate >= 1.0:
        return inf
    centre = float(np.log(rate) - np.log1p(-rate))
    low, high = centre - float(curve.max()), centre - float(curve.min())
    wanted = rate * float(mass.sum())
    while high - low > 1e-13 * max(1.0, abs(low), abs(high)):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if float(mass @ expit_array(curve + middle)) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
