"""The page of a workload: curves that say what the requests do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simspec.core.rng import stream
from simspec.reports.dashboards.workload import workload_page
from simspec.reports.figures import (
    arrival_rate,
    gap_distribution,
    length_distribution,
    prefix_reuse,
)
from simspec.reports.spec import FigureSpec
from simspec.workloads.description import WorkloadDescription
from simspec.workloads.linked import Prefixes
from simspec.workloads.prefix_reuse import prefix_reuse as reuse_of


def description(**fields: Any) -> WorkloadDescription:
    n = 2000
    times_s = np.cumsum(stream(1, "t").exponential(0.5, n))
    prefixes = Prefixes(tuple((i % 4, 100 + i) for i in range(n)), 16)
    given: dict[str, Any] = {
        "name": "a log",
        "source": "made up",
        "times_s": times_s,
        "prompt_lens": np.arange(n) + 20,
        "output_lens": np.full(n, 7),
        "reuse": reuse_of(prefixes, times_s),
        "num_following": 0,
        "left_out": {"rejected_lines": 1},
        "rejected": ("log:3: <b>broken</b>",),
        "files": (),
    }
    return WorkloadDescription(**given | fields)


def traces(spec: FigureSpec | None) -> tuple[list[dict[str, Any]], str]:
    assert spec is not None
    shown = spec.resolve({})
    assert not shown["empty"]
    return shown["data"], str(shown["caption"])  # type: ignore[return-value]


def test_the_rate_over_time_adds_up_to_the_requests() -> None:
    """The area under the curve is the number of requests."""
    (curve, mean), caption = traces(arrival_rate.figure(description()))
    width_s = 60 * (curve["x"][1] - curve["x"][0])
    assert sum(curve["y"]) * width_s == pytest.approx(2000, rel=1e-2)
    assert mean["y"][0] == pytest.approx(2.0, rel=0.1)
    assert "2,000 requests" in caption


def test_poisson_gaps_lie_on_the_poisson_curve() -> None:
    """Shares of longer gaps are those of the exponential law, within five standard errors."""
    (curve, _), caption = traces(gap_distribution.figure(description()))
    for gap_s, percent in zip(curve["x"], curve["y"], strict=True):
        expected = np.exp(-gap_s / 0.5)
        assert abs(percent / 100 - expected) < 5 * np.sqrt(expected / 2000) + 0.02
    assert "Coefficient of variation" in caption


def test_lengths_end_at_everybody() -> None:
    """Each curve rises to 100 % at the longest."""
    (prompt, output), caption = traces(length_distribution.figure(description()))
    assert (prompt["x"][-1], prompt["y"][-1]) == (2019, 100)
    assert set(output["x"]) == {7}
    assert "1,020 prompt and 7 output" in caption


def test_the_prefix_curve_reaches_the_infinite_cache() -> None:
    """Four blocks come again and again: seven distinct blocks lie between two uses."""
    (curve, infinite), caption = traces(prefix_reuse.figure(description()))
    assert curve["y"] == sorted(curve["y"])
    assert curve["y"][-1] == infinite["y"][0] == pytest.approx(100 * 1996 / 4000)
    assert curve["y"][0] == 0
    assert "cache has 49.9% of the blocks; one of 128 tokens" in caption


def test_what_is_unknown_has_no_figure() -> None:
    """No times, no rate and no gaps; no hashes, no prefixes; no hash, no figure on the page."""
    found = description(times_s=None, reuse=None, rejected=())
    assert arrival_rate.figure(found) is None
    assert gap_distribution.figure(found) is None
    assert prefix_reuse.figure(found) is None
    assert [spec.name for spec in workload_page(found).figures] == ["length_distribution"]


def test_the_page_escapes_what_a_log_says() -> None:
    """A line of a log is text, never markup."""
    html = workload_page(description()).html()
    assert "<b>broken</b>" not in html
    assert "&lt;b&gt;broken&lt;/b&gt;" in html
