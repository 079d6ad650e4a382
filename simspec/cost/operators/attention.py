"""Attention over plain heads (MHA, GQA, MQA), with or without a sliding window.

``4 h d_h sum n_i (c_i + (n_i + 1)/2) / tp`` FLOP per layer and, of KV,
``2 h_kv d_h b_kv sum (c_i + n_i)`` bytes, the KV heads divided by ``min(tp, h_kv)``: read once
per sequence and pass by FlashAttention-style kernels however many tokens a sequence verifies
(Dao et al., arXiv 2205.14135), once per query token on kernel paths without that reuse.
Prompt chunks go through tiled kernels everywhere, so they read the KV once per pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from simspec.cost.operators._base import Place
from simspec.cost.operators._pairs import PairKernel
from simspec.cost.work import RowKind
from simspec.models.counts import kv_heads_per_rank, kv_values_per_token


def kernels(place: Place) -> Sequence[PairKernel]:
    """Return the decode and the prefill kernel of a layer with plain heads."""
    block = place.block
    if block is None or block.mla is not None or not block.num_heads:
        return ()
    query = block.num_heads / place.stack.tp * block.head_dim
    kinds: tuple[RowKind, ...] = get_args(RowKind)
    return [
        PairKernel(
            name=f"{kind}_attention",
            row_kind=kind,
            rate=place.attention_rate(kind, kv_heads_per_rank(block, place.stack.tp)),
            flop_per_pair=4.0 * query,
            bytes_per_kv_token=kv_values_per_token(block, place.stack.tp) * place.kv_bytes,
            bytes_per_row=2.0 * query * place.activation_bytes,
            kv_reads=place.hardware.kv_reads if kind == "decode" else "once_per_pass",
            window=block.sliding_window,
        )
        for kind in kinds
    ]
