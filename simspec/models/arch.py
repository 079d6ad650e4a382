"""The shape of a transformer, layer by layer.

Counting parameters and bytes is ``simspec.models.counts``; reading ``config.json`` is
``simspec.models.hf_config``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture-of-experts feed-forward."""

    num_experts: int
    experts_per_token: int
    expert_intermediate_size: int
    num_shared_experts: int = 0
    shared_intermediate_size: int = 0
    """Of one shared expert."""
    router_bias: bool = False
    """One bias per expert in the router (gpt-oss) or its score correction (DeepSeek-V3)."""
    shared_expert_gate: bool = False
    """A d-to-1 gate on the shared experts (Qwen2-MoE)."""


@dataclass(frozen=True, slots=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2/V3)."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class Block:
    """One transformer layer. ``intermediate_size = 0`` and no MoE: attention only."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    gated_ffn: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    num_norms: int = 2
    moe: MoE | None = None
    mla: MLA | None = None
    sliding_window: int | None = None
    attention_sinks: bool = False
    is_parallel: bool = False
    """Whether attention and FFN read the same input and are summed once (GPT-J, Falcon)."""
    qk_norm_weights: Literal["per_head", "per_layer", "none"] = "per_head"
    """A weight per head dimension (Qwen3), per channel (MiniMax-M2), or none (Llama 4)."""
    qkv_input_size: int | None = None
    """Input of the q, k and v projections where it is not ``hidden_size`` (EAGLE-3: 2 d)."""
    fused_size: int | None = None
    """Width that a projection before the layer brings to ``hidden_size``, whole on every rank
    (EAGLE and MTP: the 2 d of embedding and state)."""


@dataclass(frozen=True, slots=True)
class DraftHead:
    """What makes a one-layer checkpoint a draft head instead of a language model (EAGLE-3)."""

    vocab_size: int
    """Tokens its own LM head can propose."""
    fused_states: int
    """Hidden states of the target that a d x (n d) projection fuses into its input."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model."""

    name: str
    blocks: tuple[Block, ...]
    """One per layer, so that mixed layers (dense first, sliding every second) are explicit."""
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    max_context_len: int
    source: str
    checkpoint_dtype: str | None = None
    """Format the checkpoint is published in (``simspec.models.dtypes``), if its config says."""
    draft_head: DraftHead | None = None
    """Set for draft heads, which cannot generate on their own."""

    @property
    def num_layers(self) -> int:
        """L, the number of transformer layers."""
        return len(self.blocks)
