"""Predictions of whole-model speeds: what a row of llama-bench means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simspec.calibration.single_stream import SpeedRow, seconds_per_run
from simspec.hardware.load import load_engine, load_hardware
from simspec.models.hf_config import load_model

IDEAL = load_engine("ideal")
MODEL = load_model("llama-3.1-8b")
DEVICE = load_hardware("m2_ultra")


def seconds(row: SpeedRow) -> float:
    """Return the predicted seconds on an M2 Ultra."""
    return seconds_per_run(row, DEVICE, IDEAL)


def test_a_prompt_is_processed_in_microbatches() -> None:
    """Twice the prompt takes more than twice the time, as attention reaches further back."""
    one, two = (seconds(SpeedRow(MODEL, "fp16", True, n, 1.0)) for n in (4096, 8192))
    assert 2.0 < two / one < 2.5


def test_generation_is_priced_at_its_mean_context() -> None:
    """256 tokens from an empty cache cost a token what one at a context of 127.5 costs."""
    grown = seconds(SpeedRow(MODEL, "q4_0", False, 256, 1.0))
    below, above = (seconds(SpeedRow(MODEL, "q4_0", False, 1, 1.0, context=c)) for c in (127, 128))
    assert grown == pytest.approx((below + above) / 2.0, rel=1e-9)


def test_measured_seconds_are_of_a_step_or_a_prompt() -> None:
    """8 sequences at 400 tokens/s together take 20 ms a step, 512 tokens at 1024/s 0.5 s."""
    step = SpeedRow(MODEL, "q4_0", False, 32, 400.0, batch=8)
    assert step.measured_s == pytest.approx(0.02)
    assert SpeedRow(MODEL, "q4_0", True, 512, 1024.0).measured_s == 0.5
    assert replace(step, batch=1, verified=4).measured_s == pytest.approx(0.01)


def test_a_verify_pass_on_metal_costs_several_decode_steps() -> None:
    """A pass over 8 tokens of a 7B model in Q8_0 takes about 2.5 steps on an M2 Ultra.

    31.4 ms against 12.8 for 8 sequences of Qwen2.5-Coder-7B and 18.1 against 7.3 for Gemma-3-4B
    (github:ggml-org/llama.cpp benches/mac-m2-ultra); on CUDA cards with tensor cores it is a
    fraction of that.
    """
    model = load_model("qwen2.5-7b")
    one, eight = (
        seconds(SpeedRow(model, "q8_0", False, 1, 1.0, context=512, batch=batch))
        for batch in (1, 8)
    )
    assert eight / one == pytest.approx(2.45, rel=0.15)
    card = load_hardware("rtx_4090").with_kernels("llama_cpp")
    row = SpeedRow(model, "fp16", False, 1, 1.0, context=512)
    wide = seconds_per_run(replace(row, verified=8), card, IDEAL)
    assert wide / seconds_per_run(row, card, IDEAL) < 1.2


def test_metal_reads_the_kv_for_every_token_it_verifies() -> None:
    """The Apple profiles charge each query token its own read of the KV cache."""
    for name in ("m1", "m2_ultra", "m3_max", "m4_max", "m4_max_32core"):
        for kernels in ("", "llama_cpp_2024", "mlx"):
            assert load_hardware(name).with_kernels(kernels).kv_reads == "once_per_token"
