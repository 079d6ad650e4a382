"""Multi-head latent attention."""

from __future__ import annotations

import pytest

from simspec.cost.operators._base import Place
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.operators.mla import kernels
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
