"""Norms, rotary embedding with the KV write, activation: memory traffic only.

Their FLOP run on the vector units and are never the bound, so they count as zero. Fused as
engines launch them: norm with the residual addition before it, rotary embedding with the write
into the KV cache, activation with the gate product. What a layer with MLA or experts does
besides its norms is in ``mla.py`` and ``moe.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.cost.operators._base import AffineKernel, Place
from simspec.models.arch import Block
from simspec.models.counts import block_params, kv_heads_per_rank


def kernels(place: Place) -> Sequence[AffineKernel]:
    """Return the norms of a layer or before the head, the rotary kernel and the activation."""
    d = place.stack.hidden_size
    weights = d * place.weight_bytes("norms")
    if place.site == "head":
        return [place.elementwise_kernel("final_norm", 2 * d, fixed_bytes=weights)]
    block = place.block
    if block is None:
        return ()
    # Reads input and residual, writes the sum and the normalised value.
    norm = place.elementwise_kernel("norm", 4 * d, fixed_bytes=weights)
    return [*[norm] * block.num_norms, *_rotary(place, block), *_activation(place, block)]


def _rotary(place: Place, block: Block) -> list[AffineKernel]:
    if block.mla is not None or not block.num_heads:
        return []
    tp = place.stack.tp
    query = block.num_heads / tp * block.head_dim
    key = kv_heads_per_rank(block, tp) * block.head_dim
    rotary = place.elementwise_kernel(
        "rope_kv_write",
        # Reads q, k and v, writes q; k and v go into the cache at its own width.
        2 * query + 2 * key,
        bytes_per_row=2 * key * place.kv_bytes,
    )
    if not block.qk_norm:
        return [rotary]
    # What the layer's norms hold beyond those over the hidden size.
    num_weights = block_params(block, tp).norms - block.num_norms * block.hidden_size
    weights = num_weights * place.weight_bytes("norms")
    return [
        place.elementwise_kernel("qk_norm", 2 * (query + key), fixed_bytes=weights),
        rotary,
    ]


def _activation(place: Place, block: Block) -> list[AffineKernel]:
    if block.moe is not None or not block.intermediate_size:
        return []
    values = (3 if block.gated_ffn else 2) * block.intermediate_size / place.stack.tp
    return [place.elementwise_kernel("activation", values)]
