"""Fits to whole-model speeds: recovery, and the Apple profiles."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from simspec.calibration.single_stream import (
    SpeedRow,
    fit_speeds,
    seconds_per_run,
    with_coefficients,
)
from simspec.hardware.load import load_engine, load_hardware, load_hardware_config
from simspec.models.hf_config import load_model
from tests.helpers.shared import shared

IDEAL = load_engine("ideal")
MODELS = {
    "llama-2-7b": load_model("llama-2-7b"),
    "llama-3-8b": load_model("llama-3.1-8b"),
    "llama-3-70b": load_model("llama-3.1-70b"),
}
TRUE = np.array([0.6, 0.85, 12.0, 0.2, 0.4])


def exact_rows(model: str) -> list[SpeedRow]:
    """Return the speeds of a device with the coefficients ``TRUE``, without noise."""
    device = with_coefficients(load_hardware("m2_ultra"), TRUE)
    rows = []
    for weight_dtype in ("fp16", "q8_0", "q4_0"):
        for is_prefill in (True, False):
            for tokens in (512, 4096):
                row = SpeedRow(MODELS[model], weight_dtype, is_prefill, tokens, 1.0)
                seconds = seconds_per_run(row, device, IDEAL)
                speed = (tokens if is_prefill else 1) / seconds
                rows.append(replace(row, tokens_per_s=speed))
    return rows


def test_recovers_the_device_that_made_the_speeds() -> None:
    """Speeds of two models determine all five coefficients, and a third model follows."""
    rows = [*exact_rows("llama-2-7b"), *exact_rows("llama-3-8b")]
    fits = fit_speeds(rows, exact_rows("llama-3-70b"), load_hardware("m2_ultra"))
    gemm = fits.gemm["fp16"].values
    assert gemm["flop_efficiency"] == pytest.approx(0.6, rel=0.02)
    assert gemm["bandwidth_efficiency"] == pytest.approx(0.85, rel=0.02)
    assert gemm["overhead_us"] == pytest.approx(12.0, rel=0.05)
    decode, prefill = fits.decode_attention["fp16"].values, fits.prefill_attention["fp16"].values
    assert decode["bandwidth_efficiency"] == pytest.approx(0.2, rel=0.02)
    assert prefill["flop_efficiency"] == pytest.approx(0.4, rel=0.05)
    assert fits.gemm["fp16"].judged.p90 < 1e-2


def test_a_prompt_is_processed_in_microbatches() -> None:
    """Twice the prompt takes more than twice the time, as attention reaches further back."""
    device = load_hardware("m2_ultra")
    one, two = (
        seconds_per_run(SpeedRow(MODELS["llama-3-8b"], "fp16", True, n, 1.0), device, IDEAL)
        for n in (4096, 8192)
    )
    assert 2.0 < two / one < 2.5


def speeds(hardware: str) -> list[SpeedRow]:
    """Return the llama.cpp speeds of one chip from the reference table."""
    formats = {"f16": "fp16", "q8_0": "q8_0", "q4_0": "q4_0", "q4_k_m": "q4_k_m"}
    rows = []
    with shared("reference/measured_inference.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["hardware"] != hardware or row["model"] not in MODELS:
                continue
            is_prefill = row["phase"] == "prefill"
            tokens = int(float(row["input_len" if is_prefill else "output_len"]))
            rows.append(
                SpeedRow(
                    MODELS[row["model"]], formats[row["weight_dtype"]], is_prefill, tokens,
                    float(row["value"]),
                )
            )  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("profile", "chip", "median"),
    [
        ("m2_ultra", "Apple M2 Ultra 76-core GPU", 0.05),
        ("m3_max", "Apple M3 Max 40-core GPU", 0.08),
    ],
)
def test_apple_profiles_are_this_fit(profile: str, chip: str, median: float) -> None:
    """Fitted on 7B and 8B models, a 70B model is met within a few per cent."""
    rows = speeds(chip)
    large = [row for row in rows if row.architecture is MODELS["llama-3-70b"]]
    small = [row for row in rows if row.architecture is not MODELS["llama-3-70b"]]
    fits = fit_speeds(small, large, load_hardware(profile))
    assert fits.gemm["fp16"].judged.median < median
    kept = load_hardware_config(profile).kernels
    for coefficient, value in fits.gemm["fp16"].values.items():
        assert getattr(kept.gemm["fp16"], coefficient) == pytest.approx(value, rel=0.01)
    assert kept.decode_attention["fp16"].bandwidth_efficiency == pytest.approx(
        fits.decode_attention["fp16"].values["bandwidth_efficiency"], rel=0.01
    )


def test_metal_reads_the_kv_for_every_token_it_verifies() -> None:
    """The Apple profiles charge each query token its own read of the KV cache."""
    for name in ("m2_ultra", "m3_max", "m4_max"):
        assert load_hardware(name).kv_reads == "once_per_token"
