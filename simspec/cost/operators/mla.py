"""Multi-head latent attention: the cache holds latents (DeepSeek-V2, arXiv 2405.04434, 2.1).

Decode and verify rows work on the latents directly, with the up-projections absorbed into
queries and outputs: ``2 h (2 r_kv + d_rope)`` FLOP per query-key pair and ``r_kv + d_rope``
cached values per token, which every rank holds in full. Prompt chunks expand the latents to
heads (``2 h (d_nope + d_rope + d_v)`` FLOP per pair), those of the context they continue once
per chunk. For new tokens both ways multiply by the up-projection once, so one product stands
for it. Kernels over latents have no table; they take the coefficients of plain attention, which
on an H100 give the 3,000 GB/s and 660 TFLOP/s that DeepSeek states of its kernel on the same chip
(github.com/deepseek-ai/FlashMLA @066b5ba, H800). Left out: the memory traffic of the expanded
heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Kernel, Place
from simspec.cost.operators._pairs import PairKernel
from simspec.models.arch import MLA, Block
from simspec.models.counts import kv_values_per_token


def kernels(place: Place) -> Sequence[Kernel]:
    """Return the projections, the latent write and the attention of a layer with MLA."""
    block = place.block
    if block is None or block.mla is None:
        return ()
    return [*_projections(place, block, block.mla), *_attention(place, block, block.mla)]


def _projections(place: Place, block: Block, mla: MLA) -> list[AffineKernel]:
    heads, d = block.num_heads / place.stack.tp, block.hidden_size
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    form, norm_bytes = place.gemm("attention"), place.weight_bytes("norms")
    rank = mla.q_lora_rank
    if rank is None:
        down = [form.kernel("q", d, query), form.kernel("kv_a", d, latent)]
    else:
        # Engines fuse the two down-projections, which every rank holds in full.
        down = [form.kernel("q_kv_a", d, rank + latent), form.kernel("q_b", rank, query)]
    normed = (rank or 0) + mla.kv_lora_rank
    return [
        *down,
        place.elementwise_kernel("latent_norm", 2 * normed, fixed_bytes=normed * norm_bytes),
        form.kernel("kv_b", mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim)),
        place.elementwise_kernel(
            "rope_kv_write",
            2 * heads * mla.qk_rope_head_dim + latent,
            bytes_per_row=latent * place.kv_bytes,
        ),
        form.kernel("o", heads * mla.v_head_dim, d),
    ]


def _attention(place: Place, block: Block, mla: MLA) -> list[PairKernel]:
    heads = block.num_heads / place.stack.tp
    key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    latent_key = mla.kv_lora_rank + mla.qk_rope_head_dim
    cached = kv_values_per_token(block, place.stack.tp) * place.kv_bytes
    decode = PairKernel(
        name="decode_attention",
        row_kind="decode",
        rate=place.attention_rate("decode", 1),
        flop_per_pair=2.0 * heads * (latent_key + mla.kv_lora_rank),
        bytes_per_kv_token=cached,
        bytes_per_row=heads * (latent_key + mla.kv_lora_rank) * place.activation_bytes,
        kv_reads=place.hardware.kv_reads,
        window=block.sliding_window,
    )
    prefill = PairKernel(
        name="prefill_attention",
        row_kind="prefill",
        rate=place.attention_rate("prefill", heads),
        flop_per_pair=2.0 * heads * (key + mla.v_head_dim),
        bytes_per_kv_token=cached,
        bytes_per_row=heads * (key + mla.v_head_dim) * place.activation_bytes,
        kv_reads="once_per_pass",
        window=block.sliding_window,
        flop_per_context_token=2.0
        * mla.kv_lora_rank
        * heads
        * (mla.qk_nope_head_dim + mla.v_head_dim),
    )
    return [decode, prefill]
