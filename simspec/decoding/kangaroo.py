"""Kangaroo: the target's first layers draft, an adapter exits, the other layers verify.

Liu et al., "Kangaroo: Lossless Self-Speculative Decoding via Double Early Exiting", NeurIPS 2024,
arXiv 2404.18911, and its code (github.com/Equationliu/Kangaroo, ``inference_kangaroo.py``).
One round drafts m tokens, 1 <= m <= K, and costs

    m x [F(0, E, 1) + adapter(1) + H(1)]          draft
    F(0, E, 1) of the last draft token            closing, runs into
    F(E, L, m + 1) + H(m + 1)                     verify

* Every draft step pays the adapter and the whole LM head; drafting stops after the first token
  whose confidence is below tau, and that token is verified like the others.
* The closing pass carries the last draft through the shallow layers. Their m + 1 states are kept,
  so verification runs the deep layers only, and their KV is the target's own. No decision lies
  between the two passes: both have the phase ``verify``.
* The adapter (attention and two norms, no FFN: 4 d^2 weights, 67 M for a 7B model) has its own
  KV, in which the last draft of a fully accepted round is missing. The published code makes up
  for it in the first adapter call of the next round: one more row of a pass that is bound by
  reading weights, which is not charged here.
* A batch drafts in lock-step: step j runs for the sequences with m >= j.
* A prompt chunk in the same engine step passes every layer once: the shallow ones with the
  closing pass, the deep ones with verification, and then the adapter, which needs its KV too.

Left out: an adapter KV that has gaps because drafting was off for a while (m = 0 for all).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import Footprint, MethodConfig
from simspec.decoding._chain import (
    MAX_DRAFT,
    ChainRound,
    WeightedRows,
    without_logits,
)
from simspec.decoding._chain_method import ChainDrafter
from simspec.models.arch import Block
from simspec.models.counts import kv_bytes_per_token, weights_bytes


class Config(MethodConfig):
    """Fields of ``method: {name: kangaroo, ...}``; defaults of the published code for a 7B."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "kangaroo"}]})

    name: Literal["kangaroo"] = "kangaroo"
    exit_layer: int = Field(default=2, ge=1)
    """E: layers 1..E draft."""
    num_speculative_tokens: int = Field(default=6, ge=1, le=MAX_DRAFT)
    """K: most tokens drafted per round."""
    confidence_threshold: float = Field(default=0.6, ge=0, le=1)
    """tau: drafting stops after a token below it; 0 always drafts K."""

    @property
    def acceptance_exit_layer(self) -> int:
        """E: deeper exits are accepted more often."""
        return self.exit_layer

    def build(self, target: Stack) -> Kangaroo:
        """Bind to ``target``; E must leave at least one layer to verify with."""
        num_layers = len(target.blocks)
        if self.exit_layer >= num_layers:
            raise ConfigError(
                f"exit_layer: {self.exit_layer} leaves no layer to verify with, the target has "
                f"{num_layers}; the deepest exit is {num_layers - 1}",
                field="exit_layer",
            )
        adapter = replace(target, name="adapter", blocks=(adapter_block(target),))
        return Kangaroo(
            target=target,
            adapter=adapter,
            exit_layer=self.exit_layer,
            max_draft=self.num_speculative_tokens,
            threshold=self.confidence_threshold,
        )


def adapter_block(target: Stack) -> Block:
    """Return the adapter: multi-head attention as wide as the model, two norms, no FFN."""
    width = target.hidden_size
    # The target's heads, as in the published code; fewer where they do not divide the width.
    num_heads = gcd(width, max(block.num_heads for block in target.blocks)) or 1
    return Block(
        hidden_size=width,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=width // num_heads,
        intermediate_size=0,
    )


@dataclass(frozen=True, slots=True)
class Kangaroo(ChainDrafter):
    """Kangaroo bound to a target; the adapter's head is the target's."""

    target: Stack
    adapter: Stack
    exit_layer: int
    max_draft: int
    threshold: float
    name: str = "kangaroo"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target and the adapter."""
        return {"target": self.target, "adapter": self.adapter}

    def footprint(self) -> Footprint:
        """Return the adapter's weights and KV per rank, and K + 1 slots."""
        adapter = self.adapter
        return Footprint(
            extra_weights_bytes=weights_bytes(adapter, adapter.weight_dtype, adapter.tp),
            extra_kv_bytes_per_token=kv_bytes_per_token(
                adapter.blocks, adapter.kv_dtype, adapter.tp
            ),
            reserved_slots=self.max_draft + 1,
        )

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield the passes of a round that drafts; gaps in the adapter's KV cost nothing."""
        exit_layer, num_layers = self.exit_layer, len(self.target.blocks)
        for alternatives in chain.draft_steps:
            for weight, rows in alternatives:
                yield weight, Pass("target", 0, exit_layer, "draft", (without_logits(rows),), True)
                yield weight, Pass("adapter", 0, 1, "draft", (rows,))
        riding = () if prefill is None else (prefill,)
        closing = tuple(without_logits(rows) for rows in (chain.closing, *riding))
        yield 1.0, Pass("target", 0, exit_layer, "verify", closing, True)
        for weight, rows in chain.verification:
            yield weight, Pass("target", exit_layer, num_layers, "verify", (rows, *riding))
        if prefill is not None:
            yield from ((1.0, work) for work in self.prompt_passes(prefill))

    def prompt_passes(self, prefill: Rows) -> list[Pass]:
        """Return the adapter's pass, which fills its KV."""
        return [Pass("adapter", 0, 1, "prefill", (without_logits(prefill),))]
