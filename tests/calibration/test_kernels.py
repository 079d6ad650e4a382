"""Fits of kernels: synthetic recovery, honest held-out errors, and the profiles they fill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from simspec.calibration.kernel_tables import KernelRows
from simspec.calibration.kernels import fit_device, fit_kernel, tables_of
from simspec.core.errors import CalibrationError, ProfileError
from simspec.core.rng import stream
from simspec.cost.roofline import KernelRate, kernel_seconds
from simspec.hardware.load import load_hardware_config
from tests.helpers.shared import shared

PEAK, BANDWIDTH = 989e12, 3.35e12
TRUE = {
    "flop_efficiency": 0.72, "bandwidth_efficiency": 0.88, "overhead_us": 4.0, "sharpness": 3.0
}  # fmt: skip
FOLDERS = {
    "h100_sxm": "h100_sxm",
    "h200_sxm": "h200_sxm",
    "a100_sxm_80gb": "a100_sxm",
    "l40s": "l40s",
}
"""Tables each calibrated profile was fitted to."""


def synthetic(seed: int, *, noise: float = 0.03, sharpness: float = 3.0) -> KernelRows:
    """Return matrix products timed by a device with the coefficients ``TRUE``."""
    rng = stream(seed, "synthetic GEMM")
    shapes = [(n, k) for n in range(1024, 17408, 2048) for k in range(1024, 17408, 2048)]
    m, n, k = np.array(
        [(m, n, k) for n, k in shapes for m in (1, 8, 64, 256, 1024, 4096)], dtype=float
    ).T
    rate = KernelRate(
        PEAK * TRUE["flop_efficiency"],
        BANDWIDTH * TRUE["bandwidth_efficiency"],
        TRUE["overhead_us"] * 1e-6,
        sharpness,
    )
    flop, num_bytes = 2 * m * n * k, 2 * (n * k + m * (n + k))
    seconds = np.asarray(kernel_seconds(flop, num_bytes, rate))
    return KernelRows(
        flop=flop,
        num_bytes=num_bytes,
        measured_s=seconds * np.exp(noise * rng.standard_normal(m.size)),
        groups=tuple(f"{int(a)}x{int(b)}" for a, b in zip(n, k, strict=True)),
        is_resident=np.zeros(m.size, dtype=np.bool_),
    )


def test_recovers_the_coefficients_that_made_the_data() -> None:
    """All four lie within 4 of their standard errors (by chance outside once in 4000 fits)."""
    fitted = fit_kernel(synthetic(1), PEAK, BANDWIDTH, what="synthetic")
    for name, true in TRUE.items():
        assert abs(fitted.values[name] - true) < 4 * fitted.standard_error[name], name


def test_held_out_error_is_the_noise() -> None:
    """With the right form, the held-out median is that of the noise: 0.674 of its sigma.

    Half of 384 rows: the median's own error is about 8 %, so 30 % is nearly 4 of it.
    """
    fitted = fit_kernel(synthetic(2), PEAK, BANDWIDTH, what="synthetic")
    assert fitted.judged.median == pytest.approx(0.674 * 0.03, rel=0.30)


def test_without_noise_the_fit_is_exact() -> None:
    """Data of the form itself are reproduced to a part in a thousand."""
    fitted = fit_kernel(synthetic(3, noise=0.0), PEAK, BANDWIDTH, what="synthetic")
    assert fitted.values == pytest.approx(TRUE, rel=1e-2)
    assert fitted.judged.p90 < 1e-3


def test_resident_rows_are_neither_fitted_nor_judged() -> None:
    """Rows from the cache do not move the coefficients, however fast they are."""
    clean = synthetic(4)
    cached = np.arange(clean.flop.size) % 5 == 0
    spoilt = replace(
        clean,
        measured_s=np.where(cached, clean.measured_s / 10.0, clean.measured_s),
        is_resident=cached,
    )
    fitted = fit_kernel(spoilt, PEAK, BANDWIDTH, what="synthetic")
    assert fitted.num_resident == cached.sum()
    for name, true in TRUE.items():
        assert abs(fitted.values[name] - true) < 4 * fitted.standard_error[name], name


def test_a_held_flop_efficiency_is_kept_with_the_plain_maximum() -> None:
    """Decode attention takes its FLOP efficiency from elsewhere and has no smooth corner."""
    rows = synthetic(5, sharpness=np.inf)
    fitted = fit_kernel(rows, PEAK, BANDWIDTH, what="synthetic", flop_efficiency=0.72)
    assert fitted.values["flop_efficiency"] == 0.72
    assert "sharpness" not in fitted.values
    assert "flop_efficiency" not in fitted.standard_error
    assert fitted.kernel_fit().sharpness == np.inf
    error = fitted.standard_error["bandwidth_efficiency"]
    assert abs(fitted.values["bandwidth_efficiency"] - 0.88) < 4 * error


def test_no_rows_is_an_error_with_the_kernels_name() -> None:
    """A table with nothing to fit says which kernel it was."""
    rows = synthetic(6)
    everything = replace(rows, is_resident=np.ones(rows.flop.size, dtype=np.bool_))
    with pytest.raises(CalibrationError, match="the odd kernel: 0 rows"):
        fit_kernel(everything, PEAK, BANDWIDTH, what="the odd kernel")


@pytest.mark.parametrize(
    ("profile", "target"),
    [("h100_sxm", 0.055), ("h200_sxm", 0.055), ("l40s", 0.084), ("a100_sxm_80gb", 0.093)],
)
def test_measured_gemm_is_met_on_shapes_never_seen(profile: str, target: float) -> None:
    """The held-out median error of bf16 GEMM reaches what a 3-coefficient roofline can do."""
    fits = fit_device(shared(f"measured/kernels/{FOLDERS[profile]}"), "vllm", profile=profile)
    assert fits.gemm["bf16"].judged.median <= target
    assert fits.gemm["bf16"].judged.rows > 1000
    for kind in (fits.decode_attention, fits.prefill_attention):
        assert kind["bf16"].judged.median <= 0.09

    kept = load_hardware_config(profile).kernels
    for name, fitted in fits.gemm.items():
        entry = kept.gemm[name]
        for coefficient, value in fitted.values.items():
            assert getattr(entry, coefficient) == pytest.approx(value, rel=2e-3), coefficient


def test_other_engines_tables_are_fitted_too() -> None:
    """TensorRT-LLM's tables of the same device give sixteen-bit GEMMs within 15 % of vLLM's."""
    folder = shared("measured/kernels/a100_sxm")
    ours = load_hardware_config("a100_sxm_80gb").kernels.gemm["bf16"]
    theirs = fit_device(folder, "trtllm", profile="a100_sxm_80gb").gemm["bf16"].values
    assert theirs["bandwidth_efficiency"] == pytest.approx(ours.bandwidth_efficiency, rel=0.15)
    assert theirs["flop_efficiency"] == pytest.approx(ours.flop_efficiency, rel=0.15)


def test_the_printed_yaml_loads_as_part_of_a_profile(tmp_path: Path) -> None:
    """What the command prints can be pasted into a profile as it is."""
    folder = shared("measured/kernels/a100_sxm")
    parts = yaml.safe_load(fit_device(folder, "vllm", profile="a100_sxm_80gb").yaml())
    parts = {group: {**values, "source": "a fit of today"} for group, values in parts.items()}
    profile = tmp_path / "mine.yaml"
    profile.write_text(yaml.safe_dump({"extends": "a100_sxm_80gb", **parts}), encoding="utf-8")
    assert load_hardware_config(str(profile)).kernels.gemm["bf16"].rows is not None


def test_tables_are_found_below_a_folder_of_devices(tmp_path: Path) -> None:
    """Given the folder of all devices, the one named like the profile is taken."""
    assert tables_of(tmp_path, "h100_sxm") == tmp_path / "h100_sxm"
    (tmp_path / "gemm.vllm.parquet").write_bytes(b"")
    assert tables_of(tmp_path, "h100_sxm") == tmp_path


def test_unknown_profile_and_missing_cache_size_are_named(tmp_path: Path) -> None:
    """A profile that is not there, or lacks its cache, stops the fit with a sentence."""
    with pytest.raises(ProfileError, match="did you mean 'h100_sxm'"):
        fit_device(tmp_path, "vllm", profile="h100_sxn")
    own = tmp_path / "mine.yaml"
    own.write_text("extends: h100_sxm\nmemory: {l2_mb: null}\n", encoding="utf-8")
    with pytest.raises(CalibrationError, match="l2_mb"):
        fit_device(tmp_path, "vllm", profile=str(own))
