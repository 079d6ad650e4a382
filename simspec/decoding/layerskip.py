"""LayerSkip: the target's first layers draft with the target's own head, the others verify.

Elhoushi et al., "LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding", ACL
2024, arXiv 2404.16710. One round drafts m tokens, 1 <= m <= K, and costs, with ``share_kv: true``
(the authors' code: one KV cache, and the exit states of the drafts are kept),

    m x [F(0, E, 1) + H(1)]                       draft
    F(0, E, 1) of the last draft token            closing, runs into
    F(E, L, m + 1) + H(m + 1)                     verify, from the exit states

which without head and overheads is (m E/L + (L - E)/L) target steps, the paper's formula, plus
E/L for the closing pass, which it leaves out and the code runs with verification. With
``share_kv: false`` (Hugging Face's ``EarlyExitCandidateGenerator``: the shallow layers draft with a
cache of their own)

    m x [F(0, E, 1) + H(1)]                       draft
    F(0, L, m + 1) + H(m + 1)                     verify, all layers again

which is (m E/L + 1) target steps.

* The LM head is the target's, paid in full at every draft step. Measured draft steps cost 0.02 to
  0.03 of a full step more than E/L (the paper's TOPv2 times on GPU and CPU).
* Shared: nothing is computed twice and nothing is stored beside the target; all layers see m + 1
  tokens. The states kept for verification, (m + 1) d values, are not counted as memory.
* Not shared: KV of the first E layers once more for every token of the text. Prompts pass those
  layers twice. When all m drafts were accepted, that cache misses the last one; the next round's
  first draft step reads it as a second token, a row that is charged to the round that leaves it.
* With ``confidence_threshold`` drafting stops after the first token whose confidence is below it;
  that token is verified like the others. The published method has none: 0.
* A batch drafts in lock-step: step j runs for the sequences with m >= j.

The defaults are those of the authors' command line for a 7B of 32 layers (E = 8, six drafts).
The model has to be trained for it, and what it then accepts is given with the acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import (
    Footprint,
    Method,
    MethodConfig,
)
from simspec.decoding._chain import (
    MAX_DRAFT,
    ChainRound,
    WeightedRows,
    without_logits,
)
from simspec.decoding._chain_method import ChainDrafter
from simspec.decoding._drafter import StackDrafter
from simspec.models.counts import kv_bytes_per_token


class Config(MethodConfig):
    """Fields of ``method: {name: layerskip, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "layerskip"},
                {"name": "layerskip", "exit_layer": 4, "share_kv": False},
                {"name": "layerskip", "num_speculative_tokens": 4, "confidence_threshold": 0.5},
            ]
        }
    )

    name: Literal["layerskip"] = "layerskip"
    exit_layer: int = Field(default=8, ge=1)
    """E: layers 1..E draft."""
    num_speculative_tokens: int = Field(default=6, ge=1, le=MAX_DRAFT)
    """K: most tokens drafted per round."""
    confidence_threshold: float = Field(default=0.0, ge=0, le=1)
    """tau: drafting stops after a token below it; 0 always drafts K."""
    share_kv: bool = True
    """Whether drafts leave KV and exit states to verification; Hugging Face's do not."""

    @property
    def acceptance_exit_layer(self) -> int:
        """E: deeper exits are accepted more often."""
        return self.exit_layer

    def build(self, target: Stack) -> Method:
        """Bind to ``target``; E must leave at least one layer to verify with."""
        num_layers = len(target.blocks)
        if self.exit_layer >= num_layers:
            raise ConfigError(
                f"exit_layer: {self.exit_layer} leaves no layer to verify with, the target has "
                f"{num_layers}; the deepest exit is {num_layers - 1}",
                field="exit_layer",
            )
        if self.share_kv:
            return LayerSkip(
                target=target,
                exit_layer=self.exit_layer,
                max_draft=self.num_speculative_tokens,
                threshold=self.confidence_threshold,
            )
        shallow = replace(target, name="shallow", blocks=target.blocks[: self.exit_layer])
        return StackDrafter(
            name=self.name,
            target=target,
            drafter=shallow,
            extra=Footprint(
                extra_weights_bytes=0.0,
                extra_kv_bytes_per_token=kv_bytes_per_token(
                    shallow.blocks, shallow.kv_dtype, shallow.tp
                ),
                reserved_slots=self.num_speculative_tokens + 1,
            ),
            max_draft=self.num_speculative_tokens,
            threshold=self.confidence_threshold,
            catch_up="first_step",
            reads_prompt=True,
        )


@dataclass(frozen=True, slots=True)
class LayerSkip(ChainDrafter):
    """LayerSkip with one KV cache, bound to a target."""

    target: Stack
    exit_layer: int
    max_draft: int
    threshold: float
    name: str = "layerskip"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target alone: its layers and its head draft."""
        return {"target": self.target}

    def footprint(self) -> Footprint:
        """Return nothing extra, and K + 1 slots."""
        return Footprint(0.0, 0.0, self.max_draft + 1)

    def chain_passes(
        self, chain: ChainRound, gaps: list[WeightedRows], prefill: Rows | None
    ) -> Iterator[tuple[Quantity, Pass]]:
        """Yield the passes of a round that drafts; its KV has no gaps."""
        exit_layer, num_layers = self.exit_layer, len(self.target.blocks)
        for alternatives in chain.draft_steps:
            for weight, rows in alternatives:
                yield weight, Pass("target", 0, exit_layer, "draft", (rows,), True)
        riding = () if prefill is None else (prefill,)
        closing = tuple(without_logits(rows) for rows in (chain.closing, *riding))
        yield 1.0, Pass("target", 0, exit_layer, "verify", closing, True)
        for weight, rows in chain.verification:
            yield weight, Pass("target", exit_layer, num_layers, "verify", (rows, *riding))
