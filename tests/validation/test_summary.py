"""Errors of many rows in a few numbers, on rows worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from simspec.core.errors import ConfigError
from simspec.validation._base import Comparison, LeftOut, Role
from simspec.validation.api import JudgedTable, ValidationResult


def row(
    measured: float,
    predicted: float,
    group: str = "a / x",
    *,
    role: Role = "held_out",
    interval: tuple[float, float] | None = None,
    hardware: str = "h100",
) -> Comparison:
    subject = {"hardware": hardware, "concurrency": 4.0}
    return Comparison(
        "tpot_ms", measured, predicted, group, 2, subject, role, interval, {}, group.split()[0]
    )


def result(*rows: Comparison | LeftOut) -> ValidationResult:
    compared = [r for r in rows if isinstance(r, Comparison)]
    left_out = [r for r in rows if isinstance(r, LeftOut)]
    path = Path("runs/serving.csv")
    table = JudgedTable(path, str(path), "serving", len(rows), compared, left_out, "0" * 64)
    return ValidationResult((table,), (), False)


FOUR = (row(10, 11), row(10, 8), row(20, 20), row(10, 14))
"""Errors +10 %, -20 %, 0 and +40 %."""


def test_the_numbers_by_hand() -> None:
    """Median and mean of the sizes, bias with its sign, 90th percentile between two rows."""
    (errors,) = result(*FOUR).summary().values()
    assert errors.rows == 4
    assert errors.median_abs_error == pytest.approx(0.15)
    assert errors.mean_abs_error == pytest.approx(0.175)
    assert errors.bias == pytest.approx(0.075)
    assert errors.median_error == pytest.approx(0.05)
    assert errors.p90_abs_error == pytest.approx(0.2 + 0.7 * 0.2)
    assert errors.interval_coverage is None


def test_intervals_are_judged_by_their_rows_alone() -> None:
    """One of two intervals holds its figure; widths are relative to the prediction."""
    rows = (row(10, 11, interval=(9, 13)), row(10, 20, interval=(18, 22)), row(10, 10))
    (errors,) = result(*rows).summary().values()
    assert errors.interval_rows == 2
    assert errors.interval_coverage == 0.5
    assert errors.median_interval_width == pytest.approx((4 / 11 + 4 / 20) / 2)


def test_what_a_fit_has_used_stands_apart() -> None:
    """No number mixes fitted and held-out rows."""
    summary = result(row(10, 10, role="fitted"), row(10, 12)).summary()
    assert {key: errors.median_abs_error for key, errors in summary.items()} == {
        ("serving", "tpot_ms", "fitted"): 0.0,
        ("serving", "tpot_ms", "held_out"): pytest.approx(0.2),
    }


def test_groups_families_and_columns() -> None:
    """Rows are grouped by whatever is asked for; numbers of a column are written short."""
    found = result(
        row(10, 11, "a / x"), row(10, 12, "a / y"), row(10, 13, "b / x", hardware="l40s")
    )
    assert [key[3] for key in found.summary("group")] == ["a / x", "a / y", "b / x"]
    assert [(key[3], e.rows) for key, e in found.summary("family").items()] == [("a", 2), ("b", 1)]
    by = found.summary("hardware", "concurrency")
    assert [key[3:] for key in by] == [("h100", "4"), ("l40s", "4")]
    with pytest.raises(
        ConfigError, match="--group-by: no column 'hardwar'; did you mean 'hardware'"
    ):
        found.summary("hardwar")


def test_the_worst_rows_miss_by_factors() -> None:
    """Half as much is as wrong as twice as much."""
    found = result(*FOUR, row(10, 4.9), row(10, 20)).worst(2)
    assert [r.predicted for _, r in found] == [4.9, 20]


def test_left_out_rows_are_counted_by_cause() -> None:
    """Every row that is not judged is counted, and none of them is in an error."""
    subject = {"hardware": "tpu"}
    rows = [LeftOut(n, "refuted", "too fast", subject) for n in (2, 3)]
    found = result(*rows, LeftOut(4, "unsupported", "no profile", subject), row(1, 1))
    assert found.causes() == {"refuted": 2, "unsupported": 1}
    assert (found.num_compared, found.num_left_out) == (1, 3)
