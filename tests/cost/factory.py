"""Devices, stacks and rows with everything defaulted, so that a test states only its point.

The ideal device does 1e12 FLOP/s and 1e11 bytes/s at full efficiency without overheads: its
times can be computed by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Phase, Quantity, Rows, Stack
from simspec.hardware.profile import AllReduceFit, EngineProfile, Hardware, KernelFit, Link
from simspec.models.arch import MLA, Block, MoE

PEAK = 1e12
BANDWIDTH = 1e11
IDEAL = KernelFit(1.0, 1.0, 0.0)
REAL = KernelFit(0.7, 0.85, 3e-6, 4.0)

DENSE = Block(1024, 16, 4, 64, 2048)
"""Attention 2 * 1024^2 + 2 * 1024 * 256 parameters, feed-forward 3 * 1024 * 2048."""
ADAPTER = Block(1024, 16, 16, 64, 0)
MIXTURE = replace(DENSE, intermediate_size=0, moe=MoE(16, 2, 512, 1, 512))
LATENT = replace(DENSE, num_kv_heads=16, mla=MLA(128, 384, 64, 32, 64))
SLIDING = replace(DENSE, sliding_window=128)
PLAIN = replace(
    DENSE, gated_ffn=False, qkv_bias=True, o_bias=True, mlp_bias=True, qk_norm=True, num_norms=4
)
FUSED = replace(DENSE, fused_size=2048, qkv_input_size=2048, num_norms=3)
"""A draft head: embedding and state, 2 d wide, projected to d in front of the layer."""
BLOCKS = {
    "dense": DENSE,
    "adapter": ADAPTER,
    "mixture": MIXTURE,
    "latent": LATENT,
    "sliding": SLIDING,
    "plain": PLAIN,
    "fused": FUSED,
}


def hardware(
    fit: KernelFit = IDEAL,
    *,
    bandwidth: float = BANDWIDTH,
    kv_reads: Literal["once_per_pass", "once_per_token"] = "once_per_pass",
    link: Link | None = None,
) -> Hardware:
    return Hardware(
        name="ideal",
        description="for tests",
        memory_capacity_bytes=1e11,
        memory_bandwidth_bytes_per_s=bandwidth,
        peak_flop_per_s={"bf16": PEAK, "fp8": 2 * PEAK},
        gemm={"bf16": fit, "fp8": fit},
        decode_attention={"bf16": fit},
        prefill_attention={"bf16": fit},
        elementwise=fit,
        kv_reads=kv_reads,
        link=link,
        host_link=None,
        power=None,
        price=None,
        calibrated=False,
        sources={},
    )


def link(max_devices: int = 8) -> Link:
    """A link of 1e10 bytes/s: 1 us and 0.5 us per peer one-shot, 10 us ring."""
    fits = {
        "one_shot": AllReduceFit(1e-6, 5e-7, 1e10),
        "ring": AllReduceFit(1e-5, 0.0, 1e10),
    }
    return Link("test-link", 1e10, max_devices, fits)


def engine(
    *,
    graph_capture: bool = True,
    launch_s: float = 5e-6,
    per_step_s: float = 0.0,
    per_sequence_s: float = 0.0,
    per_draft_step_s: float = 0.0,
    per_lookup_s: float = 0.0,
) -> EngineProfile:
    return EngineProfile(
        name="test",
        description="for tests",
        host_time_per_step_s=per_step_s,
        host_time_per_sequence_s=per_sequence_s,
        host_time_per_draft_step_s=per_draft_step_s,
        host_time_per_lookup_s=per_lookup_s,
        launch_time_s=launch_s,
        graph_capture=graph_capture,
        block_size_tokens=16,
        memory_fraction=0.9,
        reserve_bytes=0.0,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        chunked_prefill=True,
        sources={},
    )


def stack(
    blocks: Sequence[Block] = (DENSE,) * 4,
    *,
    name: str = "target",
    vocab_size: int = 32000,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    tp: int = 1,
) -> Stack:
    hidden_size = blocks[0].hidden_size
    return Stack(name, tuple(blocks), hidden_size, vocab_size, weight_dtype, kv_dtype, tp)


def model(
    *stacks: Stack, device: Hardware | None = None, serving: EngineProfile | None = None
) -> CostModel:
    named = {entry.name: entry for entry in stacks or (stack(),)}
    return CostModel(named, device or hardware(), serving or engine())


def rows(
    contexts: Quantity | Sequence[int],
    new_tokens: Quantity = 1,
    *,
    batch: Quantity = 1,
    logit_rows: Quantity | None = None,
    kind: Literal["decode", "prefill"] = "decode",
) -> Rows:
    """``batch`` equal sequences, or one for each entry of a list of contexts."""
    if isinstance(contexts, (list, tuple)):
        batch = len(contexts)
        kv = sum(contexts) + batch * new_tokens
        attended = sum(new_tokens * (c + (new_tokens + 1) / 2) for c in contexts)
    else:
        kv = batch * (contexts + new_tokens)
        attended = batch * new_tokens * (contexts + (new_tokens + 1) / 2)
    tokens = batch * new_tokens
    return Rows(kind, batch, tokens, kv, attended, tokens if logit_rows is None else logit_rows)


def work(
    *groups: Rows,
    first: int = 0,
    last: int = 4,
    phase: Phase = "decode",
    embeds: bool = True,
    name: str = "target",
) -> Pass:
    return Pass(name, first, last, phase, tuple(groups), embeds)


def roof_s(flop: float, num_bytes: float) -> float:
    """The bound no kernel of the test devices can beat."""
    return float(np.maximum(flop / PEAK, num_bytes / BANDWIDTH))
