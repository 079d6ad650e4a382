"""What acceptance means: rejection sampling keeps the target's law and accepts 1 - TV of drafts.

Leviathan, Kalman and Matias (arXiv 2211.17192, sections 2.3 and 3.1, appendix A.1): a draft x ~ q
is accepted with probability min(1, p(x) / q(x)) and otherwise replaced by a draw from the
normalised max(0, p - q). Everything simspec counts as *accepted* is an outcome of this rule.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from simspec.decoding._chain import chain_outcomes
from simspec.decoding.acceptance.constant import Config as Constant
from simspec.decoding.tape import Tape

Array = npt.NDArray[np.float64]

PAIRS = 40
DRAWS = 40_000
VOCABULARY = 12


def speculative_sample(
    target: Array, draft: Array, num_draws: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the emitted token of each draw and whether it was the draft.

    Parameters
    ----------
    target, draft : arrays (V,)
        p and q.
    num_draws : int
        Independent positions.
    """
    drafts = rng.choice(draft.size, size=num_draws, p=draft)
    accepted = rng.random(num_draws) * draft[drafts] < target[drafts]
    rest = np.maximum(target - draft, 0.0)
    # Identical laws reject nothing and leave nothing to draw from.
    rest = rest / rest.sum() if rest.sum() > 0 else target
    return np.where(accepted, drafts, rng.choice(draft.size, size=num_draws, p=rest)), accepted


def pairs() -> list[tuple[Array, Array]]:
    """Return pairs of laws from nearly equal to nearly disjoint, with zeros in some."""
    rng = np.random.default_rng(7)
    found = []
    for i in range(PAIRS):
        sharpness = 10.0 ** rng.uniform(-1.5, 1.0)
        p, q = rng.dirichlet(np.full(VOCABULARY, sharpness), size=2)
        if i % 4 == 0:
            q = 0.95 * p + 0.05 * q
        if i % 5 == 0:
            p = np.where(np.arange(VOCABULARY) % 3 == 0, 0.0, p)
            p = p / p.sum()
        found.append((p, q))
    return found


def overlap(p: Array, q: Array) -> float:
    """Return sum_v min(p, q) = 1 - TV(p, q)."""
    return float(np.minimum(p, q).sum())


def test_drafts_are_accepted_as_often_as_the_laws_overlap() -> None:
    """P(accept) = 1 - TV for every pair, within 5 standard errors (false alarm 2e-5 in all)."""
    overlaps = [overlap(p, q) for p, q in pairs()]
    assert min(overlaps) < 0.2
    assert max(overlaps) > 0.95
    rng = np.random.default_rng(11)
    for (p, q), expected in zip(pairs(), overlaps, strict=True):
        _, accepted = speculative_sample(p, q, DRAWS, rng)
        error = np.sqrt(expected * (1 - expected) / DRAWS)
        assert accepted.mean() == pytest.approx(expected, abs=5 * error + 1e-12)


def test_the_output_is_the_targets() -> None:
    """Emitted tokens follow p, whatever q: chi-square of each pair, and of all together.

    Tokens expected less than 5 times count with the commonest one. Each pair at 1e-6, the sum of
    all at 1e-4.
    """
    rng = np.random.default_rng(13)
    total, freedom = 0.0, 0
    for p, q in pairs():
        emitted, _ = speculative_sample(p, q, DRAWS, rng)
        statistic, degrees = _chi_square(np.bincount(emitted, minlength=VOCABULARY), p)
        assert statistic < chi2.ppf(1 - 1e-6, max(degrees, 1))
        total, freedom = total + statistic, freedom + degrees
    assert total < chi2.ppf(1 - 1e-4, freedom)


def test_the_drafts_would_not_pass() -> None:
    """The chi-square test has power: accepting every draft fails for all but nearly equal laws."""
    rng = np.random.default_rng(17)
    failed = 0
    for p, q in pairs():
        drafts = rng.choice(VOCABULARY, size=DRAWS, p=q)
        statistic, degrees = _chi_square(np.bincount(drafts, minlength=VOCABULARY), p)
        failed += statistic > chi2.ppf(1 - 1e-6, max(degrees, 1))
    assert failed >= 0.9 * PAIRS


def test_a_chain_of_accepted_drafts_has_leviathans_length() -> None:
    """alpha = E[1 - TV] of independent positions; a chain of K yields (1 - a^(K+1)) / (1 - a).

    Positions draw their pair of laws and then their tokens; the rounds are those of the decoding
    methods. 200,000 positions, blocks of 1,000 rounds, 4 standard errors (false alarm 6e-5).
    """
    rng = np.random.default_rng(19)
    alphas = np.array([overlap(p, q) for p, q in pairs()])
    accept = np.zeros(200_000, dtype=np.bool_)
    which = rng.integers(PAIRS, size=accept.size)
    for index, (p, q) in enumerate(pairs()):
        here = np.flatnonzero(which == index)
        accept[here] = speculative_sample(p, q, here.size, rng)[1]
    unknown = np.full(accept.size, np.nan)
    num_drafts = 5
    outcomes = chain_outcomes(Tape(unknown, unknown, accept[None, :]), num_drafts, 0.0)
    position, tokens = 0, []
    while position < accept.size - num_drafts:
        tokens.append(int(outcomes.accepted[position]) + 1)
        position += tokens[-1]
    rounds = np.array(tokens[: len(tokens) // 1000 * 1000]).reshape(-1, 1000).mean(axis=1)
    expected = Constant(alpha=float(alphas.mean())).at(None).statistics(num_drafts, 0.0)
    error = rounds.std(ddof=1) / np.sqrt(rounds.size)
    assert rounds.mean() == pytest.approx(expected.tokens_per_round, abs=4 * error)


def _chi_square(counts: npt.NDArray[np.int64], law: Array) -> tuple[float, int]:
    """Return the statistic of ``counts`` against ``law`` and its degrees of freedom."""
    expected = law * counts.sum()
    if np.any(counts[law == 0.0]):
        return float("inf"), 1
    rare = expected < 5.0
    most = int(expected.argmax())
    seen, wanted = counts[~rare].astype(float), expected[~rare]
    place = int(np.count_nonzero(~rare[:most]))
    seen[place] += counts[rare].sum()
    wanted[place] += expected[rare].sum()
    return float(((seen - wanted) ** 2 / wanted).sum()), seen.size - 1
