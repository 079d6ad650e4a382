"""Fit the kernels of one engine on devices of a family to whole-model speeds.

Chips of a family run the same code on more or fewer of the same cores, so shares of their own
peaks carry over: the devices differ in peak and bandwidth, which their profiles state, and share
the coefficients fitted here. The predictions are those of the cost model itself
(:func:`simspec.calibration.single_stream.seconds_per_run`), so a coefficient means what it will
be used for. Time of the host that whole speeds contain goes to the overhead of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simspec.calibration.fitted import LOSS_SCALE
from simspec.calibration.robust import Array, Coefficient, Estimate, HeldOut, fit, held_out
from simspec.calibration.single_stream import SpeedRow, seconds_per_run
from simspec.core.units import from_us
from simspec.hardware.load import load_engine
from simspec.hardware.profile import Hardware, KernelFit

COEFFICIENTS = {
    "bandwidth_efficiency": Coefficient("bandwidth_efficiency", 0.05, 1.0, start=0.85),
    "overhead_us": Coefficient("overhead_us", 0.5, 50.0, start=8.0),
    "matrix_efficiency": Coefficient("matrix_efficiency", 0.02, 1.0, start=0.6),
    "matrix_share_weight_only": Coefficient("matrix_share_weight_only", 0.05, 1.0, start=0.8),
    "vector_efficiency": Coefficient("vector_efficiency", 0.01, 1.0, start=0.3),
    "vector_efficiency_weight_only": Coefficient(
        "vector_efficiency_weight_only", 0.01, 1.0, start=0.2
    ),
    "vector_sharpness": Coefficient("vector_sharpness", 1.0, 10.0, start=2.0),
    "vector_efficiency_q4_k_m": Coefficient("vector_efficiency_q4_k_m", 0.01, 1.0, start=0.1),
    "bandwidth_efficiency_weight_only": Coefficient(
        "bandwidth_efficiency_weight_only", 0.05, 1.0, start=0.8
    ),
    "decode_attention_bandwidth_efficiency": Coefficient(
        "decode_attention_bandwidth_efficiency", 0.02, 1.0, start=0.2
    ),
    "prefill_attention_flop_efficiency": Coefficient(
        "prefill_attention_flop_efficiency", 0.01, 1.0, start=0.3
    ),
}
"""What can be fitted, by name."""


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """One measured speed of one device of the family."""

    device: str
    speed: SpeedRow


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """Coefficients that devices of a family share.

    Attributes
    ----------
    values : mapping
        Every coefficient by name, in edge units; those not fitted as they were given.
    standard_error : mapping
        Of the fitted ones that ended inside their bounds.
    rows : int
        Rows fitted.
    judged : HeldOut or None
        Errors on the rows held out; None where there were none.
    """

    values: Mapping[str, float]
    standard_error: Mapping[str, float]
    rows: int
    judged: HeldOut | None


@dataclass(frozen=True, slots=True)
class Regime:
    """How an engine serves products of few rows, from its code and not fitted."""

    vector_rows: int
    tile_rows: int


def with_family(hardware: Hardware, values: Mapping[str, float], regime: Regime) -> Hardware:
    """Return ``hardware`` with the kernels that the coefficients ``values`` describe."""
    overhead_s = from_us(values["overhead_us"])
    e_b = values["bandwidth_efficiency"]

    matrix = values["matrix_efficiency"]
    # Where few rows of sixteen-bit weights were not measured, they cost what unpacked ones do.
    vector_unpacked = values["vector_efficiency_weight_only"]
    share = values.get("matrix_share_weight_only", 1.0)
    matrix_of = {"": matrix, "_weight_only": share * matrix}

    def product(form: str, suffix: str) -> KernelFit:
        own, vector = f"vector_efficiency_{form}", f"vector_efficiency{suffix}"
        return KernelFit(
            flop_efficiency=matrix_of[suffix],
            bandwidth_efficiency=values.get(f"bandwidth_efficiency{suffix}", e_b),
            overhead_s=overhead_s,
            sharpness=1.0,
            vector_rows=regime.vector_rows,
            vector_flop_efficiency=values.get(own, values.get(vector, vector_unpacked)),
            vector_sharpness=values.get("vector_sharpness", 1.0),
            tile_rows=regime.tile_rows,
        )

    prefill = values["prefill_attention_flop_efficiency"]
    decode = values["decode_attention_bandwidth_efficiency"]
    name = "fp16"
    return replace(
        hardware,
        gemm={
            name: product(name, ""),
            "weight_only": product("weight_only", "_weight_only"),
            "q4_k_m": product("q4_k_m", "_weight_only"),
        },
        decode_attention={name: KernelFit(prefill, decode, overhead_s)},
        prefill_attention={name: KernelFit(prefill, e_b, overhead_s, sharpness=1.0)},
        elementwise=KernelFit(1.0, e_b, overhead_s),
        kernel_sets={},
    )


def predict_s(
    rows: Sequence[FamilyRow],
    devices: Mapping[str, Hardware],
    values: Mapping[str, float],
    regime: Regime,
) -> Array:
    """Return the predicted seconds of each row: of a prompt, or of one step."""
    engine = load_engine("ideal")
    fitted = {name: with_family(device, values, regime) for name, device in devices.items()}
    return np.array([seconds_per_run(row.speed, fitted[row.device], engine) for row in rows])


def fit_family(
    rows: Sequence[FamilyRow],
    judged: Sequence[FamilyRow],
    devices: Mapping[str, Hardware],
    *,
    fitted: Sequence[str],
    fixed: Mapping[str, float],
    regime: Regime,
    what: str,
) -> FamilyFit:
    """Fit what devices of a family share.

    Parameters
    ----------
    rows, judged : sequence of FamilyRow
        Fitted, and held out.
    devices : mapping
        Peaks and bandwidth by the names rows use; their efficiencies are not read.
    fitted : sequence of str
        Names of :data:`COEFFICIENTS`.
    fixed : mapping
        The other coefficients.
    regime : Regime
        How few rows are multiplied.
    what : str
        For messages.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """

    def values_of(candidate: Array) -> dict[str, float]:
        return {**fixed, **dict(zip(fitted, (float(v) for v in candidate), strict=True))}

    estimate: Estimate = fit(
        lambda candidate: predict_s(rows, devices, values_of(candidate), regime),
        [COEFFICIENTS[name] for name in fitted],
        measured_s(rows),
        groups=[
            f"{row.device} {row.speed.architecture.name} {row.speed.weight_dtype}" for row in rows
        ],
        loss_scale=LOSS_SCALE,
        what=what,
    )
    values = values_of(estimate.values)
    errors = (
        held_out(predict_s(judged, devices, values, regime), measured_s(judged)) if judged else None
    )
    return FamilyFit(
        values=values,
        standard_error={
            name: float(error)
            for name, error in zip(fitted, estimate.standard_error, strict=True)
            if np.isfinite(error)
        },
        rows=len(rows),
        judged=errors,
    )


def measured_s(rows: Sequence[FamilyRow]) -> Array:
    """Return the measured seconds of each row, as :func:`predict_s` predicts them."""
    return np.array([row.speed.measured_s for row in rows], dtype=np.float64)
