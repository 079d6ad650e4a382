"""Draft & Verify: the target with some attention and MLP sublayers left out drafts.

Zhang et al., "Draft & Verify: Lossless Large Language Model Acceleration via Self-Speculative
Decoding", ACL 2024, arXiv 2309.08168, and its code. One round drafts m tokens, 1 <= m <= K, and
costs

    m x [F_kept(0, L, 1) + H(1)]                  draft: the kept sublayers and the whole head
    F(0, L, m + 1) + H(m + 1)                     verify, all sublayers

* With A_a and A_m the time of all attention and all MLP sublayers in a plain step of T, a draft
  step costs about (kept_a A_a + kept_m A_m) / T of it. For LLaMA-2-13B, of whose 40 layers 24
  attentions and 10 MLPs are left out: (0.40 x 39.7 + 0.75 x 14.3) / 56.3 = 0.473.
* There is nothing beside the target: the kept sublayers are its own weights, and their drafts'
  KV goes into the target's cache, where verification overwrites it in every layer. So no memory
  is added and nothing has to catch up, not even the last draft of a fully accepted round.
* Drafting stops after the first token whose confidence is below gamma; that token is verified
  like the others. The published code moves gamma during the run towards a wanted acceptance
  (0.6 at first); here it is fixed.
* A prompt passes the whole target, whose cache the kept sublayers read.

Which sublayers can go without losing acceptance is found by Bayesian optimisation for each model
and is not predicted here: a list names layers (from 0), a number spreads that many evenly, which
is the same for a model of equal layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.decoding._base import Footprint, MethodConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding._drafter import StackDrafter
from simspec.models.arch import Block

Layer = Annotated[int, Field(ge=0, le=100_000)]
Skipped = Layer | tuple[Layer, ...]


class Config(MethodConfig):
    """Fields of ``method: {name: draft_and_verify, ...}``; what to skip has no default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "draft_and_verify", "skipped_attention": 19, "skipped_mlp": 8},
                {
                    "name": "draft_and_verify",
                    "skipped_attention": [3, 5, 6, 8],
                    "skipped_mlp": [5, 9],
                    "num_speculative_tokens": 4,
                    "confidence_threshold": 0,
                },
            ]
        }
    )

    name: Literal["draft_and_verify"] = "draft_and_verify"
    skipped_attention: Skipped
    """Attention sublayers that drafting leaves out: how many, or which layers (from 0)."""
    skipped_mlp: Skipped
    """MLP sublayers that drafting leaves out: how many, or which layers (from 0)."""
    num_speculative_tokens: int = Field(default=12, ge=1, le=MAX_DRAFT)
    """K: most tokens drafted per round; 12 in the paper."""
    confidence_threshold: float = Field(default=0.6, ge=0, le=1)
    """gamma: drafting stops after a token below it; 0 always drafts K."""

    def build(self, target: Stack) -> StackDrafter:
        """Bind to ``target``.

        Raises
        ------
        ConfigError
            A layer that the target does not have, or nothing left to draft with.
        """
        num_layers = len(target.blocks)
        without_attention = _layers("skipped_attention", self.skipped_attention, num_layers)
        without_mlp = _layers("skipped_mlp", self.skipped_mlp, num_layers)
        blocks = tuple(_kept(target.blocks, without_attention, without_mlp))
        if not any(block.num_heads for block in blocks):
            raise ConfigError(
                f"skipped_attention: all {num_layers} attention sublayers are left out, so drafts "
                f"would not see the text; leave out {num_layers - 1} at most",
                field="skipped_attention",
            )
        return StackDrafter(
            name=self.name,
            target=target,
            drafter=replace(target, name="kept", blocks=blocks),
            extra=Footprint(0.0, 0.0, self.num_speculative_tokens + 1),
            max_draft=self.num_speculative_tokens,
            threshold=self.confidence_threshold,
            catch_up="none",
            reads_prompt=False,
        )


def _layers(field: str, skipped: Skipped, num_layers: int) -> frozenset[int]:
    if isinstance(skipped, int):
        if skipped > num_layers:
            raise ConfigError(
                f"{field}: {skipped} is more than the target's {num_layers} layers", field=field
            )
        return frozenset(i * num_layers // skipped for i in range(skipped))
    for layer in skipped:
        if layer >= num_layers:
            raise ConfigError(
                f"{field}: the target has no layer {layer}; layers are 0 to {num_layers - 1}",
                field=field,
            )
        if skipped.count(layer) > 1:
            raise ConfigError(f"{field}: layer {layer} is named twice", field=field)
    return frozenset(skipped)


def _kept(
    blocks: tuple[Block, ...], without_attention: frozenset[int], without_mlp: frozenset[int]
) -> Iterator[Block]:
    """Yield what is left of each layer; half of its norms go with each sublayer."""
    for layer, block in enumerate(blocks):
        kept, norms = block, block.num_norms
        if layer in without_attention:
            kept = replace(kept, num_heads=0, num_kv_heads=0, mla=None, qk_norm=False)
            norms -= block.num_norms // 2
        if layer in without_mlp:
            kept = replace(kept, intermediate_size=0, moe=None)
            norms -= block.num_norms // 2
        if layer not in without_attention or layer not in without_mlp:
            yield replace(kept, num_norms=norms)
