"""Few nodes stand for the distribution of a count in a batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from simspec.decoding._quadrature import NUM_NODES, gauss_nodes, sum_nodes, sum_pmf

GEOMETRIC = np.array([0.0, 0.0, 0.3, 0.21, 0.147, 0.1029, 0.2401])
"""m + 1 when each token stops drafting with probability 0.3 and K = 5."""


def test_the_sum_of_coins_is_binomial() -> None:
    """FFT powers of a two-point law reproduce SciPy's binomial."""
    for count, share in [(1, 0.3), (16, 0.7), (200, 0.05)]:
        pmf = sum_pmf(np.array([1 - share, share]), count, count + 1)
        np.testing.assert_allclose(pmf, binom.pmf(np.arange(count + 1), count, share), atol=1e-14)


def test_gauss_nodes_integrate_polynomials_exactly() -> None:
    """n nodes reproduce every moment up to degree 2 n - 1."""
    values = np.arange(1.0, 65.0)
    weights = binom.pmf(values, 64, 0.4)
    nodes, mass = gauss_nodes(values, weights, NUM_NODES)
    for degree in range(2 * NUM_NODES):
        exact = weights @ (values / 64) ** degree
        assert mass @ (nodes / 64) ** degree == pytest.approx(exact, rel=1e-10)


def _roofline(corner: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda tokens: np.maximum(1.0, tokens / corner) + 0.2


def _experts(tokens: np.ndarray) -> np.ndarray:
    """Return distinct experts hit, of 8 with top-2, plus what is always read."""
    return np.asarray(8 * (1 - 0.75**tokens) + 0.5)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 16, 64, 256])
@pytest.mark.parametrize("cost", [_roofline(16.0), _roofline(130.0), _experts])
def test_costs_with_a_corner_are_integrated_within_one_percent(
    batch_size: int, cost: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Against the full distribution, for draft steps and verified tokens, at any batch."""
    laws = [np.array([1 - s, s]) for s in (0.05, 0.3, 0.7, 0.95)] + [GEOMETRIC]
    for law in laws:
        full = sum_pmf(law, batch_size, batch_size * (law.size - 1) + 1)
        counts = np.arange(full.size, dtype=np.float64)
        exact = full[1:] @ cost(counts[1:])
        values, weights = sum_nodes(law, batch_size)
        assert weights @ cost(values) == pytest.approx(exact, rel=0.01)


def test_one_sequence_is_exact() -> None:
    """At batch 1 the law is kept as it is."""
    values, weights = sum_nodes(GEOMETRIC, 1)
    np.testing.assert_allclose(values, [2, 3, 4, 5, 6])
    np.testing.assert_allclose(weights, GEOMETRIC[2:], atol=1e-14)


def test_a_fractional_batch_mixes_its_neighbours() -> None:
    """A mean batch of 2.25 has 2.25 times the mean count."""
    values, weights = sum_nodes(np.array([0.4, 0.6]), 2.25)
    assert values @ weights == pytest.approx(2.25 * 0.6)
    assert weights.sum() == pytest.approx(1 - 0.75 * 0.4**2 - 0.25 * 0.4**3)


def test_an_empty_batch_has_no_nodes_with_weight() -> None:
    """No sequence, nothing to run."""
    assert sum_nodes(np.array([0.4, 0.6]), 0)[1].sum() == 0.0
