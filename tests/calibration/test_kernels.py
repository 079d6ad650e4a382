"""Fits of kernels: synthetic recovery, honest held-out errors, and the profiles they fill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from simspec.calibration.kernel_tables import KernelRows, ProductRows
from simspec.calibration.kernels import fit_device, fit_kernel, tables_of
from simspec.calibration.products import TILE_COLUMNS, TILE_ROWS, fit_product
from simspec.calibration.robust import Coefficient
from simspec.core.errors import CalibrationError, ProfileError
from simspec.core.rng import stream
from simspec.cost.roofline import KernelRate, kernel_seconds, product_seconds
from simspec.hardware.load import load_hardware_config
from tests.helpers.shared import shared

PEAK, BANDWIDTH = 989e12, 3.35e12
MULTIPROCESSORS = 132
TRUE = {
    "flop_efficiency": 0.72, "bandwidth_efficiency": 0.88, "overhead_us": 4.0, "sharpness": 3.0
}  # fmt: skip
FOLDERS = {
    "h100_sxm": "h100_sxm",
    "h200_sxm": "h200_sxm",
    "a100_sxm_80gb": "a100_sxm",
    "l40s": "l40s",
    "b200_sxm": "b200_sxm",
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


def synthetic_products(seed: int, noise: float) -> ProductRows:
    """Return fp8 products of a device whose tiles, depth and quantisation cost something."""
    rng = stream(seed, "synthetic products")
    base = synthetic(seed, noise=0.0)
    shapes = [(n, k) for n in range(1024, 17408, 2048) for k in range(1024, 17408, 2048)]
    m, k = np.array(
        [(m, k) for _, k in shapes for m in (1, 17, 100, 257, 1024, 4097)], dtype=float
    ).T
    n = np.array([n for n, _ in shapes for _ in range(6)], dtype=float)
    rate = KernelRate(
        PEAK * 0.7, BANDWIDTH * 0.9, 5e-6, 3.0, tile_rows=TILE_ROWS, padding_cost=2.0,
        waves=np.ceil(n / TILE_COLUMNS) / MULTIPROCESSORS, idle_cost=0.4, wave_s=1e-6,
    )  # fmt: skip
    flop, num_bytes = 2 * m * n * k, n * k + m * (k + 2 * n)
    seconds = product_seconds(m, flop, num_bytes, rate) + 0.4e-9 * k + 2.5e-12 * m * k
    return ProductRows(
        flop=flop,
        num_bytes=num_bytes,
        measured_s=np.asarray(seconds) * np.exp(noise * rng.standard_normal(m.size)),
        groups=base.groups,
        is_resident=base.is_resident,
        num_rows=m,
        in_features=k,
        out_features=n,
    )


def test_products_give_back_what_padding_depth_and_quantisation_cost() -> None:
    """All nine coefficients lie within 4 of their standard errors, in nanoseconds and rows."""
    rows = synthetic_products(7, noise=0.02)
    fitted = fit_product(
        rows, PEAK, BANDWIDTH,
        is_quantised=True, multiprocessors=MULTIPROCESSORS, what="synthetic",
    )  # fmt: skip
    true = {
        "flop_efficiency": 0.7, "bandwidth_efficiency": 0.9, "overhead_us": 5.0, "sharpness": 3.0,
        "depth_ns": 0.4, "quantise_ns": 0.0025, "padding_cost": 2.0,
        "idle_cost": 0.4, "wave_us": 1.0,
    }  # fmt: skip
    assert fitted.values.keys() == true.keys()
    for name, value in true.items():
        assert abs(fitted.values[name] - value) < 4 * fitted.standard_error[name], name
    assert fitted.judged.median == pytest.approx(0.674 * 0.02, rel=0.30)
    kernel = fitted.kernel_fit()
    assert kernel.tile_rows == TILE_ROWS
    assert kernel.tile_columns == TILE_COLUMNS
    assert kernel.wave_s == pytest.approx(fitted.values["wave_us"] * 1e-6)
    assert kernel.quantise_s == pytest.approx(fitted.values["quantise_ns"] * 1e-9)


def test_sixteen_bit_products_have_neither_padding_nor_quantisation() -> None:
    """A bf16 fit has the roofline and its depth, and runs any number of rows at once."""
    rows = synthetic_products(8, noise=0.02)
    fitted = fit_product(rows, PEAK, BANDWIDTH, is_quantised=False, what="synthetic")
    assert fitted.values.keys() == {*TRUE, "depth_ns"}
    assert fitted.kernel_fit().tile_rows == 1


def test_what_each_head_costs_is_fitted_where_asked() -> None:
    """15 ns for each sequence and KV head are found beside the roofline."""
    clean = synthetic(9, noise=0.0)
    heads = np.arange(clean.flop.size) % 7 * 400.0
    rows = replace(clean, measured_s=clean.measured_s + 15e-9 * heads, heads=heads)
    fitted = fit_kernel(
        rows, PEAK, BANDWIDTH, what="synthetic",
        per_head=Coefficient("sequence_ns", 0.0, 1000.0, start=1.0),
    )  # fmt: skip
    assert fitted.values["sequence_ns"] == pytest.approx(15.0, rel=1e-2)
    assert fitted.kernel_fit().sequence_s == pytest.approx(15e-9, rel=1e-2)


def test_no_rows_is_an_error_with_the_kernels_name() -> None:
    """A table with nothing to fit says which kernel it was."""
    rows = synthetic(6)
    everything = replace(rows, is_resident=np.ones(rows.flop.size, dtype=np.bool_))
    with pytest.raises(CalibrationError, match="the odd kernel: 0 rows"):
        fit_kernel(everything, PEAK, BANDWIDTH, what="the odd kernel")


@pytest.mark.parametrize(
    ("profile", "gemm", "quantised"),
    [
        ("h100_sxm", 0.05, 0.07),
        ("h200_sxm", 0.05, 0.07),
        ("l40s", 0.08, 0.08),
        ("a100_sxm_80gb", 0.08, 0.08),
        ("b200_sxm", 0.08, 0.08),
    ],
)
def test_measured_kernels_are_met_on_shapes_never_seen(
    profile: str, gemm: float, quantised: float
) -> None:
    """Held-out median errors: products within 5 to 8 %, attention within 10 and 12 %; and the
    profile holds what the tables give."""
    fits = fit_device(shared(f"measured/kernels/{FOLDERS[profile]}"), "vllm", profile=profile)
    for name, fitted in fits.gemm.items():
        assert fitted.judged.median <= (gemm if name == "bf16" else quantised), name
        assert fitted.judged.rows > 1000
    for name, fitted in fits.decode_attention.items():
        assert fitted.judged.median <= 0.10, name
    for name, fitted in fits.prefill_attention.items():
        assert fitted.judged.median <= 0.12, name

    kept = load_hardware_config(profile).kernels
    for kind in ("gemm", "decode_attention", "prefill_attention"):
        for name, fitted in getattr(fits, kind).items():
            entry = getattr(kept, kind)[name]
            for coefficient, value in fitted.values.items():
                assert getattr(entry, coefficient) == pytest.approx(value, rel=2e-3, abs=1e-6), (
                    kind, name, coefficient
                )  # fmt: skip


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
