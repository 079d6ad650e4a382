"""Summaries against closed forms and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from simspec.core.rng import stream
from simspec.workloads.arrivals import gamma, poisson
from simspec.workloads.describe import (
    describe_arrays,
    describe_requests,
    gap_cv,
    index_of_dispersion,
    mean_rate_per_s,
    rank_correlation,
)
from simspec.workloads.request import Request


def test_constant_arrivals_have_no_spread() -> None:
    """Equal gaps: CV 0, dispersion 0, rate = 1/gap."""
    times_s = np.arange(100) * 0.5
    assert mean_rate_per_s(times_s) == pytest.approx(2.0)
    assert gap_cv(times_s) == pytest.approx(0.0, abs=1e-12)
    assert index_of_dispersion(times_s, 2.0) == pytest.approx(0.0)


@pytest.mark.parametrize("window_s", [0.5, 1.0, 20.0])
def test_poisson_counts_have_dispersion_one_at_every_window(window_s: float) -> None:
    """Variance equals mean for a Poisson process."""
    times_s = poisson.Config(rate_per_s=5).draw(stream(1, "idc"), 200_000).times_s
    num_windows = times_s[-1] / window_s
    # The index has standard error sqrt(2/windows) (+ 1/mean terms, below it at these means);
    # 5 standard errors fail by chance about once in a million.
    error = np.sqrt(2 / num_windows) * (1 + 1 / (5 * window_s)) ** 0.5
    assert index_of_dispersion(times_s, window_s) == pytest.approx(1.0, abs=5 * error)


def test_renewal_counts_tend_to_the_squared_cv() -> None:
    """Cox and Lewis 1966: the index of dispersion of a renewal process tends to cv²."""
    times_s = gamma.Config(rate_per_s=10, cv=2).draw(stream(2, "idc"), 400_000).times_s
    num_windows = times_s[-1] / 20
    assert index_of_dispersion(times_s, 20.0) == pytest.approx(
        4.0, abs=4.0 * 5 * np.sqrt(2 / num_windows) + 0.1
    )


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=2, max_size=40))
def test_rank_correlation_is_spearmans(pairs: list[tuple[int, int]]) -> None:
    """With ties at their mean rank, as SciPy has it."""
    a, b = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    ours = rank_correlation(a, b)
    if len(set(a.tolist())) == 1 or len(set(b.tolist())) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(float(spearmanr(a, b).statistic), abs=1e-12)


@pytest.mark.parametrize("num_requests", [0, 1, 2])
def test_short_workloads_are_described(num_requests: int) -> None:
    """What cannot be known of a few requests is None, not a crash or a zero."""
    requests = [Request(i, float(i), 5, 3) for i in range(num_requests)]
    summary = describe_requests(requests)
    assert summary["num_requests"] == num_requests
    assert summary["gap_cv"] is None
    assert summary["dispersion_1s"] is None
    assert (summary["rate_per_s"] is None) == (num_requests < 2)
    assert (summary["prompt_mean_tokens"] is None) == (num_requests == 0)


def test_summary_of_three_requests_is_counted_by_hand() -> None:
    """Means, percentiles and maxima of a list anyone can check."""
    summary = describe_arrays(
        np.array([0.0, 1.0, 4.0]), np.array([10, 20, 60]), np.array([3, 2, 1])
    )
    assert summary["duration_s"] == 4.0
    assert summary["rate_per_s"] == 0.5
    assert summary["gap_cv"] == pytest.approx(np.sqrt(2) / 2)
    assert summary["prompt_mean_tokens"] == 30
    assert summary["prompt_p50_tokens"] == 20
    assert summary["prompt_max_tokens"] == 60
    assert summary["output_mean_tokens"] == 2
    assert summary["rank_correlation"] == pytest.approx(-1)
