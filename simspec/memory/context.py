"""The longest request a budget holds, and what one more sequence takes before its first token.

Where prompts are computed in chunks the step is the same for every length, and the longest request
is what the pool holds. Where a prompt is one step its activations grow with it while the pool
shrinks, so the longest request is where both meet: ``pool(activations(n)) = n``.
"""

from __future__ import annotations

from dataclasses import replace

from simspec.core.errors import ConfigError
from simspec.memory.capacity import MemoryBudget, budget_of
from simspec.models.counts import kv_bytes_per_token
from simspec.models.stack import Stack


def largest_context(budget: MemoryBudget, *, reserved_slots: int, chunked_prefill: bool) -> int:
    """Return the most tokens one sequence can have when a round starts; 0 where nothing fits.

    Parameters
    ----------
    budget : MemoryBudget
        At its own largest step.
    reserved_slots : int, tokens
        Slots a round sets aside for its drafts.
    chunked_prefill : bool
        Whether prompts are computed in chunks of ``max_num_batched_tokens``.
    """
    if chunked_prefill:
        return max(0, budget.longest_request_tokens - reserved_slots)
    asked = budget.inputs
    fits, above = 0, budget.longest_request_tokens + 1
    while above - fits > 1:
        length = (fits + above) // 2
        step = max(asked.max_num_batched_tokens, length)
        pool = budget_of(replace(asked, max_num_batched_tokens=step)).longest_request_tokens
        fits, above = (length, above) if pool - reserved_slots >= length else (fits, length)
    return fits


def fixed_kv_bytes_per_sequence(budget: MemoryBudget) -> float:
    """Return what one sequence takes of the pool whatever its length, on one rank, bytes.

    The windows of sliding layers, a block more each, where they are counted apart from the growth
    per token; and the buffers of the decoding method.
    """
    asked = budget.inputs
    fixed = asked.extra_kv_bytes_per_sequence
    if budget.window_bytes:
        for block in asked.target.blocks:
            if block.sliding_window is not None:
                kept = block.sliding_window + asked.engine.block_size_tokens
                fixed += kept * kv_bytes_per_token([block], asked.target.kv_dtype, asked.target.tp)
    return fixed


def check_kv_bytes_per_token(given: float, target: Stack) -> None:
    """Refuse a figure that contradicts the model.

    Parameters
    ----------
    given : float, bytes
        KV of one token on one rank, as somebody worked it out.
    target : Stack
        The model with its formats and degrees.

    Raises
    ------
    ConfigError
        It is more than a thousandth off; with the product that is right.
    """
    right = kv_bytes_per_token(target.blocks, target.kv_dtype, target.tp)
    if abs(given / right - 1.0) <= 1e-3:
        return
    layers = len(target.blocks)
    block = target.blocks[0]
    ranks = f" on each of {target.tp} ranks" if target.tp > 1 else ""
    if block.mla is not None:
        latent = block.mla.kv_lora_rank + block.mla.qk_rope_head_dim
        product = f"{layers} layers x {latent} values of the latent, held whole by every rank"
    else:
        product = (
            f"2 x {layers} layers x {block.num_kv_heads} KV heads x {block.head_dim} values{ranks}"
        )
    raise ConfigError(
        f"{given:,.0f} bytes per token contradict the model, which stores {right:,.0f} "
        f"({product}, {target.kv_dtype}); leave the figure out, or give another model or kv_dtype",
        field="kv_bytes_per_token",
    )
