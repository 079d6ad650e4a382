"""Matrix products with layer weights, as engines fuse them: QKV, O, gate+up, down.

``2 T k n`` FLOP and ``k n b_w + T (k b_in + n b_out)`` bytes, with ``k n`` the rank's share: QKV
and gate+up are split by columns (``n / tp``), O and down by rows (``k / tp``), after Shoeybi et
al., "Megatron-LM", arXiv 1909.08053, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Place
from simspec.models.arch import Block
from simspec.models.counts import kv_heads_per_rank


def kernels(place: Place) -> Sequence[AffineKernel]:
    """Return the projections of a layer with plain heads and a dense feed-forward."""
    block = place.block
    if block is None:
        return ()
    return [*_attention(place, block), *_feed_forward(place, block)]


def _attention(place: Place, block: Block) -> list[AffineKernel]:
    if block.mla is not None or not block.num_heads:
        return []
    tp = place.stack.tp
    query = block.num_heads / tp * block.head_dim
    key_value = 2 * kv_heads_per_rank(block, tp) * block.head_dim
    form = place.gemm("attention")
    d = block.hidden_size
    return [
        form.kernel(
            "qkv",
            block.qkv_input_size or d,
            query + key_value,
            has_bias=block.qkv_bias,
        ),
        form.kernel("o", query, d, has_bias=block.o_bias),
    ]


def _feed_forward(place: Place, block: Block) -> list[AffineKernel]:
    if block.moe is not None or not block.intermediate_size:
        return []
    width, d = block.intermediate_size / place.stack.tp, block.hidden_size
    columns, name = (2, "gate_up") if block.gated_ffn else (1, "up")
    form = place.gemm("ffn")
    return [
        form.kernel(name, d, columns * width, has_bias=block.mlp_bias),
        form.kernel("down", width, d, has_bias=block.mlp_bias),
    ]
