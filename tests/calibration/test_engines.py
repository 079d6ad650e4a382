"""Fits of engines: coefficients come back, halves do not mix, mistakes are one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simspec.calibration.engines import (
    ServingGroup,
    fit_engine,
    is_fitted,
    judge,
    with_coefficients,
)
from simspec.core.errors import CalibrationError, ConfigError
from simspec.hardware.load import load_engine
from simspec.hardware.profile import EngineProfile
from simspec.validation.serving_fit import fit_profile

BATCHES = np.array([1.0, 4.0, 16.0, 64.0, 128.0, 256.0])
TRUE = {"per_step_us": 400.0, "per_sequence_us": 12.0, "per_prompt_us": 0.0, "overhead_share": 0.7}


def group(name: str, layers: int, *, fitted: bool = True) -> ServingGroup:
    """Return a deployment whose steps are 60 us of overhead and 100 us of work per layer."""

    def price(engine: EngineProfile) -> tuple[np.ndarray, np.ndarray]:
        share = engine.kernels_in_steps.overhead_share
        host = engine.host_time_per_step_s + engine.host_time_per_sequence_s * BATCHES
        tpot = layers * (60e-6 * share + 100e-6 + BATCHES * 1e-7) + host
        return tpot, 10 * tpot + engine.front_end_s

    tpot_s, ttft_s = price(
        with_coefficients(load_engine("vllm"), {**TRUE, "front_end_us": 30_000.0})
    )
    exact = np.zeros_like(tpot_s)
    return ServingGroup(name, False, fitted, price, tpot_s, ttft_s, (exact, exact))


def test_coefficients_come_back() -> None:
    """Rows made with known host times and shares are explained by those."""
    fitted = [group(f"m{layers}", layers) for layers in (16, 32, 64, 80)]
    found = fit_engine(
        load_engine("vllm"), fitted, [group("m48", 48, fitted=False)], fixed={"per_prompt_us": 0.0}
    )
    assert found.values["per_step_us"] == pytest.approx(400.0, rel=0.02)
    assert found.values["per_sequence_us"] == pytest.approx(12.0, rel=0.02)
    assert found.values["overhead_share"] == pytest.approx(0.7, rel=0.02)
    assert found.values["front_end_us"] == pytest.approx(30_000.0, rel=0.02)
    assert found.judged["dense tpot"].median < 1e-3
    assert found.errors["model_error"] < 1e-2
    assert found.rows == 4 * BATCHES.size


def test_deployments_fall_on_one_side() -> None:
    """Every other doubling of the GPUs of one model is fitted, whatever else a row says."""
    sides = [is_fitted("trtllm", "qwen3-32b", "h100_sxm", gpus) for gpus in (1, 2, 4, 8)]
    assert sides[0] != sides[1]
    assert sides[0] == sides[2]
    assert sides[1] == sides[3]
    assert is_fitted("sglang", "deepseek-r1", "h200_sxm", 8) == is_fitted(
        "sglang", "deepseek-v3", "h200_sxm", 8
    )


def test_errors_are_by_kind_and_latency() -> None:
    """Predictions of an engine without host times are too low, and the report says so."""
    idle = with_coefficients(load_engine("vllm"), {**TRUE, "per_step_us": 0.0})
    found = judge(idle, [group("m16", 16)])
    assert set(found) == {"dense tpot", "dense ttft"}
    assert found["dense tpot"].rows == BATCHES.size
    assert found["dense tpot"].median > 0.05


def test_too_few_rows_are_refused() -> None:
    """Mixtures alone say nothing of the host."""
    with pytest.raises(CalibrationError, match="no rows of dense models to fit"):
        fit_engine(load_engine("vllm"), [], [group("m16", 16, fitted=False)])


def test_an_unknown_coefficient_is_refused(tmp_path: Path) -> None:
    """--fix names what can be fitted."""
    with pytest.raises(ConfigError, match="no coefficient 'per_stp_us'; did you mean"):
        fit_profile(tmp_path / "runs.csv", "vllm", fixed={"per_stp_us": 1.0})
