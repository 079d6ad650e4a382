"""Dual model: a smaller model with the same vocabulary drafts, the target verifies.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML
2023, arXiv 2211.17192; Chen et al., arXiv 2302.01318. One round drafts m tokens, 1 <= m <= K,
and costs

    m x [F_draft(0, L_draft, 1) + H_draft(1)]     draft, one after the other
    F(0, L, m + 1) + H(m + 1)                     verify
    F_draft(0, L_draft, 1) of the last draft      catch up, if all m were accepted

* The draft is a whole model: its own weights with embedding and head, its own data type, its own
  KV for every token of the text, prompt included, and its own tensor-parallel degree. Every draft
  step pays its whole LM head (a fifth of the weights of Llama-3.2-1B) and its own all-reduces.
* ``draft_tp`` defaults to the target's, like vLLM's ``draft_tensor_parallel_size``. Below the
  target's only some ranks hold the draft; the memory is that of a rank which does, because the
  pools of all ranks are as large as the smallest. Sending the draft's tokens to the other ranks
  is not charged.
* The draft has not read its own last token. If all m were accepted, that token stays in the text
  and the draft has to catch up: ``catch_up: pass`` (default) is one more pass of the draft over
  those sequences, without head, after verification. ``first_step`` merges the missing token into
  the first draft step of the next round, which then reads two tokens of such a sequence, as Hugging
  Face's assisted generation does: a row of a pass that is bound by reading weights, and no pass.
  It is charged to the round that leaves the gap.
* With ``confidence_threshold`` drafting stops after the first token whose confidence is below it;
  that token is verified like the others (Hugging Face: ``assistant_confidence_threshold``).
* A prompt chunk passes the target with verification and then the draft.

The two vocabularies must be one. Engines differ in how much padding they forgive: vLLM none,
llama.cpp 128 entries (``common/speculative.cpp``), which is what is accepted here.

Left out: a draft KV with gaps because drafting was off for a while (m = 0 for all).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Stack
from simspec.decoding._base import Footprint, MethodConfig
from simspec.decoding._chain import MAX_DRAFT
from simspec.decoding._drafter import StackDrafter
from simspec.models.arch import Architecture
from simspec.models.counts import check_tensor_parallel, kv_bytes_per_token, weights_bytes
from simspec.models.dtypes import dtype, kv_dtype
from simspec.models.hf_config import load_model

MAX_VOCABULARY_DIFFERENCE = 128
"""Padding of one tokenizer's vocabulary in different checkpoints (llama.cpp's limit)."""


class Config(MethodConfig):
    """Fields of ``method: {name: dual_model, ...}``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "dual_model", "draft_model": "llama-2-7b"},
                {
                    "name": "dual_model",
                    "draft_model": "llama-2-7b",
                    "draft_dtype": "int4_g128",
                    "num_speculative_tokens": 3,
                    "confidence_threshold": 0.4,
                    "catch_up": "first_step",
                },
            ]
        }
    )

    name: Literal["dual_model"] = "dual_model"
    draft_model: str = Field(min_length=1)
    """Catalog name, ``config.json`` or a directory that holds one."""
    draft_dtype: str | None = None
    """Weight data type of the draft; the target's when not given."""
    draft_kv_dtype: str | None = None
    """KV-cache data type of the draft; the target's when not given."""
    draft_tp: int | None = Field(default=None, ge=1, le=1024)
    """Tensor-parallel degree of the draft; the target's when not given."""
    num_speculative_tokens: int = Field(default=5, ge=1, le=MAX_DRAFT)
    """K: most tokens drafted per round; 5 as in the examples of vLLM's documentation."""
    confidence_threshold: float = Field(default=0.0, ge=0, le=1)
    """tau: drafting stops after a token below it; 0 always drafts K."""
    catch_up: Literal["pass", "first_step"] = "pass"
    """How the draft reads its last token when all were accepted."""

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return the same method with the draft model's file looked up beside the scenario."""
        return self.model_copy(update={"draft_model": resolve(self.draft_model)})

    def build(self, target: Stack) -> StackDrafter:
        """Bind to ``target``.

        Raises
        ------
        ConfigError
            The draft is unknown, a draft head, speaks another vocabulary, or cannot run at
            ``draft_tp``.
        """
        try:
            draft = load_model(self.draft_model)
        except ConfigError as error:
            raise ConfigError(f"draft_model: {error}", field="draft_model") from error
        self._check_pair(draft, target)
        drafter = self._drafter(draft, target)
        return StackDrafter(
            name=self.name,
            target=target,
            drafter=drafter,
            extra=Footprint(
                extra_weights_bytes=weights_bytes(draft, drafter.weight_dtype, drafter.tp),
                extra_kv_bytes_per_token=kv_bytes_per_token(
                    draft.blocks, drafter.kv_dtype, drafter.tp
                ),
                reserved_slots=self.num_speculative_tokens + 1,
            ),
            max_draft=self.num_speculative_tokens,
            threshold=self.confidence_threshold,
            catch_up=self.catch_up,
            reads_prompt=True,
        )

    def _check_pair(self, draft: Architecture, target: Stack) -> None:
        if draft.draft_head is not None:
            raise ConfigError(
                f"draft_model: {draft.name} is a draft head and cannot generate on its own; "
                "give a language model",
                field="draft_model",
            )
        if abs(draft.vocab_size - target.vocab_size) > MAX_VOCABULARY_DIFFERENCE:
            raise ConfigError(
                f"draft_model: {draft.name} has a vocabulary of {draft.vocab_size:,} tokens and "
                f"the target one of {target.vocab_size:,}; a draft's tokens must be the target's, "
                "give a model of the same family",
                field="draft_model",
            )

    def _drafter(self, draft: Architecture, target: Stack) -> Stack:
        tp = self.draft_tp or target.tp
        if tp > target.tp:
            raise ConfigError(
                f"draft_tp: {tp} is more than the target's tp {target.tp}; the draft runs on the "
                "target's ranks or some of them",
                field="draft_tp",
            )
        try:
            check_tensor_parallel(draft.blocks, tp)
        except ConfigError as error:
            text = str(error).removeprefix("tp: ")
            raise ConfigError(f"draft_tp: {draft.name}: {text}", field="draft_tp") from error
        weights = _known(dtype, "draft_dtype", self.draft_dtype or target.weight_dtype)
        cache = _known(kv_dtype, "draft_kv_dtype", self.draft_kv_dtype or target.kv_dtype)
        return Stack(
            name="draft",
            blocks=draft.blocks,
            hidden_size=draft.hidden_size,
            vocab_size=draft.vocab_size,
            weight_dtype=weights,
            kv_dtype=cache,
            tp=tp,
            attention_dp=target.attention_dp,
            activation_dtype=weights if dtype(weights).bits_per_weight >= 16.0 else "bf16",
        )


def _known(find: Callable[[str], object], field: str, name: str) -> str:
    try:
        find(name)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}", field=field) from error
    return name
