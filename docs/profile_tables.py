"""The generated part of ``reference/profiles.md``: every profile and what its kernels rest on."""

from __future__ import annotations

from simspec.hardware.kernel_schema import Evidence
from simspec.hardware.load import hardware_names, load_hardware_config
from simspec.hardware.schema import EngineKernelsGroup, HardwareConfig, KernelsGroup


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def hardware_profiles() -> str:
    """Return one line per profile and kernel set: sizes, peaks, and evidence or relative."""
    rows: list[list[str]] = []
    for name in hardware_names():
        config = load_hardware_config(name)
        rows.append([f"`{name}`", *_specs(config), "its own", *_evidence(config.kernels)])
        rows += [
            ["", "", "", "", f"`{engine}`", *_evidence(group)]
            for engine, group in config.kernels.engines.items()
        ]
    heads = ["profile", "memory GB", "GB/s", "16-bit TFLOP/s", "kernels", "fitted on"]
    return _table([*heads, "rows", "held-out error %"], rows)


def _specs(config: HardwareConfig) -> list[str]:
    peaks = config.compute.dense_peak_tflops
    peak = peaks.get("bf16", peaks.get("fp16", 0.0))
    nominal = config.memory.nominal_gb or config.memory.capacity_gb
    return [f"{nominal:g}", f"{config.memory.bandwidth_gb_s:g}", f"{peak:g}"]


def _evidence(kernels: KernelsGroup | EngineKernelsGroup) -> list[str]:
    if not kernels.calibrated:
        return [f"uncalibrated: efficiencies of `{kernels.efficiencies_of}`", "", ""]
    fits: list[Evidence] = list((kernels.gemm or {}).values())
    judged = [fit.held_out_error for fit in fits if fit.held_out_error is not None]
    counted = max((fit.rows or 0 for fit in fits), default=0)
    errors = sorted({f"{100 * error.median:.1f}" for error in judged}, key=float)
    shown = f"{errors[0]} to {errors[-1]}" if len(errors) > 1 else "".join(errors)
    return [(kernels.fitted_on or "").partition(",")[2].strip() or "–", f"{counted:,}", shown]
