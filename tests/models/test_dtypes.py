"""Number formats: bits from block layouts, rates, and what each leaves in 16 bit."""

from __future__ import annotations

from typing import get_args

import pytest

from simspec.core.errors import ConfigError
from simspec.models.counts import weights_bytes
from simspec.models.dtypes import DTYPES, Part, bytes_per_value, dtype, kv_dtype
from simspec.models.hf_config import load_model

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "block_bytes", "block_weights"),
    [
        ("q4_0", 2 + 16, 32),  # ggml: one half scale, 32 nibbles
        ("q4_1", 2 + 2 + 16, 32),
        ("q5_0", 2 + 4 + 16, 32),
        ("q5_1", 2 + 2 + 4 + 16, 32),
        ("q8_0", 2 + 32, 32),
        ("q6_k", 128 + 64 + 16 + 2, 256),  # low bits, high bits, scales, super-scale
        ("nvfp4", 8 + 1, 16),  # E2M1 values and one E4M3 scale
        ("mxfp4", 16 + 1, 32),  # E2M1 values and one E8M0 scale
        ("fp8_block", 128 * 128 + 4, 128 * 128),  # one fp32 scale per tile
        ("int4_g32_experts", 16 + 2, 32),  # symmetric: a 16-bit scale alone
        ("int4_g128", 64 + 4, 128),  # 16-bit scale and zero
        ("int4_g32", 16 + 4, 32),
        ("bf16", 2, 1),
        ("fp8", 1, 1),
    ],
)
def test_bits_follow_from_the_block_layout(name: str, block_bytes: int, block_weights: int) -> None:
    """Bits per weight are the bytes of one block over the weights in it."""
    assert dtype(name).bits_per_weight == 8 * block_bytes / block_weights
    assert bytes_per_value(name) == block_bytes / block_weights


@pytest.mark.parametrize(
    ("model", "name", "published_gib", "tolerance"),
    [
        # llama-bench prints the size of the tensors; Llama-2-7B, llama.cpp README.
        ("llama-2-7b", "fp16", 12.55, 0.001),
        ("llama-2-7b", "q8_0", 6.67, 0.005),
        ("llama-2-7b", "q4_0", 3.56, 0.02),  # its LM head is q6_k
        ("llama-2-7b", "q4_k_m", 3.80, 0.01),
        ("llama-2-7b", "q5_k_m", 4.45, 0.01),
    ],
)
def test_weights_of_a_file_match_its_published_size(
    model: str, name: str, published_gib: float, tolerance: float
) -> None:
    """Bytes of the weights equal the size of the published model file."""
    assert weights_bytes(load_model(model), name) / GIB == pytest.approx(
        published_gib, rel=tolerance
    )


def test_weight_only_formats_compute_at_sixteen_bit() -> None:
    """A format whose activations stay 16-bit multiplies at the 16-bit rate."""
    for form in DTYPES.values():
        if form.weight_only:
            assert form.compute_dtype in ("bf16", "fp16"), form.name
            assert form.activation_bytes == 2.0, form.name
    assert not dtype("bf16").weight_only
    assert not dtype("fp8").weight_only
    assert dtype("int4_g128").weight_only


def test_formats_fall_back_to_the_sixteen_bit_rate() -> None:
    """FP8 weights on a device without FP8 units are unpacked and multiplied in 16 bit."""
    assert dtype("fp8").compute_on({"bf16", "fp8"}) == "fp8"
    assert dtype("fp8").compute_on({"bf16", "fp32"}) == "bf16"
    assert dtype("fp16").compute_on({"bf16"}) == "bf16"
    assert dtype("bf16").runs_on({"fp16"})


def test_four_bit_formats_need_fp4_units() -> None:
    """On Hopper FP4 weights are unpacked to 16 bit; with FP4 units NVFP4 multiplies at the FP4
    rate and MXFP4, whose inputs are 8 bits wide, at the FP8 rate."""
    hopper, blackwell = {"bf16", "fp8"}, {"bf16", "fp8", "fp4"}
    for name, rate in (("nvfp4", "fp4"), ("nvfp4_ffn", "fp4"), ("mxfp4", "fp8")):
        assert dtype(name).compute_on(hopper) == "bf16", name
        assert dtype(name).compute_on(blackwell) == rate, name
    assert dtype("mxfp4").activation_bytes == 1 + 1 / 32  # one E8M0 scale per 32 E4M3 values


def test_formats_without_a_rate_are_refused() -> None:
    """A 32-bit model has no rate on a device that only lists bf16; the message names it."""
    with pytest.raises(ConfigError, match=r"'fp32' computes at fp32, .* it has: bf16"):
        dtype("fp32").compute_on({"bf16"})
    assert not dtype("fp32").runs_on({"bf16"})


def test_serving_formats_leave_embedding_head_and_norms_in_sixteen_bit() -> None:
    """fp8 covers the layers' matrices; gpt-oss's mxfp4 the experts; a gguf file every matrix."""
    left_alone = {"embedding", "head", "norms", "router"}
    for part in get_args(Part):
        assert dtype("fp8").bits(part) == (16.0 if part in left_alone else 8.0)
        assert dtype("mxfp4").bits(part) == (4.25 if part == "experts" else 16.0)
        assert dtype("nvfp4_ffn").bits(part) == (4.5 if part in {"ffn", "experts"} else 16.0)
        assert dtype("q8_0").bits(part) == (16.0 if part in {"norms", "router"} else 8.5)
        assert dtype("fp32").bits(part) == 32.0


def test_unknown_names_offer_the_nearest() -> None:
    """A misspelt format is answered with the right one."""
    with pytest.raises(ConfigError, match="unknown dtype 'bf61'; did you mean 'bf16'"):
        dtype("bf61")


def test_weight_formats_are_refused_for_the_cache() -> None:
    """No engine keeps a KV cache in a weight-only format."""
    assert kv_dtype("fp8").bytes_per_value == 1.0
    with pytest.raises(ConfigError, match="no engine keeps its KV cache in 'int4_g128'"):
        kv_dtype("int4_g128")
