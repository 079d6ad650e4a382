"""Batch means on series whose mean and correlation are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simspec.core.batch_means import batch_interval, batch_means, serial_correlation
from simspec.core.rng import stream
from simspec.core.stats import mean_interval

RUNS = 400


def ar1(phi: float, size: int, seed: int = 1) -> np.ndarray:
    """Rows of stationary AR(1) series with mean 0 and variance 1."""
    noise = stream(seed, "ar1").standard_normal((RUNS, size))
    series = np.empty_like(noise)
    series[:, 0] = noise[:, 0]
    for t in range(1, size):
        series[:, t] = phi * series[:, t - 1] + math.sqrt(1 - phi**2) * noise[:, t]
    return series


def test_batches_are_the_last_ones() -> None:
    """What does not divide is cut at the start, where the run has settled least."""
    assert batch_means([9.0, 1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]


def test_too_few_observations_are_refused() -> None:
    """A batch needs one."""
    with pytest.raises(ValueError, match="make no 5 batches"):
        batch_means([1.0, 2.0], 5)


def test_intervals_cover_the_mean_of_a_correlated_series() -> None:
    """95 % intervals of AR(1) cover its mean as often as they say.

    Binomial: with 400 series and coverage 0.95 fewer than 365 have a chance below 0.1 %. Taken
    as independent, the same observations cover far less.
    """
    series = ar1(0.8, 4000)
    covered = sum(i.low <= 0.0 <= i.high for i in map(batch_interval, series))
    assert covered >= 365
    naive = sum(i.low <= 0.0 <= i.high for i in map(mean_interval, series))
    assert naive < 240


def test_the_spread_of_batch_means_is_that_of_theory() -> None:
    """Var of the mean of AR(1) is (1 + phi) / (1 - phi) / n for long series."""
    phi, size = 0.8, 4000
    halves = [batch_interval(row).half_width for row in ar1(phi, size)]
    t95_19 = 2.093
    expected = t95_19 * math.sqrt((1 + phi) / (1 - phi) / size)
    assert np.sqrt(np.mean(np.square(halves))) == pytest.approx(expected, rel=0.06)


def test_intervals_cover_the_wait_of_m_m_1() -> None:
    """Lindley's recursion at load 0.5: mean wait in the queue is rho / (mu - lambda)."""
    generator = stream(3, "mm1")
    size = 6000
    steps = generator.exponential(1.0, (200, size)) - generator.exponential(2.0, (200, size))
    wait = np.zeros((200, size))
    for t in range(1, size):
        wait[:, t] = np.maximum(wait[:, t - 1] + steps[:, t - 1], 0.0)
    covered = sum(i.low <= 1.0 <= i.high for i in (batch_interval(row[500:]) for row in wait))
    # Binomial(200, 0.95) below 179 has a chance of about 0.1 %.
    assert covered >= 179


def test_correlation_of_batches_is_seen_when_they_are_short() -> None:
    """The test finds batches that are too short and rejects independence at its 5 % otherwise."""
    short = sum(serial_correlation(batch_means(row, 20))[1] for row in ar1(0.95, 200))
    long = sum(serial_correlation(batch_means(row, 20))[1] for row in ar1(0.5, 4000))
    assert short > 0.5 * RUNS
    # Binomial(400, 0.06) above 42 has a chance below 0.1 %.
    assert long <= 42
    assert serial_correlation([1.0, 1.0, 1.0]) == (0.0, False)
