"""EAGLE: one layer drafts from the target's states; chains, the static tree, dynamic trees.

Li et al., "EAGLE", ICML 2024, arXiv 2401.15077; "EAGLE-2", arXiv 2406.16858; "EAGLE-3", arXiv
2503.01840; the code (github.com/SafeAILab/EAGLE) and how vLLM and SGLang run it. One round
drafts a tree of N nodes in D levels and costs

    1 x [head(a + 1) + H(1)]                      level 1: reads the tokens of the round before
    (D - 1) x [head(k) + H(k)]                    levels 2..D: reads the k best nodes of a level
    F(0, L, N + 1) + H(N + 1)                     verify, root included

* The head joins embedding and state (2 d wide) into one transformer layer. EAGLE-1 and 2 project
  them to d, [2 d x d], and share the target's LM head. EAGLE-3 projects three states of the
  target to d where a row comes from the target (level 1), feeds its attention with 2 d, and has
  an LM head of its own, often over fewer tokens (``draft_vocab_size``).
* The first pass of a round makes up for the tokens the target yielded in the round before: a + 1
  rows, one of them with logits. It is charged to the round that yields them and is a draft step
  like the others, so a round has D of them. The head has KV for every token of the text, one layer
  beside the target's L, and reads every prompt.
* EAGLE-2's tree is built anew in each round: the k most probable nodes of a level get k children
  each, the N most probable nodes of all are verified. ``tree_ranks`` gives the hit rates and so the
  mean tree; without ranks an acceptance is the rate at which the text is in the tree.
* Version 1 drafts the published static tree of 25 nodes, whose levels read the nodes that have
  children, or with ``num_speculative_tokens`` a chain, which is what vLLM runs. ``top_k: 1`` is a
  chain of the versions 2 and 3.
* The projections are whole on every rank and each level is one layer with its all-reduces and its
  gather of logits, so drafting shrinks less with tensor parallelism than the target does.

Left out: nodes of a dynamic tree lie deeper where the drafter is sure (their depths are taken as
spread evenly over the levels, which moves the query-key pairs by less than D per node); a head KV
that has gaps because drafting was off for a while (m = 0 for all).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.decoding._eagle_head import (
    eagle3_architecture,
    eagle_layer,
    head_vocabulary,
    states_fusion,
)
from simspec.decoding._heads import (
    HeadRound,
    check_draft_tp,
    expected_head_round,
    head_format,
    level_rows,
    observed_head_round,
)
from simspec.decoding._tree import (
    MAX_DEPTH,
    MAX_NODES,
    Paths,
    RankedAcceptance,
    Tree,
    beam_tree,
    levels,
    parse_tree,
    read_by_a_tree,
    tree_outcomes,
    tree_statistics,
)
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape
from simspec.models.arch import Block
from simspec.models.counts import kv_bytes_per_token, weights_bytes
from simspec.models.dtypes import dtype

STATIC_TREE = (
    (0,), (1,), (2,), (3,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0),
    (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (1, 0, 0),
    (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 0, 0), (0, 0, 0, 0, 1),
)  # fmt: skip
"""EAGLE-1's tree, the same for every model: model/choices.py at e98fc7c of SafeAILab/EAGLE."""
DYNAMIC_DEPTH, DYNAMIC_TOP_K, DYNAMIC_NODES = 6, 10, 59
"""EAGLE-2 for a 7B: depth 6, 10 nodes a level, 60 verified tokens (arXiv 2406.16858, section 5)."""


class Config(MethodConfig):
    """Fields of ``method: {name: eagle, ...}``; bare, EAGLE-2 as published for a 7B."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "eagle"},
                {"name": "eagle", "version": 1},
                {"name": "eagle", "version": 1, "num_speculative_tokens": 4},
                {
                    "name": "eagle",
                    "version": 3,
                    "num_speculative_tokens": 5,
                    "top_k": 8,
                    "num_nodes": 31,
                    "draft_vocab_size": 32000,
                },
            ]
        }
    )

    name: Literal["eagle"] = "eagle"
    version: Literal[1, 2, 3] = 2
    """1 and 2: embedding and state projected to d, the target's LM head; 3: three states of the
    target, an LM head of its own."""
    num_speculative_tokens: int | None = Field(default=None, ge=1, le=MAX_DEPTH)
    """D: draft passes of a round and depth of its tree (SGLang's steps); 6 when not given. With
    version 1 or top_k 1 a chain of so many."""
    top_k: int | None = Field(default=None, ge=1, le=64)
    """k: nodes of a level that are continued, and children of each; 10 when not given, 1 is a
    chain."""
    num_nodes: int | None = Field(default=None, ge=1, le=MAX_NODES)
    """N: nodes verified beside the root; 59 when not given, as far as the levels have them."""
    tree: Paths | None = None
    """A static tree instead: one path of ranks for each node."""
    draft_model: str | None = Field(default=None, min_length=1)
    """``config.json`` of an EAGLE-3 head; gives its layer and vocabulary."""
    draft_vocab_size: int | None = Field(default=None, ge=1)
    """Tokens that an EAGLE-3 head can propose; the target's vocabulary when not given."""
    intermediate_size: int | None = Field(default=None, ge=1)
    """FFN width of the head; that of the target's widest dense layer when not given, or of the
    experts a token goes through."""
    num_kv_heads: int | None = Field(default=None, ge=1)
    """KV heads of the head; the target's when not given."""
    draft_dtype: str | None = None
    """Format of the head's weights; 16 bit when not given."""
    draft_tp: int | None = Field(default=None, ge=1, le=1024)
    """Tensor-parallel degree of the head; the target's when not given."""

    @model_validator(mode="after")
    def _fields_have_effect(self) -> Self:
        shape = ("num_speculative_tokens", "top_k", "num_nodes")
        given = [field for field in shape if getattr(self, field) is not None]
        if self.tree is not None and given:
            raise ValueError(f"tree is the whole shape, so {given[0]} has no effect; remove one")
        if self.version == 1 and (dynamic := [f for f in given if f != "num_speculative_tokens"]):
            raise ValueError(
                f"{dynamic[0]} needs version 2 or 3; version 1 drafts its static tree, or a chain "
                "of num_speculative_tokens"
            )
        if self.version == 2 and self.tree is not None:
            raise ValueError("version 2 builds its tree in each round; tree needs version 1 or 3")
        if self.version != 3 and self.draft_vocab_size is not None:
            raise ValueError(
                "draft_vocab_size needs version 3; heads of version 1 and 2 use the target's"
            )
        if self.draft_model is not None:
            if self.version != 3:
                raise ValueError("draft_model needs version 3: others have no config of their own")
            layer = ("draft_vocab_size", "intermediate_size", "num_kv_heads")
            if twice := [field for field in layer if getattr(self, field) is not None]:
                raise ValueError(f"draft_model says {twice[0]} already; remove one of them")
        return self

    @property
    def draft_depth(self) -> int | None:
        """D of a chain or a dynamic tree; a static tree is as deep as it is."""
        static, depth, _, _ = self._shape()
        return depth if static is None else None

    def acceptance_sentence(self, acceptance: AcceptanceProcess) -> str:
        """Return what the acceptance is to a tree; a chain reads it as it is."""
        is_chain = self.top_k == 1 or (self.version == 1 and self.num_speculative_tokens)
        return acceptance.describe() if is_chain else read_by_a_tree(acceptance)

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return the same method with the head's file looked up beside the scenario."""
        if self.draft_model is None:
            return self
        return self.model_copy(update={"draft_model": resolve(self.draft_model)})

    def build(self, target: Stack) -> Eagle:
        """Bind to ``target``.

        Raises
        ------
        ConfigError
            The levels have fewer nodes than asked for, the head does not fit the target, or it
            cannot be sharded.
        """
        static, depth, top_k, num_nodes = self._shape()
        head = self._head(target)
        if static is not None:
            expanded = static.parents_per_depth
            depth_sums: tuple[float, ...] = static.depth_sums
        else:
            expanded = (top_k,) * (depth - 1)
            depth_sums = tuple(m * (depth + 1) / 2 for m in range(num_nodes + 1))
        return Eagle(
            target=target,
            head=head,
            owns_lm_head=self.version == 3,
            static=static,
            depth=depth,
            top_k=top_k,
            max_draft=num_nodes,
            expanded=expanded,
            depth_sums=depth_sums,
        )

    def _shape(self) -> tuple[Tree | None, int, int, int]:
        """Return the static tree or None, D, k and N."""
        depth, top_k = self.num_speculative_tokens, self.top_k
        no_shape = depth is None and top_k is None and self.num_nodes is None
        if self.tree is not None or (self.version == 1 and no_shape):
            static = parse_tree(STATIC_TREE if self.tree is None else self.tree)
            return static, static.depth, 0, static.num_nodes
        if top_k is None:
            top_k = 1 if self.version == 1 else DYNAMIC_TOP_K
        depth = depth or DYNAMIC_DEPTH
        most = top_k + (depth - 1) * top_k**2 if top_k > 1 else depth
        num_nodes = self.num_nodes or min(DYNAMIC_NODES, most)
        if not depth <= num_nodes <= most:
            raise ConfigError(
                f"num_nodes: {num_nodes} is not possible, {depth} levels of {top_k} have "
                f"from {depth} to {most} nodes worth verifying",
                field="num_nodes",
            )
        return None, depth, top_k, num_nodes

    def _head(self, target: Stack) -> Stack:
        arch = None if self.draft_model is None else eagle3_architecture(self.draft_model, target)
        if arch is not None:
            layer, vocab = arch.blocks[0], head_vocabulary(arch)
        else:
            layer, vocab = self._layer(target), self.draft_vocab_size or target.vocab_size
        if vocab > target.vocab_size:
            raise ConfigError(
                f"draft_vocab_size: {vocab} is more than the target's {target.vocab_size}",
                field="draft_vocab_size",
            )
        head = replace(
            target,
            name="eagle",
            blocks=(states_fusion(target), layer) if self.version == 3 else (layer,),
            vocab_size=vocab,
            weight_dtype=head_format(target, self.draft_dtype),
            tp=self.draft_tp or target.tp,
        )
        return check_draft_tp(head, target, self.draft_tp)

    def _layer(self, target: Stack) -> Block:
        return eagle_layer(
            target,
            is_third=self.version == 3,
            intermediate_size=self.intermediate_size,
            num_kv_heads=self.num_kv_heads,
        )


@dataclass(frozen=True, slots=True)
class Eagle:
    """EAGLE bound to a target.

    Attributes
    ----------
    head : Stack
        Its last layer is the transformer layer; EAGLE-3 has the fusion of states before it.
    static : Tree or None
        None: a dynamic tree, or a chain.
    expanded : tuple (D - 1,)
        Nodes that the head continues at depth 1..D-1.
    depth_sums : tuple (N + 1,)
        Sum of the depths of the first m nodes.
    """

    target: Stack
    head: Stack
    owns_lm_head: bool
    static: Tree | None
    depth: int
    top_k: int
    max_draft: int
    expanded: tuple[int, ...]
    depth_sums: tuple[float, ...]
    name: str = "eagle"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target and the head."""
        return {"target": self.target, "eagle": self.head}

    def footprint(self) -> Footprint:
        """Return the head's weights and its layer of KV per rank, and N + 1 slots."""
        head = self.head
        weights = weights_bytes(head, head.weight_dtype, head.tp)
        if self.owns_lm_head:
            values = -(-head.vocab_size // head.tp) * head.hidden_size
            weights += values * dtype(head.weight_dtype).bits("head") / 8.0
        return Footprint(
            extra_weights_bytes=weights,
            extra_kv_bytes_per_token=kv_bytes_per_token(head.blocks, head.kv_dtype, head.tp),
            reserved_slots=self.max_draft + 1,
        )

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        tree = self.static
        if tree is None and tape.rank_rates is not None:
            tree = beam_tree(tape.rank_rates, self.max_draft, self.depth, self.top_k)
        return tree_outcomes(tape, tree, self.depth, self.max_draft)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        tree = self.static
        if tree is None and isinstance(acceptance, RankedAcceptance):
            tree = beam_tree(acceptance.rank_rates(), self.max_draft, self.depth, self.top_k)
        return tree_statistics(acceptance, self.name, tree, self.depth, self.max_draft)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round; plain decoding if nothing is drafted."""
        if any(drafted):
            rows = observed_head_round(context_lens, drafted, accepted, self.depth_sums)
            return [work for _, work in self._passes(rows, prefill)]
        decode = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        passes = [plain_pass(self.target, decode, prefill)]
        if prefill is not None:
            passes.append(Pass("eagle", 0, len(self.head.blocks), "prefill", (prefill,), True))
        return passes

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation over independent sequences."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            return [WeightedPass(1.0, plain_pass(self.target, rows, None))]
        head_round = expected_head_round(batch_size, context_len, statistics, self.depth_sums)
        return [WeightedPass(weight, work) for weight, work in self._passes(head_round, None)]

    def _passes(self, rows: HeadRound, prefill: Rows | None) -> Iterator[tuple[Quantity, Pass]]:
        last = len(self.head.blocks)
        for depth, count, total in levels(self.expanded):
            level = level_rows(rows.drafting, depth, count, total)
            yield 1.0, Pass("eagle", last - 1, last, "draft", (level,), True)
        riding = () if prefill is None else (prefill,)
        seen = (rows.verification, *riding)
        num_layers, branches = len(self.target.blocks), self.max_draft > self.depth
        yield 1.0, Pass("target", 0, num_layers, "verify", seen, True, has_tree=branches)
        for weight, yielded in rows.drafting.yielded:
            yield weight, Pass("eagle", 0, last, "draft", (yielded, *riding), True)
