"""Fitted coefficients with what stands behind them, and their YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simspec.calibration.robust import Array, Coefficient, HeldOut, Mask, fit_and_judge
from simspec.core.units import from_gb_s, from_ns, from_us
from simspec.hardware.profile import AllReduceFit, KernelFit

LOSS_SCALE = 0.05
"""Relative error beyond which a row counts linearly; the size of the noise of good rows."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Coefficients with what stands behind them.

    Attributes
    ----------
    values : mapping
        Coefficients in edge units (``overhead_us``, ``bandwidth_gb_s``).
    standard_error : mapping
        By coefficient, in the same units; absent on a bound or where held fixed.
    rows : int
        Rows fitted.
    judged : HeldOut
        Errors on the other half.
    num_resident : int
        Rows left out because they were timed from the cache.
    tile_rows : tuple of int
        Matrix products: the tiles that ``padding_cost`` belongs to.
    tile_columns : int
        The same of ``idle_cost`` and ``wave_us``; 0 where waves are not counted.
    """

    values: Mapping[str, float]
    standard_error: Mapping[str, float]
    rows: int
    judged: HeldOut
    num_resident: int = 0
    tile_rows: tuple[int, ...] = ()
    tile_columns: int = 0

    def kernel_fit(self) -> KernelFit:
        """Return the coefficients of a kernel in SI units."""
        return KernelFit(
            flop_efficiency=self.values["flop_efficiency"],
            bandwidth_efficiency=self.values["bandwidth_efficiency"],
            overhead_s=from_us(self.values["overhead_us"]),
            sharpness=self.values.get("sharpness", float("inf")),
            tile_rows=self.tile_rows or 1,
            padding_cost=self.values.get("padding_cost", 1.0),
            depth_s=from_ns(self.values.get("depth_ns", 0.0)),
            quantise_s=from_ns(self.values.get("quantise_ns", 0.0)),
            tile_columns=self.tile_columns,
            idle_cost=self.values.get("idle_cost", 0.0),
            wave_s=from_us(self.values.get("wave_us", 0.0)),
            sequence_s=from_ns(self.values.get("sequence_ns", 0.0)),
            token_s=from_ns(self.values.get("token_ns", 0.0)),
        )

    def all_reduce_fit(self) -> AllReduceFit:
        """Return the coefficients of an all-reduce algorithm in SI units."""
        return AllReduceFit(
            latency_s=from_us(self.values["latency_us"]),
            latency_per_peer_s=from_us(self.values["latency_per_peer_us"]),
            bandwidth_bytes_per_s=from_gb_s(self.values["bandwidth_gb_s"]),
            sharing_per_rank=self.values.get("sharing_per_rank", 0.0),
        )


def fit_named(
    price: Callable[[Mapping[str, float], Mask], Array],
    coefficients: Sequence[Coefficient],
    measured_s: Array,
    *,
    groups: Sequence[str],
    what: str,
    held: Mapping[str, float] | None = None,
) -> Fitted:
    """Fit coefficients by name to one half of the groups and judge them on the other.

    Parameters
    ----------
    price : callable
        Coefficients by name, the held ones among them, and a mask to seconds of those rows.
    coefficients, measured_s, groups, what
        As of :func:`simspec.calibration.robust.fit_and_judge`.
    held : mapping, optional
        Coefficients that stay as they are.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    names, fixed = [coefficient.name for coefficient in coefficients], dict(held or {})

    def predict(values: Array, chosen: Mask) -> Array:
        return price(fixed | dict(zip(names, map(float, values), strict=True)), chosen)

    estimate, judged, num_fitted = fit_and_judge(
        predict, coefficients, measured_s, groups=groups, loss_scale=LOSS_SCALE, what=what
    )
    return Fitted(
        values=fixed | dict(zip(names, map(float, estimate.values), strict=True)),
        standard_error=finite_errors(names, estimate.standard_error),
        rows=num_fitted,
        judged=judged,
    )


def finite_errors(names: Sequence[str], errors: Array) -> dict[str, float]:
    """Return the standard errors that exist, by coefficient."""
    return {
        name: float(e) for name, e in zip(names, errors, strict=True) if np.isfinite(e) and e > 0
    }


def yaml_table(kind: str, fits: Mapping[str, Fitted], *, indent: int) -> list[str]:
    """Return the lines of one table of fits as a profile's YAML writes it."""
    pad = " " * indent
    lines = [f"{pad}{kind}:"]
    for name, fitted in fits.items():
        lines.append(f"{pad}  {name}:")
        lines += [f"{pad}    {key}: {_number(value)}" for key, value in fitted.values.items()]
        if fitted.tile_rows:
            lines.append(f"{pad}    tile_rows: [{', '.join(map(str, fitted.tile_rows))}]")
        if fitted.tile_columns:
            lines.append(f"{pad}    tile_columns: {fitted.tile_columns}")
        lines.append(f"{pad}    rows: {fitted.rows}")
        if fitted.standard_error:
            errors = ", ".join(
                f"{k}: {_number(e, digits=2)}" for k, e in fitted.standard_error.items()
            )
            lines.append(f"{pad}    standard_error: {{{errors}}}")
        judged = fitted.judged
        lines.append(
            f"{pad}    held_out_error: {{rows: {judged.rows}, median: {judged.median:.3f}, "
            f"p90: {judged.p90:.3f}}}"
        )
    return lines


def _number(value: float, *, digits: int = 4) -> str:
    # Through float twice: significant digits, and never an exponent.
    return f"{float(f'{value:.{digits}g}'):g}" if abs(value) > 1e-9 else "0"
