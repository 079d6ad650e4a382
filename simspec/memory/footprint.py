"""Bytes one rank needs besides its weights: the activations of its largest step.

Engines size their KV pool after running the largest step they may ever be given, so the peak
of that step is reserved for good. Two moments compete for the peak:

- inside a layer, ``T b_a (3 d + w)``: T tokens, residual, normalised input and output of width
  d, and the widest intermediates ``w`` that live at once: ``3 f / tp`` for a gated FFN (gate,
  up, product), ``k (max(2 f_e / tp, d) + f_e / tp)`` for k experts per token, or q, k, v and the
  attention output. With experts divided over ``ep`` ranks a rank works on ``k dp / ep`` routes
  for each token of its own group, and with ``dp`` groups it holds the tokens of all of them;
- at the sampler, ``2 T b_a d + R V 28``, and beside it the experts' workspace, the same
  ``T b_a k (...)`` as above, which engines allocate once and keep: R rows of logits over the
  whole vocabulary V, which every rank gathers. 28 bytes a logit are the 16-bit logits (2), their
  fp32 copy (4), probabilities (4), sorted values (4), sort indices (8), running sum (4) and masks
  (2) of a top-k/top-p sampler on PyTorch.

Checked against start-up logs (``docs/theory/memory.md``): 1.69 of 1.97 GiB for a 7B model at
16,384 tokens (H100), 2.06 of 2.07 GiB for 8B at 20,000 (RTX 3090), 1.04 of 1.04 GiB for a
152,064-token vocabulary at 256 rows (RTX 4080); of mixtures at 8,192 tokens and 512 rows (H100,
vLLM 0.19.0) 2.43 of 2.68 GiB for Qwen3-30B-A3B, 1.21 of 1.21 for Mixtral at tp 2. Left
out: allocator fragmentation, other workspaces, encoders of multimodal models.
"""

from __future__ import annotations

from collections.abc import Sequence

from simspec.models.arch import Block
from simspec.models.counts import kv_heads_per_rank
from simspec.models.dtypes import bytes_per_value

_BYTES_PER_LOGIT = 28.0


def layer_peak_bytes(
    block: Block,
    num_tokens: int,
    *,
    activation_dtype: str = "bf16",
    tp: int = 1,
    ep: int = 1,
    attention_dp: int = 1,
) -> float:
    """Return the activation peak inside one layer on one rank.

    Parameters
    ----------
    block : Block
        The layer.
    num_tokens : int, tokens
        T, tokens of the step.
    activation_dtype : str
        Format between the layers.
    tp, ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`.
    """
    d = block.hidden_size
    width = max(_ffn_width(block, tp, ep, attention_dp), _attention_width(block, tp))
    return num_tokens * bytes_per_value(activation_dtype) * (3 * d + width)


def sampler_peak_bytes(
    hidden_size: int,
    vocab_size: int,
    num_tokens: int,
    num_logit_rows: int,
    *,
    activation_dtype: str = "bf16",
) -> float:
    """Return the peak while logits are sampled, per rank (each gathers all logits).

    Parameters
    ----------
    hidden_size, vocab_size : int
        d and V.
    num_tokens : int, tokens
        T, tokens of the step, whose hidden states are still alive.
    num_logit_rows : int
        R, rows of logits.
    activation_dtype : str
        Format of the hidden states.
    """
    states = 2 * num_tokens * bytes_per_value(activation_dtype) * hidden_size
    return states + num_logit_rows * vocab_size * _BYTES_PER_LOGIT


def activation_bytes(
    blocks: Sequence[Block],
    hidden_size: int,
    vocab_size: int,
    num_tokens: int,
    num_logit_rows: int,
    *,
    activation_dtype: str = "bf16",
    tp: int = 1,
    ep: int = 1,
    attention_dp: int = 1,
) -> float:
    """Return the activation reserve of one rank: the larger of the two peaks.

    Parameters
    ----------
    blocks : sequence of Block
        The layers.
    hidden_size, vocab_size : int
        d and V.
    num_tokens : int, tokens
        T, the most tokens one step may process.
    num_logit_rows : int
        R, the most rows that are sampled in one step; never more than ``num_tokens``.
    activation_dtype : str
        Format between the layers.
    tp, ep, attention_dp : int
        As of :class:`simspec.models.stack.Stack`.
    """
    inside = max(
        layer_peak_bytes(
            block,
            num_tokens,
            activation_dtype=activation_dtype,
            tp=tp,
            ep=ep,
            attention_dp=attention_dp,
        )
        for block in set(blocks)
    )
    rows = min(num_logit_rows, num_tokens)
    sampler = sampler_peak_bytes(
        hidden_size, vocab_size, num_tokens, rows, activation_dtype=activation_dtype
    )
    kept = max(_routed_width(block, tp, ep, attention_dp) for block in set(blocks))
    return max(inside, sampler + num_tokens * bytes_per_value(activation_dtype) * kept)


def _ffn_width(block: Block, tp: int, ep: int, attention_dp: int) -> float:
    columns = 3 if block.gated_ffn else 2
    width = columns * block.intermediate_size / tp
    moe = block.moe
    if moe is None:
        return width
    # With attention data parallelism a rank sees the tokens of all groups, in and out.
    gathered = 2 * attention_dp * block.hidden_size if attention_dp > 1 else 0
    shared = columns * moe.num_shared_experts * moe.shared_intermediate_size / tp
    return width + _routed_width(block, tp, ep, attention_dp) + gathered + shared


def _routed_width(block: Block, tp: int, ep: int, attention_dp: int) -> float:
    """Return the values that the experts' products of one token hold on a rank."""
    moe = block.moe
    if moe is None:
        return 0.0
    expert = moe.expert_intermediate_size * ep / (tp * attention_dp)
    columns = 2 if block.gated_ffn else 1
    routes = moe.experts_per_token * attention_dp / ep
    return routes * (max(columns * expert, block.hidden_size) + expert)


def _attention_width(block: Block, tp: int) -> float:
    heads = block.num_heads // tp
    if block.mla is not None:
        mla = block.mla
        q_and_k = 2 * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        return heads * (q_and_k + 2 * mla.v_head_dim)
    return (2 * heads + 2 * kv_heads_per_rank(block, tp)) * block.head_dim
