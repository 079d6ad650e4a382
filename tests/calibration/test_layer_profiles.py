"""Per-layer profiles: the RTX 4090's fit, and elementwise kernels with a coarse clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simspec.calibration.layer_profiles import (
    ElementwiseRows,
    elementwise_overhead_us,
    fit_elementwise,
    fit_layer_profile,
    serving_sim_elementwise,
    vidur_elementwise,
)
from simspec.core.errors import CalibrationError
from simspec.core.rng import stream
from simspec.hardware.load import load_hardware_config
from simspec.models.hf_config import load_model
from tests.helpers.shared import shared

LLAMA = load_model("llama-3.1-8b")
PROFILE = "reference/rtx4090_kernels_llama31_8b"


def test_the_4090_profile_is_this_fit() -> None:
    """One layer of Llama-3.1-8B: GEMM within 5 % and attention within 10 % on held-out rows."""
    fits = fit_layer_profile(shared(PROFILE), LLAMA, "rtx_4090")
    assert fits.gemm["bf16"].judged.median < 0.05
    assert fits.decode_attention["bf16"].judged.median < 0.10
    assert fits.prefill_attention["bf16"].judged.median < 0.10
    kept = load_hardware_config("rtx_4090").kernels
    assert kept.gemm["bf16"].flop_efficiency == pytest.approx(
        fits.gemm["bf16"].values["flop_efficiency"], rel=2e-3
    )
    assert kept.decode_attention["bf16"].overhead_us == pytest.approx(
        fits.decode_attention["bf16"].values["overhead_us"], rel=2e-3
    )


def test_elementwise_kernels_have_a_floor_of_a_few_microseconds() -> None:
    """At a handful of tokens a fused norm, rotary or activation takes 1 to 3 µs."""
    assert 1.0 < elementwise_overhead_us(shared(PROFILE)) < 3.0


def test_recovers_an_elementwise_efficiency() -> None:
    """The share of the bandwidth lies within 4 of its standard errors (1e-4 by chance)."""
    rng = stream(1, "synthetic elementwise")
    num_bytes = rng.uniform(1e6, 1e9, 400)
    seconds = num_bytes / (0.6 * 3.35e12) + 2e-6
    rows = ElementwiseRows(
        num_bytes=num_bytes,
        measured_s=seconds * np.exp(0.05 * rng.standard_normal(400)),
        groups=tuple(map(str, range(400))),
    )
    fitted = fit_elementwise(rows, 3.35e12, overhead_us=2.0, what="toy")
    error = fitted.standard_error["bandwidth_efficiency"]
    assert abs(fitted.values["bandwidth_efficiency"] - 0.6) < 4 * error
    assert fitted.values["overhead_us"] == pytest.approx(2.0)


@pytest.mark.parametrize(("device", "profile"), [("h100", "h100_sxm"), ("a100", "a100_sxm_80gb")])
def test_elementwise_efficiency_of_a_profile_is_vidurs(device: str, profile: str) -> None:
    """The profile holds what Vidur's table gives at the overhead of newer kernels."""
    config = load_hardware_config(profile)
    bandwidth = config.memory.bandwidth_gb_s * 1e9
    models = {
        "meta-llama/Llama-2-7b-hf": load_model("llama-2-7b"),
        "meta-llama/Llama-2-70b-hf": load_model("llama-2-70b"),
        "meta-llama/Meta-Llama-3-8B": LLAMA,
        "meta-llama/Meta-Llama-3-70B": load_model("llama-3.1-70b"),
    }
    rows = vidur_elementwise(
        shared("measured/vidur/vidur_compute_h100_a100.csv.gz"), device, models, bandwidth
    )
    kept = config.kernels.elementwise
    fitted = fit_elementwise(rows, bandwidth, overhead_us=kept.overhead_us, what=profile)
    assert kept.bandwidth_efficiency == pytest.approx(
        fitted.values["bandwidth_efficiency"], rel=2e-3
    )


def test_rows_the_clock_cannot_resolve_are_left_out(tmp_path: Path) -> None:
    """Where a microsecond of rounding exceeds a tenth of the time, a row takes no part."""
    row = {
        "hw": "toy", "model": "m", "tp": 1, "input_layernorm_ms": 0.02, "add_ms": 0.03,
        "attn_rope_ms": 0.02, "mlp_act_ms": 0.1,
    }  # fmt: skip
    table = pd.DataFrame([{**row, "num_tokens": 4}, {**row, "num_tokens": 4096}])
    table.to_csv(tmp_path / "toy.csv", index=False)
    rows = vidur_elementwise(tmp_path / "toy.csv", "toy", {"m": LLAMA}, 3.35e12)
    assert len(rows.groups) == 4
    assert rows.num_bytes.min() / 3.35e12 > 5e-6


def test_bytes_of_elementwise_rows_are_those_of_the_operators() -> None:
    """A fused norm moves four activations per channel, as the cost model's does."""
    from simspec.cost.operators import elementwise
    from simspec.cost.operators._base import Place
    from simspec.cost.work import Stack
    from simspec.hardware.load import load_hardware

    rows = serving_sim_elementwise(shared(PROFILE), LLAMA)
    stack = Stack("t", LLAMA.blocks, LLAMA.hidden_size, LLAMA.vocab_size, "bf16", "bf16", 1)
    place = Place("block", LLAMA.blocks[0], stack, load_hardware("rtx_4090"))
    kernels = {k.name: k for k in elementwise.kernels(place)}
    for layer, operator in (("layernorm", "norm"), ("act_fn", "activation")):
        index = rows.groups.index(f"{layer} 1024")
        _, num_bytes = kernels[operator].work(1024)
        # The operator also reads the norm's own weights, once.
        assert rows.num_bytes[index] == pytest.approx(num_bytes, rel=1e-3)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder that is not a profile is refused with the file it lacks."""
    with pytest.raises(CalibrationError, match=r"dense\.csv"):
        elementwise_overhead_us(tmp_path)
