"""Where a speedup crosses 1: on known functions, and on deployments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from simspec.core.errors import ConfigError, Infeasible
from simspec.core.yamlio import parse_mapping
from simspec.scenarios.breakeven import (
    break_even,
    largest_batch,
    largest_context,
    paying,
    whole_grid,
)
from simspec.scenarios.build import Deployment, build, build_without_acceptance
from simspec.scenarios.closed_form import estimate_round
from simspec.scenarios.schema import DeploymentConfig

GOLDEN = Path(__file__).resolve().parents[1] / "cli" / "golden"
Array = npt.NDArray[np.float64]


def config(**fields: Any) -> DeploymentConfig:
    data = {
        "model": "llama-3.1-8b",
        "hardware": str(GOLDEN / "gpu.yaml"),
        "engine": str(GOLDEN / "engine.yaml"),
        "method": {"name": "kangaroo", "num_speculative_tokens": 4, "confidence_threshold": 0},
        "acceptance": 0.6,
    }
    return parse_mapping({**data, **fields}, DeploymentConfig, "test")


def deployment(**fields: Any) -> Deployment:
    return build(config(**fields))


GRID = np.linspace(0.0, 10.0, 41)


@pytest.mark.parametrize(
    ("speedup", "ranges", "verdict"),
    [
        (lambda x: 2.0 - 0.0 * x, ((0.0, 10.0),), "pays everywhere, load 0 to 10"),
        (lambda x: 0.5 + 0.0 * x, (), "never pays, load 0 to 10"),
        (lambda x: 1.0 + 0.0 * x, (), "never pays, load 0 to 10"),
        (lambda x: 1.0 + (np.pi - x), ((0.0, np.pi),), "pays up to load 3.142"),
        (lambda x: 1.0 + (x - np.pi), ((np.pi, 10.0),), "pays from load 3.142"),
        (
            lambda x: 1.0 + (x - 2.1) * (x - 7.3) * (x - 9.1) / 100,
            ((2.1, 7.3), (9.1, 10.0)),
            "pays from load 2.1 to 7.3 and from load 9.1",
        ),
        (
            lambda x: 1.0 + (x - 2.1) * (x - 7.3),
            ((0.0, 2.1), (7.3, 10.0)),
            "pays up to load 2.1 and from load 7.3",
        ),
    ],
)
def test_the_ranges_that_pay(speedup: Any, ranges: Any, verdict: str) -> None:
    """Roots of known functions; everything, nothing and several pieces are said as such."""
    found = paying(speedup, GRID, whole=False, tolerance=1e-9)
    assert len(found.ranges) == len(ranges)
    for pair, expected in zip(found.ranges, ranges, strict=True):
        assert pair == pytest.approx(expected, abs=1e-6)
    assert found.verdict("load") == verdict


@pytest.mark.parametrize(("root", "last"), [(17.5, 17), (17.0, 16), (1.2, 1), (999.4, 999)])
def test_whole_numbers_end_at_the_last_that_pays(root: float, last: int) -> None:
    """At the root itself the speedup is 1, which does not pay."""
    found = paying(lambda x: 1.0 + (root - x) / 1000, whole_grid(1000), whole=True)
    assert found.ranges == ((1.0, float(last)),)


def test_a_single_paying_batch_is_said_as_one() -> None:
    found = paying(lambda x: np.where(x < 2, 1.5, 0.5), whole_grid(64), whole=True)
    assert found.verdict("batch") == "pays at batch 1 only"


def test_the_grid_has_every_small_number_and_both_ends() -> None:
    grid = whole_grid(5000)
    assert grid[:32].tolist() == list(range(1, 33))
    assert grid[-1] == 5000
    assert (np.diff(grid) > 0).all()
    assert whole_grid(1).tolist() == [1.0]


def test_the_last_batch_pays_and_the_next_does_not() -> None:
    """The crossing is that of the closed form, not of the grid."""
    one = deployment()
    row = break_even(one, "batch", 1, 1024)
    (pair,) = row["pays"]  # type: ignore[misc]
    last = int(pair[1])
    assert 1 < last < largest_batch(one, 1024)
    assert float(estimate_round(one, last, 1024).speedup) > 1
    assert float(estimate_round(one, last + 1, 1024).speedup) <= 1
    assert row["verdict"] == f"pays up to batch {last}"


def test_the_acceptance_at_which_a_round_costs_what_it_yields() -> None:
    """At the crossing, tokens per round are round time over step time."""
    one = build_without_acceptance(config(acceptance=None))
    row = break_even(one, "acceptance", 2, 1024)
    (pair,) = row["pays"]  # type: ignore[misc]
    at = estimate_round(deployment(acceptance=pair[0]), 2, 1024)
    ratio = float(at.round_time_s) / float(at.step_time_s)
    assert at.statistics.tokens_per_round == pytest.approx(ratio, rel=1e-3)
    assert pair[1] == 1.0
    assert row["acceptance"] == "varied: the same at every draft position"


def test_a_threshold_brings_a_calibrated_drafter() -> None:
    """Without confidences a threshold has nothing to act on; the row says what is assumed."""
    method = {"name": "kangaroo", "confidence_threshold": 0.5}
    row = break_even(
        build_without_acceptance(config(method=method, acceptance=None)), "acceptance", 1, 512
    )
    assert "calibrated drafter" in str(row["acceptance"])
    assert row["pays"]


def test_contexts_end_where_the_memory_or_the_model_does() -> None:
    one = deployment()
    row = break_even(one, "context", 4, 1)
    assert row["to"] == largest_context(one, 4) <= one.architecture.max_context_len
    crowded = largest_context(one, 64)
    assert crowded < one.architecture.max_context_len
    assert largest_batch(one, crowded) >= 64 > largest_batch(one, crowded + 16)


@pytest.mark.parametrize(
    ("fields", "over", "batch", "error", "message"),
    [
        ({"method": "autoregressive", "acceptance": None}, "acceptance", 1, ConfigError, "drafts"),
        ({}, "context", 10**6, Infeasible, "do not fit"),
        ({}, "acceptance", 10**5, Infeasible, "do not fit"),
        ({"model": "llama-3.1-70b"}, "batch", 1, Infeasible, "fit"),
    ],
)
def test_what_has_no_place_is_refused(
    fields: dict[str, Any], over: Any, batch: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        break_even(deployment(**fields), over, batch, 1024)
