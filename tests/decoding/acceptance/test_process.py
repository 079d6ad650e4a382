"""Acceptance along a text: the closed form, the tape, and their agreement."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.special import betaincc, expit
from scipy.stats import beta

from simspec.core.errors import ConfigError
from simspec.decoding._chain import MAX_DRAFT, chain_outcomes
from simspec.decoding.acceptance._latent import Confidence
from simspec.decoding.acceptance._process import TAPE_DEPTH, LatentProcess
from simspec.decoding.tape import RoundStatistics
from tests.decoding.factories import walk

ON, OFF = Confidence(4.5, 1.8), Confidence(2.0, 2.5)


def process(
    *log_odds: float,
    slope: float = 0.0,
    confidence: Confidence | None = ON,
    off_track: Confidence | None = OFF,
    rho: float = 0.0,
) -> LatentProcess:
    """Return a process; the last log-odds repeat."""
    depth = (*log_odds, *[log_odds[-1]] * (TAPE_DEPTH - len(log_odds)))
    return LatentProcess("as tested", depth, slope, confidence, off_track, rho)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.82, 0.999])
@pytest.mark.parametrize("max_draft", [1, 5, 16, 64])
def test_without_a_threshold_tokens_are_leviathans(alpha: float, max_draft: int) -> None:
    """E[tokens] = (1 - alpha^(K+1)) / (1 - alpha), arXiv 2211.17192 equation 1, and m = K."""
    odds = -inf if alpha == 0 else float(np.log(alpha / (1 - alpha)))
    statistics = process(odds, confidence=None, off_track=None).statistics(max_draft, 0.0)
    expected = (1 - alpha ** (max_draft + 1)) / (1 - alpha)
    assert statistics.tokens_per_round == pytest.approx(expected, rel=1e-12)
    assert statistics.drafted_per_round == pytest.approx(max_draft, rel=1e-12)


def test_certain_acceptance_accepts_every_draft() -> None:
    """alpha = 1 gives K + 1 tokens."""
    statistics = process(inf, confidence=None, off_track=None).statistics(7, 0.0)
    assert statistics.tokens_per_round == pytest.approx(8.0, rel=1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("tau", [0.0, 0.4, 0.65, 0.95])
@pytest.mark.parametrize("max_draft", [1, 4, 9])
def test_independent_positions_have_the_closed_form(
    slope: float, tau: float, max_draft: int
) -> None:
    """E[m] = (1 - p^K) / (1 - p) and E[tokens] = 1 + A (1 - A+^K) / (1 - A+).

    p = P(c >= tau), A = P(accept), A+ = P(accept and c >= tau), by adaptive quadrature over the
    Beta density. E[m] in this form needs equal confidences on and off track.
    """
    statistics = process(0.4, slope=slope, off_track=ON).statistics(max_draft, tau)

    def accept_density(c: float) -> float:
        odds = slope * np.log(c / (1 - c)) + 0.4
        return float(expit(odds) * beta.pdf(c, ON.a, ON.b))

    p = float(betaincc(ON.a, ON.b, tau))
    accept = quad(accept_density, 0, 1)[0]
    accept_sure = quad(accept_density, tau, 1)[0]
    drafted = max_draft if p == 1.0 else (1 - p**max_draft) / (1 - p)
    tokens = 1 + accept * (1 - accept_sure**max_draft) / (1 - accept_sure)
    assert statistics.drafted_per_round == pytest.approx(drafted, rel=1e-6)
    assert statistics.tokens_per_round == pytest.approx(tokens, rel=1e-6)


def test_off_track_tokens_draw_their_own_confidence() -> None:
    """E[m] = sum over j of P(still drafting before j), split at the first wrong token.

    With p on track, q off track and alpha independent of both:
    P(m >= j + 1) = p^j alpha^j + sum_{i <= j} p^i alpha^(i-1) (1 - alpha) q^(j-i).
    """
    alpha, tau, max_draft = 0.7, 0.6, 6
    statistics = process(float(np.log(alpha / (1 - alpha)))).statistics(max_draft, tau)
    p, q = (float(betaincc(c.a, c.b, tau)) for c in (ON, OFF))
    reach = [
        p**j * alpha**j
        + sum(p**i * alpha ** (i - 1) * (1 - alpha) * q ** (j - i) for i in range(1, j + 1))
        for j in range(max_draft)
    ]
    np.testing.assert_allclose(statistics.step_probability, reach, rtol=1e-9)


def test_vanishing_autocorrelation_is_independence() -> None:
    """The transfer matrix at rho = 1e-6 gives what independent positions give."""
    for tau in (0.0, 0.6):
        exact = process(0.3, -0.2, slope=1.5).statistics(5, tau)
        nearly = process(0.3, -0.2, slope=1.5, rho=1e-6).statistics(5, tau)
        np.testing.assert_allclose(nearly.drafted_pmf, exact.drafted_pmf, atol=1e-6)
        np.testing.assert_allclose(nearly.accepted_pmf, exact.accepted_pmf, atol=1e-6)


def simulate(
    model: LatentProcess, max_draft: int, tau: float, num_requests: int, num_rounds: int, skip: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return per request the frequencies of m and of a, shape (requests, K + 1) each.

    The number of rounds is fixed, so that no request counts more because it is slow.
    """
    length = (num_rounds + skip) * (max_draft + 1)
    frequencies = np.zeros((2, num_requests, max_draft + 1))
    for request in range(num_requests):
        outcomes = chain_outcomes(model.tape(11, request, length), max_draft, tau)
        for row, counts in enumerate(walk(outcomes, num_rounds + skip)):
            frequencies[row, request] = np.bincount(counts[skip:], minlength=max_draft + 1)
    frequencies /= num_rounds
    return frequencies[0], frequencies[1]


CASES = {
    "constant": (process(1.0, confidence=None, off_track=None), 4, 0.0),
    "constant with threshold": (process(1.0), 5, 0.65),
    "falling positions": (process(0.8, 0.0, -0.5, slope=1.0), 6, 0.5),
    "clustered": (process(0.2, slope=1.0, rho=0.6), 6, 0.0),
    "clustered with threshold": (process(0.2, slope=1.0, rho=0.6), 6, 0.6),
    "clustered positions": (process(1.0, 0.0, -1.0, slope=2.0, rho=0.8), 4, 0.5),
    "long memory": (process(-0.5, slope=1.5, rho=0.95), 5, 0.7),
    "clustered confidence only": (process(0.5, slope=0.0, rho=0.8), 5, 0.65),
}


@pytest.mark.parametrize("case", CASES)
def test_statistics_agree_with_the_tape(case: str) -> None:
    """Means of m and a within 3 standard errors, each probability within 4.5.

    The standard errors come from independent requests, so correlation between rounds counts.
    False alarms for a new seed: 0.3 % per mean, 7e-6 per probability.
    """
    model, max_draft, tau = CASES[case]
    num_requests = 400
    frequencies = simulate(model, max_draft, tau, num_requests, num_rounds=60, skip=15)
    statistics = model.statistics(max_draft, tau)
    for observed, pmf in zip(
        frequencies, (statistics.drafted_pmf, statistics.accepted_pmf), strict=True
    ):
        values = np.arange(max_draft + 1)
        for z, weights in [(3.0, values), *((4.5, values == j) for j in values)]:
            per_request = observed @ weights
            error = per_request.std(ddof=1) / np.sqrt(num_requests)
            assert per_request.mean() == pytest.approx(pmf @ weights, abs=z * error + 1e-9)


def test_clustering_lowers_the_rate_per_draft() -> None:
    """Rounds start in hard stretches more often, so K = 1 accepts less than the text's share."""
    share = process(0.0, slope=1.0).statistics(1, 0.0).accepted_per_round
    rates = [
        process(0.0, slope=1.0, rho=rho).statistics(1, 0.0).accepted_per_round
        for rho in (0.3, 0.6, 0.9)
    ]
    assert share > rates[0] > rates[1] > rates[2]


def test_longer_drafts_leave_harder_starts() -> None:
    """A long draft runs to the end of an easy stretch, so the next round starts in a hard one.

    The first-draft rate falls with K on clustered text and only there. On a public EAGLE-3 trace
    it falls from .699 at K = 1 to .662 at K = 10 (tests/published/test_acceptance_trace.py).
    """
    clustered, independent = process(0.0, slope=1.0, rho=0.6), process(0.0, slope=1.0)
    first = [
        [1 - model.statistics(k, 0.0).accepted_pmf[0] for k in (1, 2, 4, 10)]
        for model in (clustered, independent)
    ]
    assert all(short > long + 1e-3 for short, long in pairwise(first[0]))
    assert first[1] == pytest.approx([first[1][0]] * 4, rel=1e-12)


def test_a_threshold_without_confidence_is_refused() -> None:
    """The message says what to add."""
    model = process(0.5, confidence=None, off_track=None)
    with pytest.raises(ConfigError, match=r"confidence_threshold 0\.6 needs a confidence.*add"):
        model.statistics(4, 0.6)
    assert isinstance(model.statistics(4, 0.0), RoundStatistics)


def test_a_longer_tape_begins_with_the_shorter_one() -> None:
    """Entry t depends on seed, request and t only."""
    model = process(0.2, slope=1.0, rho=0.7)
    short, long = model.tape(3, 8, 50), model.tape(3, 8, 700)
    size = short.confidence.size
    assert size >= 50 + MAX_DRAFT - 1
    np.testing.assert_array_equal(short.confidence, long.confidence[:size])
    np.testing.assert_array_equal(short.off_track_confidence, long.off_track_confidence[:size])
    np.testing.assert_array_equal(short.accept, long.accept[:, :size])
    other = model.tape(3, 9, 50)
    assert (other.confidence != short.confidence).all()


def test_a_threshold_of_one_stops_every_draft() -> None:
    """Even a confidence that rounds to 1 is below 1, on the tape as in the closed form."""
    sure = process(2.0, confidence=Confidence(900.0, 0.02), off_track=Confidence(900.0, 0.02))
    assert sure.statistics(5, 1.0).drafted_per_round == pytest.approx(1.0)
    assert chain_outcomes(sure.tape(0, 0, 400), 5, 1.0).drafted.max() == 1
