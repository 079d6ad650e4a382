"""Multi-token prediction: the layers a model was trained with to look further ahead draft.

DeepSeek-AI, "DeepSeek-V3", arXiv 2412.19437, section 2.2, and the checkpoint's description
(README_WEIGHTS.md); GLM-4.5, MiMo and Qwen3-Next ship such layers too. One round with M modules
and K drafts, M <= K, costs

    M x [module(a + 1) + H(1)]                    drafts 1..M: read the tokens of the round before
    (K - M) x [module M (1) + H(1)]               drafts M + 1..K: the last module again
    F(0, L, K + 1) + H(K + 1)                     verify

* Module k norms the embedding of a token and the state of the module before it (of the target for
  k = 1), projects the two (2 d) to d and runs one transformer layer like the target's last, experts
  and latent attention included. Embedding and LM head are the target's.
* Every module has KV for every token of the text, so each reads what the target yielded in the
  round before: a + 1 rows, one with logits, charged to the round that yields them. Prompts pass all
  modules.
* Checkpoints ship fewer modules than engines draft tokens (DeepSeek-V3: one). vLLM, SGLang and
  TensorRT-LLM ("MTP Eagle") then feed the last module its own states, which is EAGLE's chain.
* A module of experts reads the distinct experts its rows hit: with a small batch a fraction of its
  weights, 11.5 B in DeepSeek-V3, all of which have to be in memory.
* Modules are stored in the target's format and sharded like its layers; the projection is whole on
  every rank.

Left out: a module KV that has gaps because drafting was off for a while (m = 0 for all).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import ConfigDict, Field

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.decoding._heads import (
    HeadRound,
    check_draft_tp,
    expected_head_round,
    head_format,
    level_rows,
    observed_head_round,
)
from simspec.decoding._tree import MAX_DEPTH, tree_outcomes, tree_statistics
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape
from simspec.models.counts import kv_bytes_per_token, weights_bytes


class Config(MethodConfig):
    """Fields of ``method: {name: mtp, ...}``; bare, DeepSeek-V3's one module and one draft."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "mtp"},
                {"name": "mtp", "num_modules": 2, "num_speculative_tokens": 3},
            ]
        }
    )

    name: Literal["mtp"] = "mtp"
    num_modules: int = Field(default=1, ge=1, le=MAX_DEPTH)
    """M: modules of the checkpoint (``num_nextn_predict_layers``) that are used."""
    num_speculative_tokens: int = Field(default=1, ge=1, le=MAX_DEPTH)
    """K: tokens drafted per round; beyond M the last module is used again."""
    draft_dtype: str | None = None
    """Format of the modules' weights; the target's when not given."""
    draft_tp: int | None = Field(default=None, ge=1, le=1024)
    """Tensor-parallel degree of the modules; the target's when not given."""

    def build(self, target: Stack) -> Mtp:
        """Bind to ``target``.

        Raises
        ------
        ConfigError
            There are more modules than drafts, or they cannot be sharded.
        """
        if self.num_modules > self.num_speculative_tokens:
            raise ConfigError(
                f"num_modules: {self.num_modules} modules draft at least as many tokens, and "
                f"num_speculative_tokens is {self.num_speculative_tokens}; use at most as many",
                field="num_modules",
            )
        last = target.blocks[-1]
        # Two norms more than a layer: one for the embedding, one for the state.
        layer = replace(last, num_norms=last.num_norms + 2, fused_size=2 * target.hidden_size)
        form = target.weight_dtype
        modules = replace(
            target,
            name="mtp",
            blocks=(layer,) * self.num_modules,
            weight_dtype=head_format(target, self.draft_dtype) if self.draft_dtype else form,
            tp=self.draft_tp or target.tp,
        )
        check_draft_tp(modules, target, self.draft_tp)
        return Mtp(target, modules, self.num_speculative_tokens)


@dataclass(frozen=True, slots=True)
class Mtp:
    """Multi-token prediction bound to a target; ``modules`` has one layer for each module."""

    target: Stack
    modules: Stack
    max_draft: int
    name: str = "mtp"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target and its modules."""
        return {"target": self.target, "mtp": self.modules}

    def footprint(self) -> Footprint:
        """Return the modules' weights and KV per rank, and K + 1 slots."""
        modules = self.modules
        return Footprint(
            extra_weights_bytes=weights_bytes(modules, modules.weight_dtype, modules.tp),
            extra_kv_bytes_per_token=kv_bytes_per_token(
                modules.blocks, modules.kv_dtype, modules.tp
            ),
            reserved_slots=self.max_draft + 1,
        )

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        return tree_outcomes(tape, None, self.max_draft, self.max_draft)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        return tree_statistics(acceptance, self.name, None, self.max_draft, self.max_draft)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round; plain decoding if nothing is drafted."""
        if any(drafted):
            rows = observed_head_round(context_lens, drafted, accepted, self._depth_sums())
            return [work for _, work in self._passes(rows, prefill)]
        decode = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        passes = [plain_pass(self.target, decode, prefill)]
        if prefill is not None:
            passes += [self._module_pass(i, "prefill", prefill) for i in self._each_module()]
        return passes

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation over independent sequences."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            return [WeightedPass(1.0, plain_pass(self.target, rows, None))]
        expected = expected_head_round(batch_size, context_len, statistics, self._depth_sums())
        return [WeightedPass(weight, work) for weight, work in self._passes(expected, None)]

    def _passes(self, rows: HeadRound, prefill: Rows | None) -> Iterator[tuple[Quantity, Pass]]:
        num_modules = len(self.modules.blocks)
        for depth in range(1, self.max_draft - num_modules + 1):
            row = level_rows(rows.drafting, depth, 1, depth)
            yield 1.0, self._module_pass(num_modules - 1, "draft", row)
        riding = () if prefill is None else (prefill,)
        seen = (rows.verification, *riding)
        yield 1.0, Pass("target", 0, len(self.target.blocks), "verify", seen, True)
        for module in self._each_module():
            for weight, yielded in rows.drafting.yielded:
                yield weight, self._module_pass(module, "draft", yielded, *riding)

    def _each_module(self) -> range:
        return range(len(self.modules.blocks))

    def _module_pass(self, module: int, phase: Literal["draft", "prefill"], *rows: Rows) -> Pass:
        return Pass("mtp", module, module + 1, phase, rows, True)

    def _depth_sums(self) -> list[int]:
        return [m * (m + 1) // 2 for m in range(self.max_draft + 1)]
