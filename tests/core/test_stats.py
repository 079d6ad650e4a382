"""Intervals cover what they claim; the warm-up cut minimises what it says it minimises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.rng import stream
from simspec.core.stats import Interval, mean_interval, mser5, paired_difference, ratio_interval

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20)


def test_five_values_use_the_tabled_t_quantile() -> None:
    """For n = 5 the half width is 2.776 s / sqrt(5) (t table, 4 degrees of freedom, 97.5 %)."""
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval.mean == 3.0
    assert interval.half_width == pytest.approx(2.776 * math.sqrt(2.5) / math.sqrt(5), rel=2e-4)
    assert interval.n == 5


def test_one_replication_has_no_interval() -> None:
    """One value says nothing about its spread, so there is no width rather than a zero one."""
    assert mean_interval([7.0]) == Interval(7.0, None, None, 1)
    assert mean_interval([7.0]).half_width is None
    assert ratio_interval([6.0], [3.0]) == Interval(2.0, None, None, 1)


def test_undefined_in_one_replication_is_undefined() -> None:
    """A metric that is NaN once has no mean and no interval."""
    interval = mean_interval([1.0, math.nan, 3.0])
    assert math.isnan(interval.mean)
    assert (interval.low, interval.high) == (None, None)


def test_ratio_over_nothing_is_undefined() -> None:
    """A zero denominator gives NaN, not an exception or infinity."""
    assert math.isnan(ratio_interval([1.0, 2.0], [0.0, 0.0]).mean)


@pytest.mark.parametrize("bad", [[], [[1.0, 2.0]]])
def test_samples_are_vectors(bad: list[float]) -> None:
    """An empty or nested sample is a mistake of the caller."""
    with pytest.raises(ValueError, match="non-empty one-dimensional"):
        mean_interval(bad)


def test_pairs_have_equal_length() -> None:
    """Common random numbers pair replication i with replication i."""
    with pytest.raises(ValueError, match="2 and 1"):
        paired_difference([1.0, 2.0], [1.0])


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_mean_interval_covers_as_often_as_it_says(confidence: float) -> None:
    """Over many normal samples of five, the true mean lies inside as often as promised."""
    trials = 4000
    sample = stream(1, "coverage", int(100 * confidence)).normal(3.0, 2.0, size=(trials, 5))
    hits = 0
    for row in sample:
        interval = mean_interval(row, confidence)
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 3.0 <= interval.high
    # 4 standard errors: a false alarm in 16,000 seeds.
    error = math.sqrt(confidence * (1 - confidence) / trials)
    assert hits / trials == pytest.approx(confidence, abs=4 * error)


def test_ratio_interval_covers_as_often_as_it_says() -> None:
    """For correlated pairs with 10 % spread the delta method covers near 95 %."""
    trials = 4000
    generator = stream(2, "ratio")
    y = generator.normal(10.0, 1.0, size=(trials, 8))
    x = 2.0 * y + generator.normal(0.0, 1.0, size=(trials, 8))
    hits = 0
    for row_x, row_y in zip(x, y, strict=True):
        interval = ratio_interval(row_x, row_y)
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 2.0 <= interval.high
    # 4 standard errors (a false alarm in 16,000 seeds) plus 0.5 % for the linearisation.
    assert hits / trials == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / trials) + 0.005)


def test_pairing_removes_the_common_noise() -> None:
    """Two systems that differ by a constant on the same randomness differ by exactly that."""
    noise = stream(3, "pairs").normal(size=10)
    interval = paired_difference(noise + 0.5, noise)
    assert interval.mean == pytest.approx(0.5)
    assert interval.half_width == pytest.approx(0.0, abs=1e-12)


@given(values, st.floats(0.1, 10.0))
def test_ratio_of_proportional_values_is_exact(y: list[float], factor: float) -> None:
    """When x = r y in every replication, the ratio is r and certain."""
    sample = np.abs(np.array(y)) + 1.0
    interval = ratio_interval(factor * sample, sample)
    assert interval.mean == pytest.approx(factor)
    assert interval.half_width == pytest.approx(0.0, abs=1e-6)


@given(values, st.floats(0.5, 20.0))
def test_ratio_to_a_constant_is_the_scaled_mean(x: list[float], constant: float) -> None:
    """With a denominator that does not vary, only the numerator's spread remains."""
    ratio = ratio_interval(x, [constant] * len(x))
    mean = mean_interval(x)
    assert mean.half_width is not None
    assert ratio.mean == pytest.approx(mean.mean / constant, abs=1e-9)
    assert ratio.half_width == pytest.approx(mean.half_width / constant, rel=1e-6, abs=1e-9)


@given(values)
def test_interval_contains_its_mean(sample: list[float]) -> None:
    """low <= mean <= high, symmetric about the mean."""
    interval = mean_interval(sample)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= interval.mean <= interval.high


def _mser5_by_definition(series: list[float]) -> int:
    """Return the argmin over d of the remaining variance / remaining count, d <= n / 2."""
    batches = [sum(series[5 * i : 5 * i + 5]) / 5.0 for i in range(len(series) // 5)]
    scores = []
    for cut in range(len(batches) // 2 + 1):
        rest = batches[cut:]
        mean = sum(rest) / len(rest)
        scores.append(sum((b - mean) ** 2 for b in rest) / len(rest) ** 2)
    return 5 * scores.index(min(scores))


@given(st.integers(0, 2**32), st.integers(10, 200), st.floats(0.0, 5.0))
def test_mser5_is_what_its_paper_defines(seed: int, size: int, shift: float) -> None:
    """The cut equals a direct evaluation of the definition."""
    series = stream(seed, "mser").normal(size=size)
    series[: size // 4] += shift
    assert mser5(series) == _mser5_by_definition(list(series))


def test_mser5_does_not_depend_on_the_origin() -> None:
    """Latencies on a clock that started long ago are cut at the same place."""
    series = stream(6, "origin").normal(size=500)
    series[:60] += 5.0
    assert mser5(series + 1e9) == mser5(series)


def test_mser5_removes_an_obvious_transient() -> None:
    """A start far from steady state is cut, and little more than it."""
    series = stream(4, "transient").normal(size=2000)
    series[:200] += 20.0
    # Noise moves the minimum by a few batches; 30 of 5 is far beyond that for this length.
    assert 200 <= mser5(series) <= 350


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 9, [2.0] * 100])
def test_mser5_keeps_what_has_no_transient(series: list[float]) -> None:
    """Too short to judge or constant: nothing is cut."""
    assert mser5(series) == 0
