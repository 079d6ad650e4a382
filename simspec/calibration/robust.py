"""Bounded robust least squares on log time, with honest errors.

Residuals are ``log(predicted / measured)``, so that a microsecond kernel counts as much as a
millisecond one, under the soft-L1 loss ``2 d^2 (sqrt(1 + (r / d)^2) - 1)``, which is quadratic
below ``d`` and linear above: a measurement spoilt by a clock change moves little.

Rows of one shape share the error of the model on that shape, so they are not independent.
Standard errors therefore use the clustered sandwich ``A^-1 B A^-1`` of M-estimation (Huber,
"Robust Statistics", 1981, section 6.3; Liang and Zeger, Biometrika 73, 1986, for the clusters):
``A = sum psi'(r) g g^T`` and ``B`` the sum over groups of the outer product of
``sum psi(r) g``, with ``g`` the gradient of the residual. And what is fitted is never what is
judged: groups are dealt into two halves by a hash of their name, one for each purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from simspec.core.errors import CalibrationError

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Predict = Callable[[Array], Array]
"""Coefficients to predicted seconds of every row."""

_MIN_ROWS_PER_COEFFICIENT = 3
_AT_BOUND = 1e-6
"""Closer to a bound than this share of its range counts as being on it."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A number to be fitted: where it may be and where the search starts."""

    name: str
    low: float
    high: float
    start: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Relative errors ``|predicted / measured - 1|`` on rows the fit did not see."""

    rows: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Fitted coefficients.

    Attributes
    ----------
    values : array (p,)
        In the order of the coefficients given.
    standard_error : array (p,)
        NaN for a coefficient that ended on a bound, where no symmetric error exists.
    """

    values: Array
    standard_error: Array


def halves(groups: Sequence[str]) -> Mask:
    """Return True for the rows to fit on and False for those to judge on.

    All rows of a group fall on the same side, decided by a hash of its name alone: new data
    never move old rows to the other side.
    """
    sides = {group: _first_half(group) for group in set(groups)}
    return np.array([sides[group] for group in groups], dtype=np.bool_)


def _first_half(group: str) -> bool:
    return hashlib.blake2b(group.encode(), digest_size=1).digest()[0] % 2 == 0


def held_out(predicted_s: Array, measured_s: Array) -> HeldOut:
    """Return the errors of predictions on rows the fit did not see."""
    if measured_s.size == 0:
        raise CalibrationError(
            "no rows are left to judge the fit on; measure more shapes, so that both halves have "
            "some"
        )
    error = np.abs(predicted_s / measured_s - 1.0)
    return HeldOut(int(error.size), float(np.median(error)), float(np.quantile(error, 0.9)))


def fit(
    predict: Predict,
    coefficients: Sequence[Coefficient],
    measured_s: Array,
    *,
    groups: Sequence[str],
    loss_scale: float,
    what: str,
) -> Estimate:
    """Fit coefficients to measured times.

    Parameters
    ----------
    predict : callable
        Coefficients (p,) to seconds (n,), all positive.
    coefficients : sequence of Coefficient
        Bounds and starting points.
    measured_s : array (n,), seconds
        All positive.
    groups : sequence (n,)
        Rows that are not independent of each other share a name.
    loss_scale : float
        ``d``, in units of relative error.
    what : str
        What is fitted, for messages.

    Raises
    ------
    CalibrationError
        Too few rows, impossible times, or no convergence.
    """
    _check(measured_s, len(coefficients), what)
    low = np.array([c.low for c in coefficients])
    high = np.array([c.high for c in coefficients])
    log_measured = np.log(measured_s)

    def residual(values: Array) -> Array:
        return np.log(predict(values)) - log_measured

    result = least_squares(
        residual,
        np.array([c.start for c in coefficients]),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=loss_scale,
        x_scale=np.array([abs(c.start) or 1.0 for c in coefficients]),
        max_nfev=2000,
    )
    if not result.success:
        raise CalibrationError(
            f"{what}: the fit did not converge ({result.message}); check units and outliers"
        )
    values = np.asarray(result.x, dtype=np.float64)
    margin = _AT_BOUND * (high - low)
    is_free = (values > low + margin) & (values < high - margin)
    errors = _standard_error(
        residual(values), _gradient(residual, values), is_free, groups, loss_scale
    )
    return Estimate(values, errors)


def fit_and_judge(
    predict: Callable[[Array, Mask], Array],
    coefficients: Sequence[Coefficient],
    measured_s: Array,
    *,
    groups: Sequence[str],
    loss_scale: float,
    what: str,
) -> tuple[Estimate, HeldOut, int]:
    """Fit to one half of the groups and judge on the other.

    Parameters
    ----------
    predict : callable
        Coefficients (p,) and a mask (n,) to the seconds of the chosen rows.
    coefficients, measured_s, groups, loss_scale, what
        As for :func:`fit`.

    Returns
    -------
    tuple
        Estimate, errors on the other half, rows fitted.

    Raises
    ------
    CalibrationError
        As :func:`fit`, or no rows are left to judge on.
    """
    chosen = halves(groups)
    estimate = fit(
        lambda values: predict(values, chosen),
        coefficients,
        measured_s[chosen],
        groups=[group for group, is_chosen in zip(groups, chosen, strict=True) if is_chosen],
        loss_scale=loss_scale,
        what=what,
    )
    judged = held_out(predict(estimate.values, ~chosen), measured_s[~chosen])
    return estimate, judged, int(chosen.sum())


def _check(measured_s: Array, num_coefficients: int, what: str) -> None:
    needed = _MIN_ROWS_PER_COEFFICIENT * num_coefficients
    if measured_s.size < needed:
        raise CalibrationError(
            f"{what}: {measured_s.size} rows cannot support {num_coefficients} coefficients; "
            f"give at least {needed} after filtering"
        )
    if not np.all(np.isfinite(measured_s)) or np.any(measured_s <= 0):
        raise CalibrationError(f"{what}: a measured time is not a positive number; drop the row")


def _gradient(residual: Callable[[Array], Array], values: Array) -> Array:
    """Return the gradient of the residuals (n, p) by central differences."""
    columns = []
    for index, value in enumerate(values):
        step = 1e-5 * max(abs(value), 1e-3)
        up, down = values.copy(), values.copy()
        up[index] += step
        down[index] -= step
        columns.append((residual(up) - residual(down)) / (2.0 * step))
    return np.stack(columns, axis=1)


def _standard_error(
    residual: Array,
    gradient: Array,
    is_free: Mask,
    groups: Sequence[str],
    loss_scale: float,
) -> Array:
    errors = np.full(is_free.size, np.nan)
    if not is_free.any():
        return errors
    free = gradient[:, is_free]
    curvature = 1.0 + (residual / loss_scale) ** 2
    bread = (free * curvature[:, None] ** -1.5).T @ free
    scores = free * (residual / np.sqrt(curvature))[:, None]
    _, index = np.unique(np.asarray(groups), return_inverse=True)
    by_group = np.zeros((int(index.max()) + 1, free.shape[1]))
    np.add.at(by_group, index, scores)
    num_groups = by_group.shape[0]
    # Few clusters underestimate the spread; the usual G / (G - 1) correction.
    meat = by_group.T @ by_group * (num_groups / max(num_groups - 1, 1))
    inverse = np.linalg.pinv(bread)
    covariance = inverse @ meat @ inverse
    errors[is_free] = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    return errors
