"""The latent text: its marginal law, its memory and the grid that integrates over it."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import betainc, expit, ndtr, ndtri
from scipy.stats import beta

from simspec.decoding.acceptance._latent import (
    Confidence,
    _beta_logit_table,
    autoregressive_path,
    expit_array,
    latent_grid,
    logit,
)


@pytest.mark.parametrize(("a", "b"), [(4.5, 1.8), (1.0, 1.0), (0.3, 0.2), (50.0, 2.0)])
def test_the_confidence_has_its_beta_law(a: float, b: float) -> None:
    """The image of the normal quantile of p is the Beta quantile of p."""
    p = np.array([1e-6, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-6])
    confidence = expit(Confidence(a, b).logit(ndtri(p)))
    np.testing.assert_allclose(confidence, beta.ppf(p, a, b), rtol=2e-5)


def test_the_threshold_is_crossed_where_the_beta_law_says() -> None:
    """P(z below the crossing) = P(c < tau), also with shifted log-odds; 0 and 1 are open ends."""
    plain = Confidence(4.5, 1.8)
    assert plain.latent_at(0.65) == pytest.approx(ndtri(betainc(4.5, 1.8, 0.65)))
    assert plain.latent_at(0.0) == -inf
    assert plain.latent_at(1.0) == inf
    shifted = Confidence(4.5, 1.8, shift=0.7)
    crossing = np.array([shifted.latent_at(0.9)])
    assert expit(shifted.logit(crossing))[0] == pytest.approx(0.9, rel=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_paths_are_stationary_normals_with_the_given_autocorrelation(rho: float) -> None:
    """Variance 1 at the first and at a late position, correlation rho^k at lag k.

    40,000 paths: the standard error of a variance is sqrt(2 / n) = 0.0071 and of a correlation
    at most 0.005; 4.5 of them give a false alarm of 7e-6 per number.
    """
    noise = np.random.default_rng(1).standard_normal((60, 40_000))
    path = autoregressive_path(noise, rho)
    assert np.var(path[0]) == pytest.approx(1.0, abs=4.5 * 0.0071)
    assert np.var(path[-1]) == pytest.approx(1.0, abs=4.5 * 0.0071)
    for lag in (1, 3, 10):
        correlation = np.corrcoef(path[20], path[20 + lag])[0, 1]
        assert correlation == pytest.approx(rho**lag, abs=4.5 * 0.005)


def test_the_scan_equals_the_recursion() -> None:
    """The doubling scan is the AR(1) recursion, and earlier entries ignore later noise."""
    noise = np.random.default_rng(2).standard_normal((300, 2))
    rho = 0.9
    expected = noise.copy()
    for t in range(1, 300):
        expected[t] = rho * expected[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    np.testing.assert_allclose(autoregressive_path(noise, rho), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(
        autoregressive_path(noise[:123], rho), autoregressive_path(noise, rho)[:123]
    )


@pytest.mark.parametrize("rho", [0.2, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("edge", [-0.37, 1.9, inf])
def test_the_grid_keeps_the_normal_law(rho: float, edge: float) -> None:
    """The stationary law has the normal's moments and tail, and the transition keeps it."""
    grid = latent_grid(rho, edge)
    assert grid.stationary @ grid.z == pytest.approx(0.0, abs=1e-12)
    assert grid.stationary @ grid.z**2 == pytest.approx(1.0, abs=1e-10)
    if edge < inf:
        from scipy.special import ndtr

        assert grid.stationary[grid.z > edge].sum() == pytest.approx(ndtr(-edge), abs=1e-12)
    moved = grid.advance(grid.stationary)
    assert np.abs(moved - grid.stationary).sum() < 1e-9
    assert grid.advance(grid.stationary * grid.z) @ grid.z == pytest.approx(rho, abs=1e-8)


def test_log_odds_at_the_ends() -> None:
    """0 and 1 have infinite log-odds, and infinite log-odds give 0 and 1 back."""
    assert logit(0.0) == -inf
    assert logit(1.0) == inf
    assert logit(0.75) == pytest.approx(np.log(3))
    assert expit_array(np.array([-inf, -800.0, 0.0, inf])).tolist() == [0.0, 0.0, 0.5, 1.0]


@settings(max_examples=30)
@given(st.floats(0.03, 50.0), st.floats(0.03, 50.0))
@example(1.01, 0.99)
@example(0.98, 1.02)
@example(1.0, 1.0)
def test_the_quantile_table_inverts_the_beta_law(a: float, b: float) -> None:
    """F(F^-1(p)) = p for every p of the table, shapes near 1 included (SciPy loses tails there)."""
    z, log_odds = _beta_logit_table(a, b)
    assert np.isfinite(log_odds).all()
    assert (np.diff(log_odds) >= 0).all()
    p, confidence = ndtr(z), 1.0 / (1.0 + np.exp(-log_odds))
    # SciPy's inverse is off by some per cent of p in the last 1e-13, less and less above.
    lower = (log_odds < 0) & (log_odds > -300) & (p > 1e-9)
    np.testing.assert_allclose(betainc(a, b, confidence[lower]), p[lower], rtol=1e-5)
    # The upper half is the lower half of the mirrored law.
    np.testing.assert_allclose(_beta_logit_table(b, a)[1], -log_odds[::-1], rtol=1e-9, atol=1e-9)
