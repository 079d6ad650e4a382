"""Windowed self-speculation: the whole target drafts, attending to a window of fixed size.

Chen et al., "MagicDec: Breaking the Latency-Throughput Tradeoff for Long Context Generation with
Speculative Decoding", ICLR 2025, arXiv 2408.11049, self-speculation with a StreamingLLM cache
(Xiao et al., arXiv 2309.17453: the first tokens as attention sinks and the most recent ones).
With W = sink_tokens + window_tokens one round drafts m tokens, 1 <= m <= K, and costs

    m x [F_W(0, L, 1) + H(1)]                     draft: all layers, at most W tokens of KV
    F(0, L, m + 1) + H(m + 1)                     verify, all KV

* A draft step reads all weights but only W tokens of KV for each sequence: it is cheaper than a
  plain step only where reading the KV dominates, that is at long contexts and large batches, and
  there the gain *grows* with the batch.
* The drafter's KV is a cache of its own, because the drafts' states are those of the window: W
  tokens and the K + 1 of a round for every sequence the engine may run (``max_num_seqs``), set
  aside for good and independent of the context. Weights, embedding and head are the target's.
* Prompts pass the target once; the window takes its first and last tokens from there, a copy that
  is not charged.
* When all m drafts were accepted the window misses the last one; the next round's first draft
  step reads it as a second token, a row that is charged to the round that leaves the gap.
* With ``confidence_threshold`` drafting stops after the first token whose confidence is below it;
  that token is verified like the others. The published method has none: 0.

Layers that slide by themselves keep their own window where it is the smaller one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import ConfigDict, Field

from simspec.cost.work import Stack
from simspec.decoding._base import Footprint, MethodConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding._drafter import StackDrafter
from simspec.models.arch import Block
from simspec.models.counts import kv_bytes


class Config(MethodConfig):
    """Fields of ``method: {name: windowed, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "windowed"},
                {"name": "windowed", "window_tokens": 252, "num_speculative_tokens": 2},
            ]
        }
    )

    name: Literal["windowed"] = "windowed"
    window_tokens: int = Field(default=508, ge=1, le=1_000_000)
    """Most recent tokens a draft step attends to; with the sinks MagicDec's budget of 512."""
    sink_tokens: int = Field(default=4, ge=0, le=1_000_000)
    """First tokens of the text it attends to besides; 4 in StreamingLLM."""
    num_speculative_tokens: int = Field(default=3, ge=1, le=MAX_DRAFT)
    """K: most tokens drafted per round."""
    confidence_threshold: float = Field(default=0.0, ge=0, le=1)
    """tau: drafting stops after a token below it; 0 always drafts K."""

    def build(self, target: Stack) -> StackDrafter:
        """Bind to ``target``."""
        budget = self.sink_tokens + self.window_tokens
        blocks = tuple(_behind_window(block, budget) for block in target.blocks)
        slots = self.num_speculative_tokens + 1
        return StackDrafter(
            name=self.name,
            target=target,
            drafter=replace(target, name="window", blocks=blocks),
            extra=Footprint(
                extra_weights_bytes=0.0,
                extra_kv_bytes_per_token=0.0,
                reserved_slots=slots,
                extra_kv_bytes_per_sequence=kv_bytes(
                    target.blocks, target.kv_dtype, budget + slots, target.tp
                ),
            ),
            max_draft=self.num_speculative_tokens,
            threshold=self.confidence_threshold,
            catch_up="first_step",
            reads_prompt=False,
        )


def _behind_window(block: Block, budget: int) -> Block:
    return replace(block, sliding_window=min(block.sliding_window or budget, budget))
