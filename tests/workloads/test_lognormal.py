"""Lognormal lengths against the textbook moments of the lognormal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from simspec.workloads.lengths.lognormal import Config, LognormalSide


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.2])
def test_uncut_moments_are_those_of_the_lognormal(sigma: float) -> None:
    """Far from the cut: mean = median·exp(sigma²/2), std = mean·sqrt(exp(sigma²) - 1)."""
    side = LognormalSide(median=500, sigma=sigma, max=2_000_000)
    mean = 500 * math.exp(sigma**2 / 2)
    # Rounding to whole tokens adds at most 1/12 to the variance.
    assert side.moments().mean == pytest.approx(mean, rel=1e-4)
    assert side.moments().std == pytest.approx(mean * math.sqrt(math.expm1(sigma**2)), rel=1e-3)


def test_mean_and_median_are_two_names_of_one_distribution() -> None:
    """Given by its mean or by its median, the same lengths come out."""
    by_median = LognormalSide(median=200, sigma=0.5, max=10_000)
    by_mean = LognormalSide(mean=200 * math.exp(0.125), sigma=0.5, max=10_000)
    normal = np.linspace(-4, 4, 101)
    assert np.array_equal(by_median.lengths(normal), by_mean.lengths(normal))


def test_moments_of_two_values_are_counted_by_hand() -> None:
    """With max 2 the length is 2 with probability Φ((mu - ln 1.5)/sigma)."""
    side = LognormalSide(median=1.5, sigma=1.0, max=2)
    assert side.moments().mean == pytest.approx(1.5)
    assert side.moments().std == pytest.approx(0.5)


def test_lengths_stay_between_one_and_max() -> None:
    """Extreme draws of an extreme distribution neither overflow nor vanish."""
    side = LognormalSide(median=10_000_000, sigma=5, max=4096)
    assert side.lengths(np.array([-40.0, 40.0])).tolist() == [1, 4096]


@pytest.mark.parametrize("centre", [{}, {"median": 5, "mean": 6}])
def test_one_centre_is_asked_for(centre: dict[str, float]) -> None:
    """Neither or both of median and mean is ambiguous."""
    with pytest.raises(ValidationError, match="either median or mean"):
        LognormalSide.model_validate({"sigma": 1, "max": 10, **centre})


def test_prompt_and_output_are_independent() -> None:
    """The two sides use different random numbers."""
    side = {"median": 1000, "sigma": 1.0, "max": 10**7}
    config = Config.model_validate({"prompt": side, "output": side})
    n = 20_000
    drawn = config.draw(np.random.default_rng(0), n)
    correlation = np.corrcoef(np.log(drawn.prompt_lens), np.log(drawn.output_lens))[0, 1]
    # Standard error 1/sqrt(n); 5 of them fail by chance once in 1.7 million.
    assert abs(correlation) < 5 / math.sqrt(n)
