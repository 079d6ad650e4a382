"""Fits to whole-model speeds of devices that share coefficients, and the rule of the split."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from simspec.calibration.families import (
    FamilyRow,
    Regime,
    fit_family,
    predict_s,
)
from simspec.calibration.single_stream import SpeedRow
from simspec.calibration.speed_fits import PLANS, Plan, run
from simspec.calibration.splits import is_fitted
from simspec.hardware.load import load_hardware, load_hardware_config
from simspec.models.hf_config import load_model
from tests.helpers.shared import shared

MODELS = {name: load_model(name) for name in ("llama-2-7b", "llama-3.1-8b", "llama-3.1-70b")}
DEVICES = {name: load_hardware(name) for name in ("m1_max", "m2_ultra")}
REGIME = Regime(vector_rows=8, tile_rows=32)
TRUE = {
    "bandwidth_efficiency": 0.85,
    "overhead_us": 12.0,
    "matrix_efficiency": 0.7,
    "matrix_share_weight_only": 0.8,
    "vector_efficiency": 1.0,
    "vector_efficiency_weight_only": 0.2,
    "vector_sharpness": 1.0,
    "decode_attention_bandwidth_efficiency": 0.2,
    "prefill_attention_flop_efficiency": 0.3,
}
FREE = (
    "bandwidth_efficiency", "overhead_us", "matrix_efficiency", "matrix_share_weight_only",
    "vector_efficiency_weight_only", "decode_attention_bandwidth_efficiency",
    "prefill_attention_flop_efficiency",
)  # fmt: skip


def exact_rows(model: str) -> list[FamilyRow]:
    """Return the speeds of two devices with the coefficients ``TRUE``, without noise."""
    rows = []
    for device in DEVICES:
        for form in ("fp16", "q8_0"):
            speed = SpeedRow(MODELS[model], form, True, 512, 1.0)
            rows += [FamilyRow(device, replace(speed, tokens=n)) for n in (512, 4096)]
            speed = replace(speed, is_prefill=False)
            rows += [FamilyRow(device, replace(speed, tokens=n)) for n in (128, 4096)]
            rows += [FamilyRow(device, replace(speed, tokens=1, batch=n)) for n in (2, 4)]
    seconds = predict_s(rows, DEVICES, TRUE, REGIME)
    done = []
    for row, taken in zip(rows, seconds, strict=True):
        amount = row.speed.tokens if row.speed.is_prefill else row.speed.batch
        done.append(replace(row, speed=replace(row.speed, tokens_per_s=amount / taken)))
    return done


def test_recovers_the_family_that_made_the_speeds() -> None:
    """Speeds of two devices determine what they share, and another model follows."""
    fixed = {name: value for name, value in TRUE.items() if name not in FREE}
    result = fit_family(
        exact_rows("llama-3.1-8b"), exact_rows("llama-2-7b"), DEVICES,
        fitted=FREE, fixed=fixed, regime=REGIME, what="test",
    )  # fmt: skip
    for name in FREE:
        assert result.values[name] == pytest.approx(TRUE[name], rel=0.02), name
    assert result.judged is not None
    assert result.judged.p90 < 1e-2


def test_plans_borrow_only_what_was_fitted_before() -> None:
    """A plan's coefficients are all known when it runs: fitted, fixed or from an earlier plan."""
    done: dict[str, Plan] = {}
    for plan in PLANS:
        assert set(plan.borrowed.values()) <= set(done)
        assert not set(plan.fitted) & {*plan.fixed, *plan.borrowed}
        done[plan.name] = plan


@pytest.mark.parametrize("name", ["rtx_3090 llama_cpp_2024", "h100_pcie llama_cpp_2024"])
def test_profiles_are_these_fits(name: str) -> None:
    """What a plan gives is what the profile says, and a 70B model follows within 8 %."""
    with shared("reference/measured_inference.csv").open(encoding="utf-8") as file:
        speeds = list(csv.DictReader(file))
    plan = next(plan for plan in PLANS if plan.name == name)
    result = run(plan, speeds, [], {})
    kept = load_hardware_config(plan.profile).kernels.engines[plan.kernels]
    assert kept.gemm is not None
    entry = kept.gemm["fp16"]
    assert entry.rows == result.rows
    assert entry.bandwidth_efficiency == pytest.approx(
        result.values["bandwidth_efficiency"], rel=0.01
    )
    assert entry.overhead_us == pytest.approx(result.values["overhead_us"], rel=0.01)
    assert entry.flop_efficiency == pytest.approx(result.values["matrix_efficiency"], rel=0.01)
    assert result.judged is not None
    assert result.judged.median < 0.08


ROW = {
    "subset": "llamacpp_4167_apple", "hardware": "Apple M2 Max 38-core GPU",
    "model": "llama-2-7b", "num_gpus": "1", "quality": "clean",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_used"),
    [
        ({}, True),
        ({"hardware": "Apple M2 Max 30-core GPU"}, False),
        ({"hardware": "Apple M4 Max 40-core GPU"}, False),
        ({"quality": "suspect"}, False),
        ({"subset": "xiongjiedai_llama3", "hardware": "RTX 3090", "model": "llama-3-8b"}, True),
        ({"subset": "xiongjiedai_llama3", "hardware": "RTX 3090", "model": "llama-3-70b"}, False),
        ({"subset": "xiongjiedai_llama3", "hardware": "RTX 3070", "model": "llama-3-8b"}, False),
        ({"subset": "mlx_m4max", "model": "qwen3-4b"}, True),
        ({"subset": "mlx_m4max", "model": "qwen3-30b-a3b"}, False),
        ({"subset": "trtllm_ifb_v0.12.0"}, False),
        ({"subset": "trtllm_static_v0.9.0", "hardware": "L40S"}, True),
        ({"subset": "trtllm_static_v0.9.0", "hardware": "L40S", "num_gpus": "8"}, True),
        ({"subset": "argonne", "hardware": "A100 (memory size not stated)"}, True),
        ({"subset": "argonne", "hardware": "H100 (form factor not stated)"}, False),
    ],
)
def test_whole_configurations_are_divided(changes: dict[str, str], is_used: bool) -> None:
    """A chip version, a model or a document is on one side; nothing is fitted and judged."""
    assert is_fitted({**ROW, **changes}) is is_used
