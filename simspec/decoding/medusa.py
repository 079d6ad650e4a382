"""Medusa: heads on the last verified state draft in parallel, a static tree is verified.

Cai et al., "Medusa", ICML 2024, arXiv 2401.10774, and its code (github.com/FasterDecoding/Medusa).
One round costs

    heads on 1 state per sequence                 draft: each head d x d, SiLU, d x V
    F(0, L, N + 1) + H(N + 1)                     verify a tree of N nodes and its root

* Head k guesses the token k + 1 places ahead from the state of the last verified token: a residual
  block (d x d with bias) and an LM head of its own (d x V). Nothing in it depends on the guesses of
  the other heads, so a round has one draft step, whatever its depth. The heads are launched one
  after the other: 2 products each.
* The tree is static: the Cartesian products of the heads' first guesses that are most often right.
  ``tree: mc_sim_7b_63`` is the published one of 63 nodes (64 verified tokens with the root, depth
  4); ``num_nodes`` grows one greedily from ``head_accuracies`` as section 2.3.3 does; or give a
  list of paths of ranks.
* No drafter has a KV of its own. The tree needs N + 1 slots, of which the path keeps its own.
* Memory: ``num_heads (d^2 + d + d V)`` parameters; four heads of a 7B with 32,000 tokens are the
  591 M that Kangaroo (arXiv 2404.18911) compares itself with. The square blocks are whole on every
  rank, the vocabulary is divided.

Left out: typical acceptance, which accepts more than the target's own choices (its rates can be
given as the acceptance, and the output is then not the target's).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError
from simspec.cost.work import Pass, Quantity, Rows, Stack
from simspec.decoding._base import AcceptanceProcess, Footprint, MethodConfig, WeightedPass
from simspec.decoding._chain import plain_pass, plain_rows
from simspec.decoding._heads import (
    HeadRound,
    expected_head_round,
    head_format,
    observed_head_round,
    state_rows,
)
from simspec.decoding._tree import (
    MAX_DEPTH,
    MAX_NODES,
    Paths,
    Tree,
    best_tree,
    parse_tree,
    read_by_a_tree,
    tree_outcomes,
    tree_statistics,
)
from simspec.decoding.acceptance.tree_ranks import HitRates
from simspec.decoding.tape import Outcomes, RoundStatistics, Tape
from simspec.models.arch import Block
from simspec.models.counts import weights_bytes
from simspec.models.dtypes import dtype

TREES = {
    "mc_sim_7b_63": (
        (0,), (0, 0), (1,), (0, 1), (2,), (0, 0, 0), (1, 0), (0, 2), (3,), (0, 3), (4,), (0, 4),
        (2, 0), (0, 5), (0, 0, 1), (5,), (0, 6), (6,), (0, 7), (0, 1, 0), (1, 1), (7,), (0, 8),
        (0, 0, 2), (3, 0), (0, 9), (8,), (9,), (1, 0, 0), (0, 2, 0), (1, 2), (0, 0, 3), (4, 0),
        (2, 1), (0, 0, 4), (0, 0, 5), (0, 0, 0, 0), (0, 1, 1), (0, 0, 6), (0, 3, 0), (5, 0),
        (1, 3), (0, 0, 7), (0, 0, 8), (0, 0, 9), (6, 0), (0, 4, 0), (1, 4), (7, 0), (0, 1, 2),
        (2, 0, 0), (3, 1), (2, 2), (8, 0), (0, 5, 0), (1, 5), (1, 0, 1), (0, 2, 1), (9, 0),
        (0, 6, 0), (0, 0, 0, 1), (1, 6), (0, 7, 0),
    ),
}  # fmt: skip
"""medusa/model/medusa_choices.py at 5e98053 of FasterDecoding/Medusa."""


class Config(MethodConfig):
    """Fields of ``method: {name: medusa, ...}``; bare, the published tree for a 7B."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "medusa"},
                {"name": "medusa", "tree": [[0], [1], [0, 0]], "num_heads": 2},
                {
                    "name": "medusa",
                    "num_nodes": 8,
                    "head_accuracies": [[0.56, 0.67, 0.73], [0.32, 0.42, 0.49]],
                    "num_heads": 2,
                },
            ]
        }
    )

    name: Literal["medusa"] = "medusa"
    num_heads: int = Field(default=4, ge=1, le=MAX_DEPTH)
    """Heads, the deepest a tree can be."""
    tree: Literal["mc_sim_7b_63"] | Paths | None = None
    """A published tree by name, or one path of ranks for each node; ``mc_sim_7b_63`` when neither
    it nor ``num_nodes`` is given."""
    num_nodes: int | None = Field(default=None, ge=1, le=MAX_NODES)
    """N of a tree grown from ``head_accuracies``, the root left out."""
    head_accuracies: HitRates | None = None
    """Cumulative top-1, top-2, … accuracy of each head, that a tree is grown from."""
    draft_dtype: str | None = None
    """Format of the heads' weights; 16 bit when not given."""

    @model_validator(mode="after")
    def _one_tree(self) -> Self:
        if (self.num_nodes is None) != (self.head_accuracies is None):
            missing, given = "num_nodes", "head_accuracies"
            if self.num_nodes is not None:
                missing, given = given, missing
            raise ValueError(f"{given} grows a tree only together with {missing}; add {missing}")
        if self.tree is not None and self.num_nodes is not None:
            raise ValueError("tree is the whole shape, so num_nodes has no effect; remove one")
        return self

    def acceptance_sentence(self, acceptance: AcceptanceProcess) -> str:
        """Return what the acceptance is to a tree."""
        return read_by_a_tree(acceptance)

    def build(self, target: Stack) -> Medusa:
        """Bind to ``target``; the tree must not be deeper than there are heads.

        Raises
        ------
        ConfigError
            It is, or no tree has so many nodes.
        """
        tree = self._tree()
        if tree.depth > self.num_heads:
            raise ConfigError(
                f"num_heads: the tree is {tree.depth} deep and there are {self.num_heads} heads; "
                f"give at least {tree.depth}",
                field="num_heads",
            )
        square = Block(target.hidden_size, 0, 0, 0, 0, num_norms=0, fused_size=target.hidden_size)
        head = replace(
            target,
            name="medusa",
            blocks=(square,),
            weight_dtype=head_format(target, self.draft_dtype),
        )
        return Medusa(target, head, self.num_heads, tree, tree.num_nodes)

    def _tree(self) -> Tree:
        if self.num_nodes is not None and self.head_accuracies is not None:
            rates = np.diff(np.array(self.head_accuracies), axis=1, prepend=0.0)
            return best_tree(rates, self.num_nodes, min(self.num_heads, rates.shape[0]))
        tree = "mc_sim_7b_63" if self.tree is None else self.tree
        return parse_tree(TREES[tree] if isinstance(tree, str) else tree)


@dataclass(frozen=True, slots=True)
class Medusa:
    """Medusa bound to a target; ``head`` is one of ``num_heads`` equal ones."""

    target: Stack
    head: Stack
    num_heads: int
    tree: Tree
    max_draft: int
    name: str = "medusa"

    def stacks(self) -> Mapping[str, Stack]:
        """Return the target and a head."""
        return {"target": self.target, "medusa": self.head}

    def footprint(self) -> Footprint:
        """Return the heads' weights per rank and N + 1 slots; they keep no KV."""
        head = self.head
        form = dtype(head.weight_dtype)
        vocabulary = -(-head.vocab_size // head.tp) * head.hidden_size * form.bits("head") / 8.0
        bias = head.hidden_size * form.bits("norms") / 8.0
        square = weights_bytes(head, head.weight_dtype, head.tp)
        return Footprint(
            extra_weights_bytes=self.num_heads * (square + bias + vocabulary),
            extra_kv_bytes_per_token=0.0,
            reserved_slots=self.max_draft + 1,
        )

    def outcomes(self, tape: Tape) -> Outcomes:
        """Return m and a of the round that starts at each text position."""
        return tree_outcomes(tape, self.tree, self.tree.depth, self.max_draft)

    def statistics(self, acceptance: AcceptanceProcess | None) -> RoundStatistics:
        """Return the closed form of m and a."""
        return tree_statistics(acceptance, self.name, self.tree, self.tree.depth, self.max_draft)

    def round_passes(
        self,
        context_lens: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        prefill: Rows | None,
    ) -> list[Pass]:
        """Return the passes of one lock-step round; plain decoding if nothing is drafted."""
        if any(drafted):
            rows = observed_head_round(context_lens, drafted, accepted, self.tree.depth_sums)
            return list(self._passes(rows, prefill))
        decode = plain_rows(len(context_lens), sum(context_lens)) if context_lens else None
        return [plain_pass(self.target, decode, prefill)]

    def expected_passes(
        self, batch_size: Quantity, context_len: Quantity, statistics: RoundStatistics
    ) -> list[WeightedPass]:
        """Return the passes of one round in expectation: nothing in them is random."""
        if statistics.drafted_per_round == 0.0:
            rows = plain_rows(batch_size, batch_size * context_len)
            return [WeightedPass(1.0, plain_pass(self.target, rows, None))]
        expected = expected_head_round(batch_size, context_len, statistics, self.tree.depth_sums)
        return [WeightedPass(1.0, work) for work in self._passes(expected, None)]

    def _passes(self, rows: HeadRound, prefill: Rows | None) -> Iterator[Pass]:
        states = state_rows(rows.drafting)
        for _ in range(self.num_heads):
            yield Pass("medusa", 0, 1, "draft", (states,))
        seen = (rows.verification,) if prefill is None else (rows.verification, prefill)
        num_layers = len(self.target.blocks)
        branches = self.tree.num_nodes > self.tree.depth
        yield Pass("target", 0, num_layers, "verify", seen, True, has_tree=branches)
