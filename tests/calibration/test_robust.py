"""Robust fitting: recovers what made the data, with errors that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from simspec.calibration.robust import Array, Coefficient, fit, halves, held_out
from simspec.core.errors import CalibrationError
from simspec.core.rng import stream

LINE = (Coefficient("slope", 0.0, 10.0, 1.0), Coefficient("offset", 0.0, 10.0, 1.0))


def line(x: Array, values: Array) -> Array:
    """Return ``slope x + offset``."""
    return values[0] * x + values[1]


def noisy_line(seed: int, n: int = 400, noise: float = 0.03) -> tuple[Array, Array]:
    """Return abscissae and times around ``2 x + 3`` with log-normal noise."""
    rng = stream(seed, "noisy line")
    x = rng.uniform(0.1, 10.0, n)
    return x, (2.0 * x + 3.0) * np.exp(noise * rng.standard_normal(n))


def test_recovers_a_line_within_its_standard_errors() -> None:
    """Both coefficients lie within 4 of their own standard errors (fails by chance in 1e-4)."""
    x, y = noisy_line(1)
    names = [str(i) for i in range(x.size)]
    result = fit(lambda v: line(x, v), LINE, y, groups=names, loss_scale=0.05, what="line")
    assert np.all(np.abs(result.values - [2.0, 3.0]) < 4 * result.standard_error)


def test_standard_errors_are_the_spread_of_repeated_fits() -> None:
    """Over 60 repetitions the mean standard error is the standard deviation of the estimates.

    The standard deviation of 60 draws has a relative error of 9 %; 35 % is nearly 4 of those.
    """
    results = []
    for seed in range(60):
        x, y = noisy_line(seed, n=200)
        names = [str(i) for i in range(x.size)]
        results.append(
            fit(lambda v, x=x: line(x, v), LINE, y, groups=names, loss_scale=0.05, what="line")
        )
    spread = np.std([r.values for r in results], axis=0, ddof=1)
    claimed = np.mean([r.standard_error for r in results], axis=0)
    assert claimed == pytest.approx(spread, rel=0.35)


def test_rows_of_one_group_count_once() -> None:
    """Copying every row ten times under the same name leaves the standard error as it was."""
    x, y = noisy_line(3, n=100)
    names = [str(i) for i in range(x.size)]
    once = fit(lambda v: line(x, v), LINE, y, groups=names, loss_scale=0.05, what="line")
    many_x = np.tile(x, 10)
    copied = fit(
        lambda v: line(many_x, v),
        LINE,
        np.tile(y, 10),
        groups=names * 10,
        loss_scale=0.05,
        what="line",
    )
    assert copied.standard_error == pytest.approx(once.standard_error, rel=1e-3)


def test_spoilt_rows_move_little() -> None:
    """With a tenth of the rows three times too slow, the slope stays within 3 %."""
    x, y = noisy_line(4)
    y[::10] *= 3.0
    names = [str(i) for i in range(x.size)]
    result = fit(lambda v: line(x, v), LINE, y, groups=names, loss_scale=0.05, what="line")
    assert result.values[0] == pytest.approx(2.0, rel=0.03)


def test_a_coefficient_on_its_bound_has_no_standard_error() -> None:
    """Where the data push against a bound, no symmetric error is claimed."""
    x, y = noisy_line(5)
    bounded = (Coefficient("slope", 0.0, 1.5, 1.0), LINE[1])
    names = [str(i) for i in range(x.size)]
    result = fit(lambda v: line(x, v), bounded, y, groups=names, loss_scale=0.05, what="line")
    assert result.values[0] == pytest.approx(1.5)
    assert np.isnan(result.standard_error[0])
    assert np.isfinite(result.standard_error[1])


def test_too_few_rows_are_refused() -> None:
    """A handful of rows cannot support a fit, and the message says how many it takes."""
    x, y = noisy_line(6, n=4)
    with pytest.raises(CalibrationError, match=r"4 rows cannot support 2 coefficients"):
        fit(lambda v: line(x, v), LINE, y, groups=["a"] * 4, loss_scale=0.05, what="line")


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_impossible_times_are_refused(wrong: float) -> None:
    """Times are positive numbers."""
    x, y = noisy_line(7, n=20)
    y[3] = wrong
    with pytest.raises(CalibrationError, match="not a positive number"):
        fit(lambda v: line(x, v), LINE, y, groups=["a"] * 20, loss_scale=0.05, what="line")


def test_halves_keep_groups_together_and_never_change() -> None:
    """A group falls on one side, whatever else is in the table."""
    groups = [f"{n}x{k}" for n in range(40) for k in (1, 2)] * 3
    sides = halves(groups)
    by_group = dict(zip(groups, sides, strict=True))
    assert all(by_group[g] == s for g, s in zip(groups, sides, strict=True))
    alone = {g: bool(halves([g])[0]) for g in by_group}
    assert alone == by_group
    # 80 fair coins: between 25 and 55 heads but for about one hash in two thousand.
    assert 25 <= sum(by_group.values()) <= 55


def test_held_out_errors_are_relative() -> None:
    """Median and 90th percentile of |predicted / measured - 1|."""
    measured = np.full(11, 2.0)
    result = held_out(measured * (1.0 + np.arange(11) / 100.0), measured)
    assert (result.rows, result.median, result.p90) == (
        11, pytest.approx(0.05), pytest.approx(0.09)
    )  # fmt: skip


def test_nothing_to_judge_on_is_an_error() -> None:
    """A fit that cannot be judged is refused."""
    with pytest.raises(CalibrationError, match="judge"):
        held_out(np.array([]), np.array([]))
