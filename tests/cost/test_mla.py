"""Multi-head latent attention."""

from __future__ import annotations

import pytest

from simspec.cost.forward import CostModel
from simspec.cost.operators._base import Place
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.operators.mla import kernels
from simspec.cost.work import Pass, Stack
from simspec.hardware.load import load_engine, load_hardware
from simspec.models.counts import kv_bytes_per_token
from simspec.models.hf_config import load_model
from tests.cost.factory import LATENT, hardware, rows, stack


def attention(kind, tp=1):
    found = kernels(Place("block", LATENT, stack((LATENT,), tp=tp), hardware()))
    return next(k for k in found if isinstance(k, PairKernel) and k.row_kind == kind)


def test_the_cache_holds_one_latent_per_token_on_every_rank():
    """128 + 32 values of 2 bytes, however many ranks share the heads."""
    assert attention("decode").bytes_per_kv_token == 160 * 2
    assert attention("decode", tp=8).bytes_per_kv_token == 160 * 2


def test_decode_multiplies_with_latents():
    """2 h (r_kv + d_rope) for scores and 2 h r_kv for the sum: 2 * 16 * (160 + 128) per pair."""
    assert attention("decode").work(rows(99)).flop == 2 * 16 * 288 * 100
    assert attention("decode", tp=8).work(rows(99)).flop == 2 * 2 * 288 * 100


def test_prompts_multiply_with_expanded_heads():
    """2 h (d_nope + d_rope + d_v) per pair: 2 * 16 * (64 + 32 + 64)."""
    flop = attention("prefill").work(rows(0, 10, kind="prefill")).flop
    assert flop == 2 * 16 * 160 * 55


def test_a_later_chunk_expands_its_context_again():
    """2 r_kv h (d_nope + d_v) FLOP for each token already cached."""
    chunk = rows(500, 10, kind="prefill")
    flop = attention("prefill").work(chunk).flop
    assert flop == pytest.approx(2 * 16 * 160 * 10 * 505.5 + 500 * 2 * 128 * 16 * 128)


def deepseek_attention(heads_tp: int, contexts: int, new_tokens: int, batch: int):
    """Return the attention line of one decode or verify pass of DeepSeek-V3 on H100s."""
    arch = load_model("deepseek-v3")
    owner = Stack(
        "target", arch.blocks, arch.hidden_size, arch.vocab_size, "bf16", "bf16", heads_tp
    )
    cost = CostModel({"target": owner}, load_hardware("h100_sxm"), load_engine("ideal"))
    work = Pass("target", 0, 61, "decode", (rows(contexts, new_tokens, batch=batch),))
    return next(line for line in cost.breakdown([work]) if line.operator == "decode_attention")


def test_a_token_of_deepseek_keeps_70_kilobytes():
    """61 layers of 512 + 64 values in 2 bytes."""
    assert kv_bytes_per_token(load_model("deepseek-v3"), "bf16") == 61 * 576 * 2 == 70_272


def test_latent_decode_reaches_what_its_authors_state():
    """FlashMLA's 3,000 GB/s with few heads and 660 TFLOP/s with many, on the H100's chip, 3 %.

    Source: github.com/deepseek-ai/FlashMLA README @066b5ba, H800 SXM5. None of our tables holds
    such a kernel; that plain attention's coefficients give both is the point.
    """
    few = deepseek_attention(8, 8192, 1, 128)
    assert few.bound == "memory"
    assert few.bytes / few.seconds == pytest.approx(3000e9, rel=0.03)
    many = deepseek_attention(1, 8192, 2, 128)
    assert many.bound == "compute"
    assert many.flop / many.seconds == pytest.approx(660e12, rel=0.03)
